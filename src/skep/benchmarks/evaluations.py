"""Evaluations: files that tasks made of results, with a MIME type, to be looked at. A task has one of each name."""

import base64
import binascii
import csv
import io
import math
from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from skep.access.audit import note
from skep.base.caller import SYSTEM, Caller
from skep.base.clock import Clock
from skep.base.errors import BadInput, Conflict, NotFound, TooLarge
from skep.base.ids import new_id
from skep.benchmarks.api import Evaluation, Step
from skep.benchmarks.change_points import Curve, Curves
from skep.benchmarks.step_detection import spread_of
from skep.results.api import Result, Series
from skep.sources.catalogue import seen
from skep.storage.database import Database, Row, Tx, insert, one_row
from skep.tasks.model import Call
from skep.tasks.transitions import ACTIVE_SQL, spec_of

# Pictures of results as SVG: numbers in, text out. Pure; everything from outside is escaped.

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


LARGEST = 700_000
_KEPT = 1_000
_SVG = "image/svg+xml"
#: what a browser may be shown, and how it ends
MIMES = {
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "text/html": "html",
    "text/csv": "csv",
    "text/plain": "txt",
    "application/json": "json",
}
_WORDS = ("author", "subject")
_COLUMNS = "id, task, benchmark, source, name, mime, size, at"
_VISIBLE = seen("evaluation.source")


class Evaluations:
    def __init__(self, db: Database, clock: Clock, curves: Curves) -> None:
        self._db = db
        self._clock = clock
        self.curves = curves

    async def answer(self, member: str, call: Call) -> Any:
        """What a running task asks."""
        if call.verb == "evaluation.curve":
            wanted = {name: call.value.get(name) for name in ("metric", "group", "ref", "machine")}
            return msgspec.to_builtins((await self.curves.find(SYSTEM, call.name, wanted))[:1])
        return {"id": await self._put(member, call)}

    async def _put(self, member: str, call: Call) -> str:
        """A repeat takes the place of what the task made before."""
        mime, body = _file(call)
        now = self._clock.now()

        async def work(tx: Tx) -> str:
            rows = await tx.rows(
                f"SELECT spec FROM task WHERE id = :id AND attempt = :attempt AND worker = :member AND {ACTIVE_SQL}",  # noqa: S608
                id=call.task,
                attempt=call.attempt,
                member=member,
            )
            spec = spec_of(one_row(rows, Conflict(f"attempt {call.attempt} of task {call.task} is over")))
            benchmark = str(spec.arguments.get("benchmark") or spec.properties.get("skep.benchmark", ""))
            about = await tx.rows("SELECT source FROM benchmark WHERE name = :name", name=benchmark)
            source = about[0]["source"] if about else spec.properties.get("skep.source", spec.source)
            made = await insert(
                tx,
                "evaluation",
                "ON CONFLICT (task, name) DO UPDATE SET mime = excluded.mime, size = excluded.size, "
                "at = excluded.at, body = excluded.body RETURNING id",
                id=new_id("evl", now),
                task=call.task,
                benchmark=benchmark,
                source=source,
                name=call.name,
                mime=mime,
                size=len(body),
                at=now,
                body=body,
            )
            await tx.rows(
                "DELETE FROM evaluation WHERE id <= (SELECT id FROM evaluation ORDER BY id DESC LIMIT 1 OFFSET :kept)",
                kept=_KEPT,
            )
            return str(made[0]["id"])

        return await self._db.write(work)

    async def open(self, caller: Caller, id: str) -> tuple[Evaluation, bytes]:
        caller.need("read")
        rows = await self._rows(caller, f"{_COLUMNS}, body", "id = :wanted", id, 1)
        row = one_row(rows, NotFound(f"there is no evaluation {id[:80]!r}"))
        return _evaluation(row), bytes(row["body"])

    async def remove(self, caller: Caller, id: str) -> None:
        caller.need("write")
        await self.open(caller, id)

        async def work(tx: Tx) -> None:
            await tx.rows("DELETE FROM evaluation WHERE id = :id", id=id)
            await note(tx, self._clock.now(), caller, "evaluation.remove", id)

        await self._db.write(work)

    async def _rows(self, caller: Caller, columns: str, holds: str, wanted: str, limit: int) -> list[Row]:
        return await self._db.read(
            f"SELECT {columns} FROM evaluation WHERE {holds} AND {_VISIBLE} ORDER BY id DESC LIMIT :limit",  # noqa: S608
            wanted=wanted,
            private=int(caller.sees("private")),
            limit=limit,
        )

    async def list(self, caller: Caller, benchmark: str = "", limit: int = 100) -> list[Evaluation]:
        """The newest first."""
        caller.need("read")
        rows = await self._rows(caller, _COLUMNS, "(:wanted = '' OR benchmark = :wanted)", benchmark, limit)
        return [_evaluation(row) for row in rows]


def _evaluation(row: Row) -> Evaluation:
    return Evaluation(*(row[name] for name in _COLUMNS.split(", ")))


def _file(call: Call) -> tuple[str, bytes]:
    given = call.value if isinstance(call.value, dict) else {}
    mime = str(given.get("mime", ""))
    if mime not in MIMES:
        raise BadInput(f"{mime[:80]!r} is not shown here", hint=f"there are: {', '.join(MIMES)}")
    try:
        body = base64.b64decode(str(given.get("body", "")), validate=True)
    except (binascii.Error, ValueError):
        raise BadInput('the body should be {"mime": "image/svg+xml", "body": BASE64}') from None
    if len(body) > LARGEST:
        raise TooLarge(f"an evaluation may have {LARGEST:,} bytes, not {len(body):,}", hint="draw fewer points")
    return mime, body


def evaluate(plot: str, curve: Curve, *, commit: str = "", link: str = "") -> tuple[str, bytes]:
    """The built-in ones: MIME type and file. Pure."""
    series, points = curve.series, curve.points
    match plot:
        case "series":
            return _SVG, series_plot(series, points, curve.steps, curve.failures, link).encode()
        case "distribution":
            return _SVG, distribution_plot(series, points).encode()
        case "compare":
            point = next((one for one in reversed(points) if one.commit.startswith(commit)), None)
            if point is None:
                raise NotFound(f"commit {commit[:40]!r} was not measured")
            return _SVG, compare_plot(series, point).encode()
        case "table":
            out = io.StringIO()
            rows = csv.writer(out)
            rows.writerow(("commit", "made_at", "value", "unit", *_WORDS))
            for one in points:
                # a table program must not take what people wrote for a formula
                words = (f"'{text}" if text[:1] in "=+-@\t" else text for text in map(one.tags.get, _WORDS) if text)
                rows.writerow((one.commit, one.made_at, one.value, one.unit, *words))
            return "text/csv", out.getvalue().encode()
        case _:
            raise BadInput(f"{plot[:40]!r} is no evaluator", hint="series, compare, distribution or table")
