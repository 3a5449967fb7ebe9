"""Where a term matches: which lines of a text, and where on a line."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

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
_PIECE = 1 << 16
#: matches shown on one line
_MOST_SPANS = 100
#: bytes RE2 reads between two looks at the clock: doubled while it is quick, so that a hard pattern cannot overstay
_FIRST_STRIDE, _LAST_STRIDE, _QUICK = 4096, 1 << 22, 0.005
#: instructions times bytes for one call into RE2, which cannot be interrupted. Of a line that is longer than this
#: allows (megabytes for a pattern of ordinary size) only the beginning is matched.
_MOST_STEPS = 100_000_000

Span = tuple[int, int]
#: raises when the search has to end
Watch = Callable[[], None]


class Finder(Protocol):
    """Belongs to one search, and so to one thread."""

    plan: Plan | None

    def lines(self, text: bytes, watch: Watch) -> Iterator[Span]:
        """The matching lines, without their ends. Every line of `text` ends with a newline."""
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

    def lines(self, text: bytes, watch: Watch) -> Iterator[Span]:
        return _lines_with(self._needle, text)

    def matches(self, line: bytes) -> bool:
        return self._needle in line

    def spans(self, line: bytes) -> list[Span]:
        spans: list[Span] = []
        size = len(self._needle)
        found = line.find(self._needle)
        while found >= 0 and len(spans) < _MOST_SPANS:
            spans.append((found, found + size))
            found = line.find(self._needle, found + size) if size else -1
        return spans


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

    def lines(self, text: bytes, watch: Watch) -> Iterator[Span]:
        if self._by_line:
            return self._each_line(text, watch)
        if self._prefilter is not None and self._spent > _WORTH:
            self._compile(self._prefilter)
        if self._scanner is not None:
            return self._scanned(text, watch)
        return self._searched(text, watch)

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

    def _compile(self, expression: bytes) -> None:
        self._prefilter = None
        scanner = hyperscan.Database()
        try:
            scanner.compile(expressions=[expression], flags=[hyperscan.HS_FLAG_MULTILINE])
        except hyperscan.error:
            return  # beyond what hyperscan takes on: RE2 goes on alone
        self._scanner = scanner

    def _scanned(self, text: bytes, watch: Watch) -> Iterator[Span]:
        """In pieces, because hyperscan goes to the end of what it is given, wanted or not."""
        ends: list[int] = []

        def note(_id: int, _start: int, end: int, _flags: int, _context: object) -> None:
            ends.append(end - 1)

        at = 0
        while at < len(text):
            stop = text.find(b"\n", min(at + _PIECE, len(text) - 1)) + 1
            self._scanner.scan(text[at:stop], match_event_handler=note)
            for end in ends:
                start = text.rfind(b"\n", 0, at + end) + 1
                if self._regex.search(text, start, min(at + end, start + self._reach)):
                    yield start, at + end
            ends.clear()
            watch()
            at = stop

    def _searched(self, text: bytes, watch: Watch) -> Iterator[Span]:
        at, stride = 0, min(_FIRST_STRIDE, self._reach)
        while at < len(text):
            stop = text.find(b"\n", min(at + stride, len(text) - 1)) + 1
            last = max(at, text.rfind(b"\n", at, stop - 1) + 1)
            before = time.monotonic()
            found = self._regex.search(text, at, min(stop, last + self._reach))
            took = time.monotonic() - before
            self._spent += took
            if took < _QUICK:
                stride = min(stride * 2, _LAST_STRIDE, self._reach)
            watch()
            place = stop if found is None else found.start()
            if place >= stop:
                at = stop
                continue
            end = text.find(b"\n", place)
            yield text.rfind(b"\n", 0, place) + 1, end
            at = end + 1

    def _each_line(self, text: bytes, watch: Watch) -> Iterator[Span]:
        start = 0
        while start < len(text):
            end = text.find(b"\n", start)
            if self.matches(text[start:end]):
                yield start, end
            watch()
            start = end + 1


class Folded(Pattern):
    """An ASCII text in any case: folding the text and finding in it beats compiling anything."""

    def __init__(self, term: Term) -> None:
        super().__init__(term)
        self._needle = encode(term).lower()
        self._read = 0
        self._aliases = [alias for letter, alias in _ALIASES.items() if letter in self._needle]

    def lines(self, text: bytes, watch: Watch) -> Iterator[Span]:
        aliased = not text.isascii() and any(alias in text for alias in self._aliases)
        if aliased or self._read > _WORTH_FOLDED:
            return super().lines(text, watch)
        self._read += len(text)
        return _lines_with(self._needle, text.lower())


def _lines_with(needle: bytes, text: bytes) -> Iterator[Span]:
    found = text.find(needle)
    while 0 <= found < len(text):
        end = text.find(b"\n", found)
        yield text.rfind(b"\n", 0, found) + 1, end
        found = text.find(needle, end + 1)
