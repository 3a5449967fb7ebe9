"""Where a regular expression matches, or anything else that RE2 decides."""

import time
from collections.abc import Sequence

from skep.engines.index.dialect import compile_term, searcher
from skep.engines.index.trigram.match import MOST_SPANS, Matches, Span, Text, Watch
from skep.engines.index.trigram.parse import Parsed, parse
from skep.engines.index.trigram.plan import Plan, plan
from skep.engines.index.trigram.prefilter import prefilter
from skep.engines.index.trigram.scanned import Scanned
from skep.engines.index.trigram.syntax import NotUnderstood, literal
from skep.model.search import Term

#: seconds RE2 works before compiling for hyperscan, which takes about as long, pays off
_WORTH = 0.001
#: matches looked at for those shown on one line: an empty one may be at every character
_MOST_TRIES = 1000
#: bytes RE2 reads between two looks at the clock: doubled while it is quick, so that a hard pattern cannot overstay
_FIRST_STRIDE, _LAST_STRIDE, _QUICK = 4096, 1 << 22, 0.005
#: instructions times bytes for one call into RE2, which cannot be interrupted. Of a line that is longer than this
#: allows (megabytes for a pattern of ordinary size) only the beginning is matched.
_MOST_STEPS = 100_000_000


def understood(term: Term) -> Parsed:
    if term.regex:
        return parse(term.pattern, not term.case)
    return Parsed(literal(term.pattern, not term.case), by_line=False)


class Pattern(Scanned):
    """RE2 decides."""

    def __init__(self, term: Term) -> None:
        super().__init__()
        regex = compile_term(term)
        self._search = searcher(regex)
        self._reach = _MOST_STEPS // regex.programsize
        self._by_line = False
        self._spent = 0.0
        self.plan: Plan | None = None
        try:
            self._understand(term)
        except NotUnderstood:
            self._by_line = True

    def _understand(self, term: Term) -> None:
        parsed = understood(term)
        self.plan, self._by_line = plan(parsed.node), parsed.by_line
        if not self._by_line:
            self._prefilter = prefilter(parsed.node)

    def find(self, text: Text, runs: Sequence[Span], watch: Watch, found: Matches) -> None:
        if self._spent > _WORTH:
            self._compile()
        if self._scanner is not None:
            self._scan(text, runs, watch, found)
            return
        for start, end in runs:
            (self._each_line if self._by_line else self._each)(text, start, end, watch, found)

    def matches(self, line: bytes) -> bool:
        return self._search(line, 0, min(len(line), self._reach))[0][0] >= 0

    def spans(self, line: bytes) -> list[Span]:
        spans: list[Span] = []
        at, end = 0, min(len(line), self._reach)
        for _ in range(_MOST_TRIES):
            start, stop = span = self._search(line, at, end)[0]
            if start < 0 or len(spans) >= MOST_SPANS:
                break
            if not spans or (start < stop and span != spans[-1]):
                spans.append(span)
            if at == end:
                break
            at = max(at + 1, stop)
        return spans

    def _settle(self, text: Text, ends: Sequence[int], found: Matches) -> None:
        search, reach = self._search, self._reach
        for end in ends:
            line = text.rfind(b"\n", 0, end) + 1
            start, stop = search(text, line, min(end, line + reach))[0]
            if start >= 0:
                found.add(start, stop, end)
            else:
                self.cut |= end > line + reach

    def _each(self, text: Text, start: int, end: int, watch: Watch, found: Matches) -> None:
        at, stride = start, min(_FIRST_STRIDE, self._reach)
        while at < end and len(found.lines) < found.most:
            stop = text.find(b"\n", min(at + stride, end - 1)) + 1
            last = max(at, text.rfind(b"\n", at, stop - 1) + 1)
            before = time.monotonic()
            place, ended = self._search(text, at, min(stop, last + self._reach))[0]
            took = time.monotonic() - before
            self._spent += took
            if took < _QUICK:
                stride = min(stride * 2, _LAST_STRIDE, self._reach)
            watch()
            if not 0 <= place < stop:
                self.cut |= stop - 1 > last + self._reach
                at = stop
                continue
            line = text.find(b"\n", place)
            found.add(place, ended, line)
            at = line + 1

    def _each_line(self, text: Text, start: int, end: int, watch: Watch, found: Matches) -> None:
        while start < end and len(found.lines) < found.most:
            line = text.find(b"\n", start)
            part = text[start : min(line, start + self._reach)]
            place, ended = self._search(part, 0, len(part))[0]
            if place >= 0:
                found.add(start + place, start + ended, line)
            else:
                self.cut |= line > start + self._reach
            watch()
            start = line + 1
