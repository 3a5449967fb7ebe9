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

#: bytes RE2 reads before compiling for hyperscan (about a millisecond) pays off
_WORTH = 300_000
#: matches shown on one line
_MOST_SPANS = 100
#: bytes RE2 reads between two looks at the clock: doubled while it is quick, so that a hard pattern cannot overstay
_FIRST_STRIDE, _LAST_STRIDE, _QUICK = 4096, 1 << 22, 0.005
#: instructions times bytes for one call into RE2, which cannot be interrupted. Of a line that is longer than this allows
#: (a megabyte for a pattern of ordinary size) only the beginning is matched.
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

    def spans(self, line: bytes) -> list[Span]:
        """The matches on one line; the first may be empty, the others are not."""
        ...


def finder(term: Term) -> Finder:
    """BadQuery when the term's pattern is none."""
    if term.case and not term.regex:
        return Literal(term)
    return Pattern(term)


class Literal:
    """A text, case and all: `bytes.find` is hard to beat."""

    def __init__(self, term: Term) -> None:
        self._needle = encode(term)
        self.plan = plan(literal(term.pattern, ignore_case=False))

    def lines(self, text: bytes, watch: Watch) -> Iterator[Span]:
        needle = self._needle
        if b"\n" in needle:
            return
        found = text.find(needle)
        while 0 <= found < len(text):
            end = text.find(b"\n", found)
            yield text.rfind(b"\n", 0, found) + 1, end
            found = text.find(needle, end + 1)

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
        self._read = 0
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
        self._read += len(text)
        if self._by_line:
            return self._each_line(text, watch)
        if self._prefilter is not None and self._read > _WORTH:
            self._compile(self._prefilter)
        if self._scanner is not None:
            return self._scanned(text, watch)
        return self._searched(text, watch)

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
        ends: list[int] = []

        def note(_id: int, _start: int, end: int, _flags: int, _context: object) -> None:
            ends.append(end - 1)

        self._scanner.scan(text, match_event_handler=note)
        for end in ends:
            start = text.rfind(b"\n", 0, end) + 1
            if self._regex.search(text, start, min(end, start + self._reach)):
                yield start, end
            watch()

    def _searched(self, text: bytes, watch: Watch) -> Iterator[Span]:
        at, stride = 0, min(_FIRST_STRIDE, self._reach)
        while at < len(text):
            stop = text.find(b"\n", min(at + stride, len(text) - 1)) + 1
            last = max(at, text.rfind(b"\n", at, stop - 1) + 1)
            before = time.monotonic()
            found = self._regex.search(text, at, min(stop, last + self._reach))
            if time.monotonic() - before < _QUICK:
                stride = min(stride * 2, _LAST_STRIDE, self._reach)
            watch()
            if found is None or found.start() >= stop:
                at = stop
                continue
            end = text.find(b"\n", found.start())
            yield text.rfind(b"\n", 0, found.start()) + 1, end
            at = end + 1

    def _each_line(self, text: bytes, watch: Watch) -> Iterator[Span]:
        start = 0
        while start < len(text):
            end = text.find(b"\n", start)
            if self._regex.search(text[start : min(end, start + self._reach)]):
                yield start, end
            watch()
            start = end + 1
