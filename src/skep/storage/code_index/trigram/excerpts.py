"""A file as it is shown: only the lines that are shown are cut out of the shard's content."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from skep.storage.code_index.model import FileHit, Limits, Line, Term
from skep.storage.code_index.ranking import reasons
from skep.storage.code_index.trigram.matchers import Compiled
from skep.storage.code_index.trigram.scan import Light, Symbol
from skep.storage.code_index.trigram.shard import Shard

# A matching line as it is shown: decoded, and cut around the first match when it is very long.

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


#: bytes in which lines are counted sooner without numpy, which is several times faster on many
_FEW = 4096


class Show:
    def __init__(self, compiled: Compiled, limits: Limits) -> None:
        self._compiled = compiled
        self._limits = limits
        self._texts = [compiled.finders[term] for term in compiled.shown if term.field != "symbol"]
        #: whose matches in a path the facts of a file do not tell of
        self._untold = [t for t in compiled.named if t.field == "path" or compiled.finders[t].plan is None]

    def hit(self, light: Light, most: int) -> FileHit:
        shard, document = light.shard, light.document
        path = shard.path(document)
        lines = light.best_lines(most) if most else []
        return FileHit(
            int(shard.sources[document]),
            path.decode("utf-8", "backslashreplace"),
            shard.blob(document),
            tuple(self._lines(_Text(shard, document), lines)) if lines else (),
            most > 0 and len(lines) < light.facts.lines,
            shard.language(document),
            int(shard.marks[document]),
            int(shard.branches[document]),
            round(light.score, 2),
            reasons(light.facts) if self._limits.explain else (),
            self._path_ranges(path, self._compiled.named if light.facts.path else self._untold),
        )

    def _path_ranges(self, path: bytes, terms: Iterable[Term]) -> tuple[Span, ...]:
        found = [span for term in terms for span in self._compiled.finders[term].spans(path)]
        return excerpt(0, path, found).ranges if found else ()

    def _lines(self, text: "_Text", lines: list[tuple[int, Symbol]]) -> Iterator[Line]:
        around = self._limits.context
        for end, (named, stop, kind) in lines:
            start = text.line_start(end)
            line = text.cut(start, end)
            spans = [span for finder in self._texts for span in finder.spans(line)]
            if kind and len(self._texts) < len(self._compiled.shown):
                spans.append((named - start, stop - start))
            before, after = (text.before(start, around), text.after(end, around)) if around else ((), ())
            yield excerpt(text.number(start), line, spans, before, after, kind)


class _Text:
    """Of one document, where it lies mapped; places are counted from its beginning."""

    def __init__(self, shard: Shard, document: int) -> None:
        self._content = shard.content
        self._start, self._end = shard.span(document)
        #: line ends before `_counted`
        self._newlines = self._counted = 0

    def cut(self, start: int, end: int) -> bytes:
        return self._content[self._start + start : self._start + end]

    def line_start(self, end: int) -> int:
        """Of the line that ends there."""
        found = self._content.rfind(b"\n", self._start, self._start + end)
        return 0 if found < 0 else found + 1 - self._start

    def number(self, start: int) -> int:
        """Of the line that starts there; asked for one after the other."""
        first, last = self._start + self._counted, self._start + start
        if last - first < _FEW:
            self._newlines += self._content[first:last].count(b"\n")
        else:
            self._newlines += int(np.count_nonzero(np.frombuffer(self._content, np.uint8, last - first, first) == 10))
        self._counted = start
        return self._newlines + 1

    def before(self, start: int, count: int) -> tuple[str, ...]:
        lines: list[str] = []
        while start > 0 and len(lines) < count:
            end = start - 1
            start = self.line_start(end)
            lines.append(plain(self.cut(start, end)))
        return tuple(reversed(lines))

    def after(self, end: int, count: int) -> tuple[str, ...]:
        lines: list[str] = []
        while self._start + end + 1 < self._end and len(lines) < count:
            start = end + 1
            end = self._content.find(b"\n", self._start + start) - self._start
            lines.append(plain(self.cut(start, end)))
        return tuple(lines)
