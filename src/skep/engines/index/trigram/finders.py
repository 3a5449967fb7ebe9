"""What finds a term: a pattern, a text, or a text in any case."""

from collections.abc import Sequence

from skep.engines.index.dialect import encode
from skep.engines.index.trigram.match import MOST_SPANS, Finder, Matches, Span, Text, Watch
from skep.engines.index.trigram.pattern import Pattern
from skep.engines.index.trigram.plan import plan
from skep.engines.index.trigram.prefilter import prefilter
from skep.engines.index.trigram.scanned import Scanned
from skep.engines.index.trigram.syntax import literal
from skep.model.search import Term

#: bytes after which compiling for hyperscan is worth more than finding, or folding case and finding
_WORTH_READ = 1_000_000
#: matching lines between two looks at the clock
_LOOK = 4096
#: what `k` and `s` also match when case is ignored: the Kelvin sign and the long s
_ALIASES = {b"k": "\u212a".encode(), b"s": "\u017f".encode()}


def finder(term: Term) -> Finder:
    """BadQuery when the term's pattern is none."""
    if term.regex or "\n" in term.pattern:
        return Pattern(term)
    if term.case:
        return Literal(term)
    return Folded(term) if term.pattern.isascii() else Pattern(term)


class Literal(Scanned):
    """A text, case and all: on little text `bytes.find` is hard to beat."""

    def __init__(self, term: Term) -> None:
        super().__init__()
        self._needle = encode(term)
        node = literal(term.pattern, ignore_case=False)
        self.plan = plan(node)
        self._prefilter = prefilter(node)
        self._read = 0

    def find(self, text: Text, runs: Sequence[Span], watch: Watch, found: Matches) -> None:
        if self._read > _WORTH_READ:
            self._compile()
        if self._scanner is not None:
            self._scan(text, runs, watch, found)
        else:
            for start, end in runs:
                _find_each(self._needle, text, start, end, watch, found)
        self._read += sum([end - start for start, end in runs])

    def _settle(self, text: Text, ends: Sequence[int], found: Matches) -> None:
        needle, find, rfind = self._needle, text.find, text.rfind
        starts = [find(needle, rfind(b"\n", 0, end) + 1, end) for end in ends]
        found.starts.extend(starts)
        found.ends.extend([start + len(needle) for start in starts])
        found.lines.extend(ends)

    def matches(self, line: bytes) -> bool:
        return self._needle in line

    def spans(self, line: bytes) -> list[Span]:
        return _spans(self._needle, line)


class Folded(Pattern):
    """An ASCII text in any case: folding the text and finding in it beats compiling anything."""

    def __init__(self, term: Term) -> None:
        super().__init__(term)
        self._needle = encode(term).lower()
        self._read = 0
        self._aliases = [alias for letter, alias in _ALIASES.items() if letter in self._needle]

    def find(self, text: Text, runs: Sequence[Span], watch: Watch, found: Matches) -> None:
        if self._read > _WORTH_READ:
            self._compile()
        if self._scanner is not None:
            self._scan(text, runs, watch, found)
            return
        for start, end in runs:
            self._read += end - start
            self._fold(text, start, end, watch, found)

    def _fold(self, text: Text, start: int, end: int, watch: Watch, found: Matches) -> None:
        folded = text[start:end].lower()
        if any(alias in folded for alias in self._aliases):
            self._each(text, start, end, watch, found)
            return
        inside = Matches([], [], [])
        _find_each(self._needle, folded, 0, len(folded), watch, inside)
        for place, line in zip(inside.starts, inside.lines, strict=True):
            found.add(start + place, start + place + len(self._needle), start + line)

    def _settle(self, text: Text, ends: Sequence[int], found: Matches) -> None:
        for end in ends:
            start = text.rfind(b"\n", 0, end) + 1
            line = text[start:end]
            if self._aliases and not line.isascii():
                super()._settle(text, [end], found)
                continue
            place = line.lower().find(self._needle)
            if place >= 0:
                found.add(start + place, start + place + len(self._needle), end)

    def spans(self, line: bytes) -> list[Span]:
        return super().spans(line) if self._aliases and not line.isascii() else _spans(self._needle, line.lower())


def _spans(needle: bytes, line: bytes) -> list[Span]:
    spans: list[Span] = []
    size = len(needle)
    found = line.find(needle)
    while found >= 0 and len(spans) < MOST_SPANS:
        spans.append((found, found + size))
        found = line.find(needle, found + size) if size else -1
    return spans


def _find_each(needle: bytes, text: Text, start: int, end: int, watch: Watch, found: Matches) -> None:
    starts, lines = found.starts, found.lines
    done = len(lines)
    find = text.find
    place = find(needle, start, end)
    while 0 <= place < end and len(lines) < found.most:
        line = find(b"\n", place)
        starts.append(place)
        lines.append(line)
        if not len(lines) % _LOOK:
            watch()
        place = find(needle, line + 1, end)
    size = len(needle)
    found.ends.extend([place + size for place in starts[done:]])
