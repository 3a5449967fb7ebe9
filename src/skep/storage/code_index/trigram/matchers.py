"""What finds a term: a pattern, a text, or a text in any case."""

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from mmap import mmap
from threading import Lock
from typing import Any, NamedTuple, Protocol

from skep.base.errors import BadQuery
from skep.storage.code_index.analysis_files import name_number
from skep.storage.code_index.base import compile_term, encode, searcher
from skep.storage.code_index.model import And, Not, Or, Query, Term, positive, terms
from skep.storage.code_index.trigram.query_plan import Plan, plan, prefilter
from skep.storage.code_index.trigram.regex import Cat, Chars, NotUnderstood, Parsed, bits, literal, parse

# Where a term matches: which lines of a text, and where on a line.

#: matches shown on one line
MOST_SPANS = 100
#: matching lines of one document: beyond them it is not read
MOST_LINES = 20_000

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
    #: a line was too long to be matched to its end; who wants to know sets it back
    cut: bool

    def find(self, text: Text, runs: Sequence[Span], watch: Watch, found: Matches) -> None:
        """Add the first matches on the lines of these runs, each of whose lines ends with a newline."""
        ...

    def matches(self, line: bytes) -> bool: ...

    def spans(self, line: bytes) -> list[Span]:
        """The matches on one line; the first may be empty, the others are not."""
        ...


# Hyperscan in front of whatever decides about a line.

hyperscan: Any
try:
    import hyperscan
except ImportError:  # no wheel for this machine: RE2 does it all
    hyperscan = None

#: bytes hyperscan is given at once
_PIECE = 1 << 18


class Scanned:
    """Whatever decides about a line: on much text hyperscan says which are worth looking at."""

    cut = False

    def __init__(self) -> None:
        #: not compiled yet; None: it is, or cannot be
        self._prefilter: bytes | None = None
        self._scanner: Any = None

    def _settle(self, text: Text, ends: Sequence[int], found: Matches) -> None:
        """Of the lines that end there, keep those that match."""
        raise NotImplementedError

    def _compile(self) -> None:
        if self._prefilter is None or hyperscan is None:
            return
        expression, self._prefilter = self._prefilter, None
        scanner = hyperscan.Database()
        try:
            scanner.compile(expressions=[expression], flags=[hyperscan.HS_FLAG_MULTILINE])
        except hyperscan.error:
            return  # beyond what hyperscan takes on
        self._scanner = scanner

    def _scan(self, text: Text, runs: Sequence[Span], watch: Watch, found: Matches) -> None:
        """In pieces, because hyperscan goes to the end of what it is given, wanted or not."""
        at = read = 0
        ends: list[int] = []

        def note(_id: int, _start: int, end: int, _flags: int, _context: object) -> None:
            ends.append(at + end - 1)

        scan = self._scanner.scan
        with memoryview(text) as view:
            for at, stop in _pieces(text, runs):
                scan(view[at:stop], match_event_handler=note)
                if ends:
                    self._settle(text, ends, found)
                    ends.clear()
                    if len(found.lines) >= found.most:
                        return
                read += stop - at
                if read >= _PIECE:
                    read = 0
                    watch()


def _pieces(text: Text, runs: Sequence[Span]) -> Iterator[Span]:
    for start, end in runs:
        at = start
        while end - at > _PIECE:
            stop = text.find(b"\n", at + _PIECE - 1, end) + 1 or end  # a damaged text may lack its last newline
            yield at, stop
            at = stop
        if at < end:
            yield at, end


# Where a regular expression matches, or anything else that RE2 decides.

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


# A query ready to run: each term with its finder.

#: finders kept for the next search that has the same term: compiling takes longer than many a search
_KEPT = 64
#: words of a query whose definitions are looked for
_MOST_NAMES = 8
_WORD = re.compile(r"\w+")


class Shelf:
    """Finders that no search uses now. One at a time may use a finder, so who takes one puts it back."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._idle: OrderedDict[Term, Finder] = OrderedDict()

    def take(self, term: Term) -> Finder:
        with self._lock:
            idle = self._idle.pop(_key(term), None)
        return idle or finder(term)

    def put(self, term: Term, used: Finder) -> None:
        with self._lock:
            self._idle[_key(term)] = used
            if len(self._idle) > _KEPT:
                self._idle.popitem(last=False)


def _key(term: Term) -> Term:
    """Field and column make no difference to what a pattern matches."""
    return Term("any", term.pattern, term.regex, term.case)


class Compiled:
    """Belongs to one search, and so to one thread."""

    def __init__(self, query: Query, shelf: Shelf) -> None:
        self.query = _cheap_first(query)
        self.finders: dict[Term, Finder] = {}
        for term in terms(query):
            if term.field == "source":
                raise BadQuery("a source cannot be asked for inside the index", column=term.column)
            self.finders[term] = shelf.take(term)
        self._shelf = shelf
        wanted = tuple(dict.fromkeys(positive(query)))
        #: whose matching lines are shown
        self.shown = tuple(term for term in wanted if reads_text(term))
        #: a line may match one of them and only a part of the query ask for it that is not true of the file
        self.divided = _is_divided(query)
        #: whose matches in a path are shown
        self.named = tuple(term for term in wanted if term.field in ("any", "path"))
        #: whose place in a path counts: what only narrows where text is looked for says nothing about a file
        self.placed = tuple(term for term in self.named if term.field == "any" or not self.shown)
        #: paths are all that is asked for
        self.by_path = bool(self.placed) and not self.shown
        #: what the best of those paths hold
        self.endings = [ending for term in self.placed if self.by_path and (ending := _ending(term)) is not None]
        #: numbers of the names that are asked for as they are written
        self.names = _names(self.shown)

    def done(self) -> None:
        for term, used in self.finders.items():
            self._shelf.put(term, used)


def _ending(term: Term) -> Plan | None:
    """What a path holds whose name ends with a match, or goes on with an extension; None: who knows."""
    try:
        return plan(Cat((understood(term).node, Chars(bits(".\n")))))
    except NotUnderstood:
        return None


def _names(shown: tuple[Term, ...]) -> list[int]:
    """Of the words, and of what they may be together: `parse args` is parse_args or parseArgs."""
    words = [word for term in shown if not term.regex for word in _WORD.findall(term.pattern)][:_MOST_NAMES]
    joined = ["_".join(words), "".join(words)] if len(words) > 1 else []
    return [name_number(word.encode("utf-8", "surrogateescape")) for word in [*words, *joined]]


def either(query: And | Or, negated: bool) -> bool:
    """Is one of its parts enough?"""
    return isinstance(query, Or) != negated


def _is_divided(query: Query, negated: bool = False, enough: bool = False) -> bool:
    """Does it ask for several things where one is `enough`?"""
    if isinstance(query, Not):
        return _is_divided(query.part, not negated, enough)
    if not isinstance(query, And | Or):
        return False
    one = either(query, negated)
    return (enough and not one) or any(_is_divided(part, negated, one) for part in query.parts)


def _cheap_first(query: Query) -> Query:
    """The same query, asking for paths and sources before it reads text."""
    if isinstance(query, And | Or):
        return type(query)(tuple(sorted(map(_cheap_first, query.parts), key=reads_text)))
    return Not(_cheap_first(query.part)) if isinstance(query, Not) else query


def reads_text(query: Query) -> bool:
    return any(term.field in ("any", "content", "symbol") for term in terms(query))
