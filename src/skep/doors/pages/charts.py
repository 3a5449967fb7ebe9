"""Geometry of pictures: numbers in, places out; templates draw them as SVG. Pure."""

from collections.abc import Sequence
from math import cos, pi, sin
from typing import NamedTuple

_MOST_PARTS = 8
#: of a curve, in units of its own
WIDTH, HEIGHT, EDGE = 320.0, 90.0, 6.0


class Part(NamedTuple):
    """A stretch of a bar that is 100 wide."""

    name: str
    value: float
    start: float
    width: float
    #: which colour; the last is for "the rest"
    tone: int


class Curve(NamedTuple):
    path: str
    dots: list[tuple[float, float]]
    low: float
    high: float


class Arc(NamedTuple):
    name: str
    path: str
    tone: int


def ring(names: Sequence[str], stretches: Sequence[tuple[int, float, float]]) -> list[Arc]:
    """A circle, of which each name has many stretches; around (0, 0), with a radius of 50."""
    paths = ["" for _ in names]
    for n, start, end in stretches:
        (ax, ay), (bx, by) = _at(start), _at(min(end, start + 0.9999))
        large = int(end - start > 0.5)
        paths[n] += f"M{50 * ax:.2f} {50 * ay:.2f}A50 50 0 {large} 1 {50 * bx:.2f} {50 * by:.2f}"
        paths[n] += f"L{36 * bx:.2f} {36 * by:.2f}A36 36 0 {large} 0 {36 * ax:.2f} {36 * ay:.2f}Z"
    return [Arc(name, path, tone) for tone, (name, path) in enumerate(zip(names, paths, strict=True))]


def _at(turn: float) -> tuple[float, float]:
    """From the top, clockwise."""
    return sin(2 * pi * turn), -cos(2 * pi * turn)


def bar(pieces: Sequence[tuple[str, float]], whole: float | None = None) -> list[Part]:
    """One after the other; `whole` is what 100 stands for, if not their sum."""
    total = whole or sum(value for _, value in pieces) or 1.0
    parts: list[Part] = []
    at = 0.0
    for tone, (name, value) in enumerate(pieces):
        width = 100.0 * value / total
        parts.append(Part(name, value, round(at, 3), round(width, 3), tone))
        at += width
    return parts


def shares(pieces: Sequence[tuple[str, float]]) -> list[Part]:
    """The largest, and the rest as one."""
    ordered = sorted((piece for piece in pieces if piece[1] > 0), key=lambda piece: -piece[1])
    named = [piece for piece in ordered if piece[0]]
    shown = named[: _MOST_PARTS - 1]
    rest = sum(value for _, value in ordered) - sum(value for _, value in shown)
    parts = bar([*shown, ("other", rest)] if rest else shown)
    return [part._replace(tone=_MOST_PARTS - 1) if part.name == "other" else part for part in parts]


def curve(points: Sequence[tuple[float, float]]) -> Curve | None:
    """None: one point is no curve. Evenly spaced, because a commit is a step however long it took."""
    if len(points) < 2:
        return None
    values = [value for _, value in points]
    low, high = min(values), max(values)
    span, step = (high - low) or 1.0, (WIDTH - 2 * EDGE) / (len(points) - 1)
    inside = HEIGHT - 2 * EDGE
    dots = [
        (round(EDGE + n * step, 1), round(HEIGHT - EDGE - inside * (value - low) / span, 1))
        for n, value in enumerate(values)
    ]
    return Curve("M" + " L".join(f"{x} {y}" for x, y in dots), dots, low, high)
