"""Pictures of results as SVG: numbers in, text out. Pure; everything from outside is escaped."""

import math
from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

from skep.benchmarks.pairs import spread_of
from skep.model.benchmark import Step
from skep.model.result import Result, Series

WIDTH, HEIGHT = 860, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 16, 34, 42
#: attributes, not style: pages allow no style of their own
_LOOK = {
    "g": 'stroke="#8884"',
    "l": 'fill="none" stroke="#3b6ea8" stroke-width="1.5"',
    "p": 'fill="#3b6ea8"',
    "c": 'stroke="#3b6ea8" stroke-opacity=".35" stroke-width="3"',
    "f": 'fill="#c33"',
    "s": 'stroke="#c33" stroke-dasharray="4 3"',
    "b": 'stroke="#2a8a4a" stroke-dasharray="4 3"',
    "o": 'fill="#999"',
    "h": 'fill="#3b6ea8" fill-opacity=".6"',
    "t": 'font-weight="600"',
}
_TICKS = 5
_LABELS = 8
_BINS = 24


class Frame(NamedTuple):
    """From values to places, and the axis beside them."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Frame":
        low, high = min(values), max(values)
        pad = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
        return cls(low - pad, high + pad)

    def y(self, value: float) -> float:
        part = (value - self.low) / (self.high - self.low)
        return round(HEIGHT - _BOTTOM - part * (HEIGHT - _TOP - _BOTTOM), 1)

    def axis(self, unit: str) -> str:
        marks = [self.low + (self.high - self.low) * n / (_TICKS - 1) for n in range(_TICKS)]
        return "".join(
            f'<line {_LOOK["g"]} x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{self.y(at)}" y2="{self.y(at)}"/>'
            f'<text x="{_LEFT - 6}" y="{self.y(at) + 4}" text-anchor="end">{escape(shown(at, unit))}</text>'
            for at in marks
        )


def shown(value: float, unit: str = "") -> str:
    """As people write it: 1.25 ms."""
    if unit == "s" and value and abs(value) < 1:
        for small, size in (("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
            if abs(value) >= size:
                return f"{value / size:.4g} {small}"
    return f"{value:.4g} {unit}".strip()


def series_plot(
    series: Series,
    points: Sequence[Result],
    steps: Sequence[Step] = (),
    failures: Sequence[Result] = (),
    link: str = "",
) -> str:
    """Each commit a dot with its interval of confidence; steps are lines. `link` + a commit leads to its change."""
    unit, title = series.unit or "", title_of(series)
    if not points:
        return _svg(title, '<text x="50%" y="50%" text-anchor="middle">nothing was measured yet</text>')
    spreads = [spread_of(point.values or (point.value,)) for point in points]
    frame = Frame.of([edge for one in spreads for edge in (one.low, one.high)])
    everything = sorted([*points, *failures], key=lambda one: one.made_at)
    places = {commit: at for at, commit in enumerate(dict.fromkeys(one.commit for one in everything))}

    def x(commit: str) -> float:
        return round(_LEFT + 8 + (WIDTH - _LEFT - _RIGHT - 16) * (places[commit] + 0.5) / len(places), 1)

    drawn = [frame.axis(unit), _commits(list(places), x)]
    for step in steps:
        if step.commit in places:
            kind, at = ("s" if step.change > 0 else "b"), x(step.commit) - 3
            about = f"{step.change:+.1%} at {step.commit[:12]} by {step.author}: {step.subject}"
            drawn.append(f'<line {_LOOK[kind]} x1="{at}" x2="{at}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"><title>')
            drawn.append(f"{escape(about)}</title></line>")
            drawn.append(f'<text x="{at + 3}" y="{_TOP + 10}">{step.change:+.1%}</text>')
    line = " ".join(f"{x(one.commit)},{frame.y(one.value)}" for one in points)
    drawn.append(f'<polyline {_LOOK["l"]} points="{line}"/>')
    for point, spread in zip(points, spreads, strict=True):
        at = x(point.commit)
        drawn.append(f'<line {_LOOK["c"]} x1="{at}" x2="{at}" y1="{frame.y(spread.low)}" y2="{frame.y(spread.high)}"/>')
        drawn.append(
            _linked(link, point, f'<circle {_LOOK["p"]} cx="{at}" cy="{frame.y(point.value)}" r="3">', "circle", unit)
        )
    for one in failures:
        place = f'<text {_LOOK["f"]} x="{x(one.commit) - 4}" y="{HEIGHT - _BOTTOM - 2}">×'
        drawn.append(_linked(link, one, place, "text", one.tags.get("reason", "failed")))
    return _svg(title, "".join(drawn))


def _linked(link: str, point: Result, opening: str, tag: str, note: str) -> str:
    what = f"{shown(point.value, note)}" if point.kind == "measure" else note
    about = f"{point.commit[:12]} {point.tags.get('author', '')}: {point.tags.get('subject', '')} — {what}"
    inside = f"{opening}<title>{escape(about)}</title></{tag}>"
    return f'<a href="{escape(link + point.commit)}">{inside}</a>' if link else inside


def _commits(commits: Sequence[str], x: object) -> str:
    every = max(1, math.ceil(len(commits) / _LABELS))
    return "".join(
        f'<text x="{x(commit)}" y="{HEIGHT - _BOTTOM + 18}" text-anchor="middle">{escape(commit[:8])}</text>'  # type: ignore[operator]
        for commit in commits[::every]
    )


def compare_plot(series: Series, point: Result) -> str:
    """A commit beside the one before it, run by run."""
    before = [float(one) for one in point.tags.get("base_values", "").split()]
    after = list(point.values) or [point.value]
    unit, frame = series.unit or "", Frame.of([*before, *after])
    drawn = [frame.axis(unit)]
    sides = ((point.tags.get("base", ""), before, "o"), (point.commit, after, "p"))
    for n, (commit, values, kind) in enumerate(sides):
        middle = _LEFT + (WIDTH - _LEFT - _RIGHT) * (0.3 + 0.4 * n)
        for run, value in enumerate(values):
            at = round(middle + (run - len(values) / 2) * min(12.0, 160 / len(values)), 1)
            drawn.append(f'<circle {_LOOK[kind]} cx="{at}" cy="{frame.y(value)}" r="4"/>')
        if values:
            spread = spread_of(values)
            about = f"{commit[:12]}: {shown(spread.median, unit)}"
            drawn.append(f'<text x="{middle}" y="{HEIGHT - _BOTTOM + 18}" text-anchor="middle">{escape(about)}</text>')
    ratio = point.tags.get("ratio")
    verdict = f"{float(ratio) - 1:+.1%}, p = {point.tags.get('p', '')}" if ratio else "nothing to compare with"
    return _svg(f"{title_of(series)}: {verdict}", "".join(drawn))


def distribution_plot(series: Series, points: Sequence[Result]) -> str:
    """How often which value was measured."""
    values = [value for point in points for value in (point.values or (point.value,))]
    if not values:
        return series_plot(series, ())
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    bins = sorted(min(_BINS - 1, int(_BINS * (value - low) / span)) for value in values)
    counts = {place: len(list(group)) for place, group in groupby(bins)}
    frame, width = Frame(0.0, float(max(counts.values()))), (WIDTH - _LEFT - _RIGHT) / _BINS
    drawn = [frame.axis("")]
    for place, count in counts.items():
        about = f"{count} × {shown(low + span * place / _BINS, series.unit or '')} and more"
        drawn.append(
            f'<rect {_LOOK["h"]} x="{_LEFT + place * width + 1:.1f}" y="{frame.y(count)}" width="{width - 2:.1f}" '
            f'height="{HEIGHT - _BOTTOM - frame.y(count):.1f}"><title>{escape(about)}</title></rect>'
        )
    for at, value in ((0.0, low), (_BINS / 2, low + span / 2), (_BINS, high)):
        text = escape(shown(value, series.unit or ""))
        drawn.append(f'<text x="{_LEFT + at * width}" y="{HEIGHT - _BOTTOM + 18}" text-anchor="middle">{text}</text>')
    return _svg(title_of(series), "".join(drawn))


def title_of(series: Series) -> str:
    return " · ".join(
        part for part in (series.benchmark, series.group, series.metric, series.ref, series.machine) if part
    )


def _svg(title: str, inside: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" fill="#777" '
        f'font-family="system-ui,sans-serif" font-size="12"><title>{escape(title)}</title>'
        f'<text {_LOOK["t"]} x="{_LEFT}" y="20">{escape(title)}</text>{inside}</svg>'
    )
