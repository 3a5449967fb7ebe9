"""A curve in the terminal: each character is a cell of two by four dots. Pure."""

from collections.abc import Sequence
from statistics import median

#: the bits of a braille character's dots, by row and column
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BLANK = 0x2800


def plot(values: Sequence[float], columns: int, rows: int) -> list[str]:
    """Lines of at most `columns` characters; the lowest and the highest value are on the edges. Where there are more
    values than places, several share one: their median."""
    places = min(len(values), 2 * columns)
    shown = [
        median(values[n * len(values) // places : max((n + 1) * len(values) // places, n * len(values) // places + 1)])
        for n in range(places)
    ]
    low, high = min(shown, default=0.0), max(shown, default=0.0)
    cells = [[_BLANK] * ((places + 1) // 2) for _ in range(rows)]
    before = None
    for x, value in enumerate(shown):
        # one that never moves lies in the middle
        y = round((high - value) / (high - low) * (4 * rows - 1)) if high > low else 2 * rows
        start = y if before is None else before + (y > before) - (y < before)
        for dot in range(min(start, y), max(start, y) + 1):
            cells[dot // 4][x // 2] |= _DOTS[dot % 4][x % 2]
        before = y
    return ["".join(map(chr, line)) for line in cells]
