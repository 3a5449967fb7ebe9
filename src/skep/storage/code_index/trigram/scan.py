"""Documents read together. Each ends with a newline and nothing matches across lines: neighbours are one text."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from skep.base.lazy import lazy_property
from skep.storage.code_index.analysis_files import Books, rows_of
from skep.storage.code_index.base import Gains, Standing, encode
from skep.storage.code_index.model import And, Language, Not, Or, Query, Term, Within
from skep.storage.code_index.ranking import (
    MOST_NEAR,
    NEAR_BITS,
    OTHER_CASE,
    PREFIX,
    SUBSTRING,
    WORD,
    Facts,
    path_place,
    score,
)
from skep.storage.code_index.trigram.candidates import Definitions, Masks
from skep.storage.code_index.trigram.matchers import MOST_LINES, Compiled, Matches, Span, Watch, either
from skep.storage.code_index.trigram.shard import Ids, Mask, Shard

# Terms that follow each other on a line: what is written like the query, and best of all defined so.

#: what a match is worth to its line: its kind in so many low bits, above them a Near: the row that it ends
KIND_BITS = 4
#: more than all matches on a line can be worth together
WORTH = 1 << 24


class Lying(NamedTuple):
    """How the first matches of a term on its lines lie; arrays of the same length."""

    starts: Ids
    ends: Ids
    kinds: Ids
    #: the definition whose name is touched; -1: none
    touched: Ids


class _Row(NamedTuple):
    """Of each match, the row that ends with it: how many follow another, in one name, from where on."""

    term: Lying
    #: where the lines end
    lines: Ids
    row: Ids
    name: Ids
    first: Ids


def worths(terms: Sequence[Lying], lines: Sequence[Ids], definitions: Definitions) -> list[Ids]:
    """Of each term, what its matches are worth; `lines`: where their lines end."""
    made: list[Ids] = []
    before: _Row | None = None
    for term, ends in zip(terms, lines, strict=True):
        none = np.zeros(len(ends), np.int64)
        row = _Row(term, ends, none, none.copy(), term.starts.copy())
        if before is not None and len(before.lines) and len(ends):
            _join(before, row)
        whole = np.where(definitions.named(term.touched, row.first, term.ends), row.name, 0)
        near = (whole << NEAR_BITS | row.name) << NEAR_BITS | row.row
        made.append(near << KIND_BITS | term.kinds)
        before = row
    return made


def _join(before: _Row, row: _Row) -> None:
    place = np.minimum(np.searchsorted(before.lines, row.lines), len(before.lines) - 1)
    gap = row.term.starts - before.term.ends[place]
    mine = np.flatnonzero((before.lines[place] == row.lines) & (gap >= 0) & (gap <= 1))
    theirs = place[mine]
    row.row[mine] = np.minimum(before.row[theirs] + 1, MOST_NEAR)
    touched = row.term.touched[mine]
    same = (before.term.touched[theirs] == touched) & (touched >= 0)
    mine, theirs = mine[same], theirs[same]
    row.name[mine] = np.minimum(before.name[theirs] + 1, MOST_NEAR)
    row.first[mine] = before.first[theirs]


_IS_WORD = np.array([chr(byte).isalnum() or byte == ord("_") or byte > 127 for byte in range(256)])
_ALL = slice(None)
_NONE: Ids = np.zeros(0, np.int64)


class Found(NamedTuple):
    """The first match of a term on each of its lines: where it starts and ends, and where the lines end."""

    starts: Ids
    ends: Ids
    lines: Ids


class Reading:
    def __init__(
        self, compiled: Compiled, masks: Masks, shard: Shard, books: Books, documents: Ids, watch: Watch
    ) -> None:
        self._compiled = compiled
        self._masks = masks
        self._books = books
        self._watch = watch
        self._shard = shard
        self.documents = documents
        #: where each begins in the shard's content, and where it ends
        self.starts, self.ends = shard.spans(documents)
        self._distinct = shard.distinct(documents)
        self._found: dict[Term, Found] = {}
        self._true: dict[Term, Mask] = {}
        #: a document has more matching lines than are looked for, or a line too long to be matched whole
        self.is_cut = False

    def true(self, query: Query) -> Mask:
        """Which of the documents it is true for."""
        match query:
            case Within() | Language():
                return self._masks.true(query, self.documents)
            case Term():
                if query not in self._true:
                    self._true[query] = self._term(query)
                return self._true[query]
            case Not(part):
                return ~self.true(part)
            case And(parts):
                left = self.true(parts[0])
                for part in parts[1:]:
                    if not left.any():
                        break
                    left = left & self.true(part)
                return left
            case _:
                return np.asarray(np.logical_or.reduce([self.true(part) for part in query.parts]))

    def _term(self, term: Term) -> Mask:
        if term.field in ("path", "branch"):
            return self._masks.true(term, self.documents)
        lows, highs = self.cuts(self.found(term).lines)
        inside: Mask = lows < highs
        return inside | self._masks.true(term, self.documents) if term.field == "any" else inside

    def cuts(self, lines: Ids, nths: Ids | slice = _ALL) -> tuple[Ids, Ids]:
        """Of lines that end there, which are those of the n-th documents: from, to."""
        return lines.searchsorted(self.starts[nths]), lines.searchsorted(self.ends[nths])

    def found(self, term: Term) -> Found:
        if term not in self._found:
            matches = self._symbols(term) if term.field == "symbol" else self._content(term)
            self.is_cut |= len(matches.lines) >= matches.most
            self._found[term] = Found(*(np.array(places, np.int64) for places in matches[:3]))
        return self._found[term]

    def _content(self, term: Term) -> Matches:
        matches = Matches([], [], [], MOST_LINES) if len(self.documents) == 1 else Matches([], [], [])
        finder = self._compiled.finders[term]
        finder.cut = False
        finder.find(self._shard.content, self._runs, self._watch, matches)
        self.is_cut |= finder.cut
        return matches

    def _symbols(self, term: Term) -> Matches:
        return self.definitions.find(self._compiled.finders[term], self._watch)

    @lazy_property
    def _runs(self) -> list[Span]:
        return self._shard.runs(self._distinct)

    @lazy_property
    def definitions(self) -> Definitions:
        return Definitions(self._books, self._shard, self._distinct)

    def lying(self, term: Term) -> Lying:
        """How each match lies among the words around it, and in the names of definitions."""
        starts, ends, _ = self.found(term)
        kinds, touched = self._words(starts, ends), np.full(len(starts), -1)
        if self._books.books and len(starts):
            touched, kinds = self.definitions.touched(starts, ends, kinds)
        if not term.regex and not term.case:
            text, written = self._shard.content, encode(term)
            others = [text[at:end] != written for at, end in zip(starts.tolist(), ends.tolist(), strict=True)]
            kinds -= OTHER_CASE * np.array(others, np.int64)
        return Lying(starts, ends, kinds, touched)

    def _words(self, starts: Ids, ends: Ids) -> Ids:
        text = np.frombuffer(self._shard.content, np.uint8)
        begins = ~(_IS_WORD[text[starts - 1]] & _IS_WORD[text[starts]])
        stops = ~(_IS_WORD[text[ends - 1]] & _IS_WORD[text[ends]])
        return np.where(begins, np.where(stops, WORD, PREFIX), SUBSTRING)

    @lazy_property
    def shown(self) -> list[Found]:
        """Of the terms whose lines are shown."""
        return [self.found(term) for term in self._compiled.shown]

    def shown_cuts(self, nths: Ids) -> list[tuple[Ids, Ids]]:
        """Of each of them, which lines are those of the n-th documents: from, to. None of where only parts of the query
        ask for it that are not true."""
        cuts = [self.cuts(found.lines, nths) for found in self.shown]
        if not self._compiled.divided:
            return cuts
        asked = {term: np.zeros(len(self.documents), bool) for term in self._compiled.shown}
        self._ask(self._compiled.query, np.ones(len(self.documents), bool), asked)
        return [
            (lows, np.where(asked[term][nths], highs, lows))
            for term, (lows, highs) in zip(self._compiled.shown, cuts, strict=True)
        ]

    def _ask(self, query: Query, where: Mask, asked: dict[Term, Mask], negated: bool = False) -> None:
        if isinstance(query, Term):
            if not negated and query in asked:
                asked[query] |= where
        elif isinstance(query, Not):
            self._ask(query.part, where, asked, not negated)
        elif isinstance(query, And | Or):
            for part in query.parts:
                is_open = either(query, negated) and not isinstance(part, Term)
                here = where & (self.true(part) != negated) if is_open else where
                self._ask(part, here, asked, negated)

    def count(self, nths: Ids) -> int:
        """The lines of these documents that are shown."""
        cuts = self.shown_cuts(nths)
        if len(cuts) == 1:
            return int((cuts[0][1] - cuts[0][0]).sum())
        every = [
            np.repeat(nths, highs - lows) * self._shard.bytes + found.lines[rows_of(lows, highs - lows)]
            for found, (lows, highs) in zip(self.shown, cuts, strict=True)
        ]
        return len(np.unique(np.concatenate([_NONE, *every])))


def readings(shard: Shard, ids: Ids, least: Iterator[int]) -> Iterator[tuple[Ids, int]]:
    """Cut `ids` into what is read at once: `least` says how many bytes, if there are so many; and how many it is."""
    starts, stops = shard.spans(ids)
    ends: Ids = np.cumsum(stops - starts)
    at = done = 0
    while at < len(ids):
        stop = min(len(ids), int(ends.searchsorted(done + next(least))) + 1)
        size = int(ends[stop - 1]) - done
        yield ids[at:stop], size
        at, done = stop, done + size


# What a reading found of each file, small enough to keep hundreds of them: only what is shown is cut out later.

#: a definition: where its name starts and ends in the file, and its kind
Symbol = tuple[int, int, str]
_NO_SYMBOL = (0, 0, "")


class Sifted(NamedTuple):
    """The matches of a term in a reading; lists of the same length."""

    #: where the lines end
    lines: list[int]
    kinds: list[int]
    #: to their lines
    worth: list[int]
    #: the definition whose name is touched; -1: none
    touched: list[int]


#: matches of a term: from, to
Cut = tuple[Sifted, int, int]


class Light:
    """A file that matches, and which of its lines do."""

    __slots__ = ("_cuts", "_definitions", "_start", "document", "facts", "score", "shard")

    def __init__(
        self, shard: Shard, document: int, start: int, cuts: Sequence[Cut], definitions: Definitions | None
    ) -> None:
        self.shard = shard
        self.document = document
        self.facts = Facts(())
        self.score = 0.0
        #: where it starts in the content, what matches in it, and where names are defined
        self._start, self._cuts, self._definitions = start, cuts, definitions

    def order(self, standings: Mapping[int, Standing]) -> tuple[float, float, int, int, bytes]:
        """Of files as good as each other those of the source that changed last come first: of forks, the living one. Of
        one source, those of the default branch."""
        shard, document = self.shard, self.document
        source, branches = int(shard.sources[document]), int(shard.branches[document])
        return -self.score, -standings[source].fetched_at, source, branches & -branches, shard.path(document)

    def points(self) -> dict[int, int]:
        """By where a line ends: what the matches on it are worth, and WORTH for each term among them."""
        points: dict[int, int] = {}
        for sifted, low, high in self._cuts:
            for line, worth in zip(sifted.lines[low:high], sifted.worth[low:high], strict=True):
                points[line] = points.get(line, 0) + WORTH + worth
        return points

    def best_lines(self, most: int) -> list[tuple[int, Symbol]]:
        """Where the lines to show end in the file, in their order, and what is defined on them."""
        symbols = self._symbols()
        if len(self._cuts) == 1 and self.facts.lines <= most:  # nearly all
            ((sifted, low, high),) = self._cuts
            ends = sifted.lines[low:high]
        else:
            points = self.points()
            ends = sorted(points)
            if len(ends) > most:
                ends = sorted(sorted(ends, key=lambda end: -points[end])[:most])
        return [(end - self._start, symbols.get(end, _NO_SYMBOL)) for end in ends]

    def _symbols(self) -> dict[int, Symbol]:
        if self._definitions is None:
            return {}
        touched = {
            sifted.lines[nth]: self._definitions.at(definition)
            for sifted, low, high in self._cuts
            for nth, definition in enumerate(sifted.touched[low:high], low)
            if definition >= 0
        }
        return {end: (at - self._start, stop - self._start, kind) for end, (at, stop, kind) in touched.items()}


class Sieve:
    """Makes Lights out of readings of one shard."""

    def __init__(self, compiled: Compiled, masks: Masks, shard: Shard, gains: Gains | None) -> None:
        self._compiled = compiled
        self._gains = gains
        self._shard = shard
        self.likely: Mask | None = masks.likely()

    def lights(self, reading: Reading, nths: Ids) -> list[Light]:
        """Of these documents of the reading."""
        sifted = self._sift(reading)
        definitions = reading.definitions if any(max(one.touched, default=-1) >= 0 for one in sifted) else None
        cuts = [zip(lows.tolist(), highs.tolist(), strict=True) for lows, highs in reading.shown_cuts(nths)]
        documents = reading.documents[nths]
        traits = self._shard.traits[documents].tolist()
        lights: list[Light] = []
        for nth, document in enumerate(documents.tolist()):
            mine = [(one, *next(cut)) for one, cut in zip(sifted, cuts, strict=True)]
            light = Light(self._shard, document, int(reading.starts[nths[nth]]), mine, definitions)
            light.facts = self._facts(light, mine, traits[nth])
            light.score = score(light.facts)
            lights.append(light)
        return lights

    def _sift(self, reading: Reading) -> list[Sifted]:
        lying = [reading.lying(term) for term in self._compiled.shown]
        worth = [one.kinds for one in lying]
        if len(lying) > 1:
            worth = worths(lying, [found.lines for found in reading.shown], reading.definitions)
        columns = zip(reading.shown, lying, worth, strict=True)
        return [
            Sifted(found.lines.tolist(), one.kinds.tolist(), here.tolist(), one.touched.tolist())
            for found, one, here in columns
        ]

    def _facts(self, light: Light, cuts: Sequence[Cut], traits: int) -> Facts:
        best = tuple([max(sifted.kinds[low:high], default=0) for sifted, low, high in cuts])
        together, near, lines = 1, 0, cuts[0][2] - cuts[0][1] if cuts else 0
        if len(cuts) > 1:
            points = light.points()
            together, lines = max(points.values(), default=0) // WORTH, len(points)
            near = max([max(sifted.worth[low:high], default=0) for sifted, low, high in cuts]) >> KIND_BITS
        gain = 0 if self._gains is None else int(self._gains[self._shard.sources[light.document]])
        return Facts(best, self._path(light.document), together, near, lines, traits, gain)

    def _path(self, document: int) -> int:
        """The best place that a term matches in its path."""
        if not self._compiled.by_path and (self.likely is None or not self.likely[document]):
            return 0
        path = self._shard.path(document)
        spans = [span for term in self._compiled.placed for span in self._compiled.finders[term].spans(path)]
        return max((path_place(path, *span) for span in spans), default=0)
