"""A matching line as it is shown: decoded, and cut around the first match when it is very long."""

from collections.abc import Sequence

from skep.model.search import Line

#: bytes of a line that are shown, and how many of them come before the first match
_MOST_BYTES, _BEFORE = 400, 100

Span = tuple[int, int]


def excerpt(
    number: int,
    line: bytes,
    spans: Sequence[Span],
    before: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
    symbol: str = "",
) -> Line:
    """`spans` are the matches of all terms on this line, as bytes of it; none when they lie beyond what is read."""
    if len(spans) == 1 and len(line) <= _MOST_BYTES and line.isascii() and not line.endswith(b"\r"):  # nearly all
        ((at, stop),) = spans
        return Line(number, at + 1, line.decode(), ((at, stop),) if at < stop else (), before, after, symbol)
    column = min((start for start, _ in spans), default=0) + 1
    start, end = _window(line, column - 1)
    shown = line[start:end]
    ranges = [
        (_characters(shown, a - start), _characters(shown, b - start))
        for a, b in _united(spans)
        if a < end and b > start and a < b
    ]
    text = shown.decode("utf-8", "replace")
    return Line(number, column, text, tuple(r for r in ranges if r[0] < r[1]), before, after, symbol)


def plain(line: bytes) -> str:
    """A line of the context: its beginning."""
    start, end = _window(line, 0)
    return line[start:end].decode("utf-8", "replace")


def _window(line: bytes, first: int) -> Span:
    """Cut between characters, never inside one."""
    end = len(line)
    if line.endswith(b"\r"):
        end -= 1
    if end <= _MOST_BYTES:
        return 0, end
    start = max(0, min(first - _BEFORE, end - _MOST_BYTES))
    stop = min(end, start + _MOST_BYTES)
    return _to_character(line, start), _to_character(line, stop)


def _to_character(line: bytes, at: int) -> int:
    for step in range(4):
        if at + step >= len(line) or line[at + step] & 0xC0 != 0x80:
            return at + step
    return at


def _characters(shown: bytes, at: int) -> int:
    """How many characters the first `at` bytes are."""
    if shown.isascii():
        return max(at, 0)
    return len(shown[: max(at, 0)].decode("utf-8", "replace"))


def _united(spans: Sequence[Span]) -> list[Span]:
    united: list[Span] = []
    for start, end in sorted(spans):
        if united and start < united[-1][1]:
            united[-1] = (united[-1][0], max(end, united[-1][1]))
        else:
            united.append((start, end))
    return united
