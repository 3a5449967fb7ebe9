"""Where a term matches: which lines of a text, and where on a line."""

import time
from collections.abc import Callable
from mmap import mmap
from typing import Any, NamedTuple, Protocol

from skep.engines.index.dialect import compile_term, encode
from skep.engines.index.trigram.parse import parse
from skep.engines.index.trigram.plan import Plan, plan
from skep.engines.index.trigram.prefilter import prefilter
from skep.engines.index.trigram.syntax import NotUnderstood, literal
from skep.model.search import Term

hyperscan: Any
try:
    import hyperscan
except ImportError:  # no wheel for this machine: RE2 does it all
    hyperscan = None

#: seconds RE2 works before compiling for hyperscan, which takes about as long, pays off
_WORTH = 0.001
#: bytes after which that is also worth more than folding case and finding
_WORTH_FOLDED = 1_000_000
#: what `k` and `s` also match when case is ignored: the Kelvin sign and the long s
_ALIASES = {b"k": "\u212a".encode(), b"s": "\u017f".encode()}
#: bytes hyperscan is given at once
_PIECE = 1 << 18
#: matches shown on one line
_MOST_SPANS = 100
#: matching lines of one document: beyond them it is not read
MOST_LINES = 20_000
#: matching lines between two looks at the clock
_LOOK = 4096
#: bytes RE2 reads between two looks at the clock: doubled while it is quick, so that a hard pattern cannot overstay
_FIRST_STRIDE, _LAST_STRIDE, _QUICK = 4096, 1 << 22, 0.005
#: instructions times bytes for one call into RE2, which cannot be interrupted. Of a line that is longer than this
#: allows (megabytes for a pattern of ordinary size) only the beginning is matched.
_MOST_STEPS = 100_000_000

Span = tuple[int, int]
Text = bytes | mmap
#: raises when the search has to end
Watch = Callable[[], None]


class Matches(NamedTuple):
    """The matching lines of a text in their order: where the first match on each starts and ends, and the line ends."""

    starts: list[int]
    ends: list[int]
    lines: list[int]
    #: after so many it is enough; unless told otherwise, more than several documents that are read at once can have
    most: int = 1 << 20

    def add(self, start: int, end: int, line: int) -> None:
        self.starts.append(start)
        self.ends.append(end)
        self.lines.append(line)


class Finder(Protocol):
    """Used by one search at a time, and so by one thread."""

    plan: Plan | None

    def find(self, text: Text, start: int, end: int, watch: Watch, found: Matches) -> None:
        """Add the first matches on the lines from `start` to `end`. Every line ends with a newline."""
        ...

    def matches(self, line: bytes) -> bool: ...

    def spans(self, line: bytes) -> list[Span]:
        """The matches on one line; the first may be empty, the others are not."""
        ...


def finder(term: Term) -> Finder:
    """BadQuery when the term's pattern is none."""
    if term.regex or "\n" in term.pattern:
        return Pattern(term)
    if term.case:
        return Literal(term)
    return Folded(term) if term.pattern.isascii() else Pattern(term)


class Literal:
    """A text, case and all: `bytes.find` is hard to beat."""

    def __init__(self, term: Term) -> None:
        self._needle = encode(term)
        self.plan = plan(literal(term.pattern, ignore_case=False))

    def find(self, text: Text, start: int, end: int, watch: Watch, found: Matches) -> None:
        _find_each(self._needle, text, start, end, watch, found)

    def matches(self, line: bytes) -> bool:
        return self._needle in line

    def spans(self, line: bytes) -> list[Span]:
        return _spans(self._needle, line)


class Pattern:
    """Anything else: RE2 decides, on much text hyperscan shows it the lines worth looking at."""

    def __init__(self, term: Term) -> None:
        self._regex = compile_term(term)
        self._reach = _MOST_STEPS // self._regex.programsize
        self._by_line = False
        self._prefilter: bytes | None = None
        self._scanner: Any = None
        self._spent = 0.0
        self.plan: Plan | None = None
        try:
            self._understand(term)
        except NotUnderstood:
            self._by_line = True

    def _understand(self, term: Term) -> None:
        if term.regex:
            parsed = parse(term.pattern, not term.case)
            node, self._by_line = parsed.node, parsed.by_line
        else:
            node = literal(term.pattern, not term.case)
        self.plan = plan(node)
        if hyperscan is not None and not self._by_line:
            self._prefilter = prefilter(node)

    def find(self, text: Text, start: int, end: int, watch: Watch, found: Matches) -> None:
        if self._by_line:
            self._each_line(text, start, end, watch, found)
        elif self._is_scanned():
            self._scan(text, start, end, watch, found)
        else:
            self._search(text, start, end, watch, found)

    def matches(self, line: bytes) -> bool:
        return self._regex.search(line[: self._reach]) is not None

    def spans(self, line: bytes) -> list[Span]:
        spans: list[Span] = []
        for found in self._regex.finditer(line[: self._reach]):
            span = found.span()
            if not spans or (span[0] < span[1] and span != spans[-1]):
                spans.append(span)
            if len(spans) >= _MOST_SPANS:
                break
        return spans

    def _is_scanned(self) -> bool:
        if self._prefilter is not None and self._spent > _WORTH:
            self._compile(self._prefilter)
        return self._scanner is not None

    def _compile(self, expression: bytes) -> None:
        self._prefilter = None
        scanner = hyperscan.Database()
        try:
            scanner.compile(expressions=[expression], flags=[hyperscan.HS_FLAG_MULTILINE])
        except hyperscan.error:
            return  # beyond what hyperscan takes on: RE2 goes on alone
        self._scanner = scanner

    def _scan(self, text: Text, start: int, end: int, watch: Watch, found: Matches) -> None:
        """In pieces, because hyperscan goes to the end of what it is given, wanted or not."""
        ends: list[int] = []

        def note(_id: int, _start: int, end: int, _flags: int, _context: object) -> None:
            ends.append(end - 1)

        with memoryview(text) as view:
            at = start
            while at < end and len(found.lines) < found.most:
                stop = text.find(b"\n", min(at + _PIECE, end - 1)) + 1
                with view[at:stop] as piece:
                    self._scanner.scan(piece, match_event_handler=note)
                self._settle(text, at, ends, found)
                ends.clear()
                watch()
                at = stop

    def _settle(self, text: Text, at: int, ends: list[int], found: Matches) -> None:
        """Of the lines that end there, counted from `at`, keep those that match."""
        search, reach = self._regex.search, self._reach
        for end in ends:
            start = text.rfind(b"\n", 0, at + end) + 1
            match = search(text, start, min(at + end, start + reach))
            if match is not None:
                found.add(match.start(), match.end(), at + end)

    def _search(self, text: Text, start: int, end: int, watch: Watch, found: Matches) -> None:
        at, stride = start, min(_FIRST_STRIDE, self._reach)
        while at < end and len(found.lines) < found.most:
            stop = text.find(b"\n", min(at + stride, end - 1)) + 1
            last = max(at, text.rfind(b"\n", at, stop - 1) + 1)
            before = time.monotonic()
            match = self._regex.search(text, at, min(stop, last + self._reach))
            took = time.monotonic() - before
            self._spent += took
            if took < _QUICK:
                stride = min(stride * 2, _LAST_STRIDE, self._reach)
            watch()
            place = stop if match is None else match.start()
            if place >= stop:
                at = stop
                continue
            line = text.find(b"\n", place)
            found.add(place, match.end(), line)
            at = line + 1

    def _each_line(self, text: Text, start: int, end: int, watch: Watch, found: Matches) -> None:
        while start < end and len(found.lines) < found.most:
            line = text.find(b"\n", start)
            match = self._regex.search(text[start : min(line, start + self._reach)])
            if match is not None:
                found.add(start + match.start(), start + match.end(), line)
            watch()
            start = line + 1


class Folded(Pattern):
    """An ASCII text in any case: folding the text and finding in it beats compiling anything."""

    def __init__(self, term: Term) -> None:
        super().__init__(term)
        self._needle = encode(term).lower()
        self._read = 0
        self._aliases = [alias for letter, alias in _ALIASES.items() if letter in self._needle]

    def find(self, text: Text, start: int, end: int, watch: Watch, found: Matches) -> None:
        if self._scanner is not None or self._read > _WORTH_FOLDED:
            self._spent = 1.0
            super().find(text, start, end, watch, found)
            return
        self._read += end - start
        folded = text[start:end].lower()
        if any(alias in folded for alias in self._aliases):
            super().find(text, start, end, watch, found)
            return
        inside = Matches([], [], [])
        _find_each(self._needle, folded, 0, len(folded), watch, inside)
        for place, line in zip(inside.starts, inside.lines, strict=True):
            found.add(start + place, start + place + len(self._needle), start + line)

    def _settle(self, text: Text, at: int, ends: list[int], found: Matches) -> None:
        for end in ends:
            start = text.rfind(b"\n", 0, at + end) + 1
            line = text[start : at + end]
            if self._aliases and not line.isascii():
                super()._settle(text, at, [end], found)
                continue
            place = line.lower().find(self._needle)
            if place >= 0:
                found.add(start + place, start + place + len(self._needle), at + end)

    def spans(self, line: bytes) -> list[Span]:
        return super().spans(line) if self._aliases and not line.isascii() else _spans(self._needle, line.lower())


def _spans(needle: bytes, line: bytes) -> list[Span]:
    spans: list[Span] = []
    size = len(needle)
    found = line.find(needle)
    while found >= 0 and len(spans) < _MOST_SPANS:
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
