"""Documents read together. Each ends with a newline and nothing matches across lines: neighbours are one text."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from skep.engines.index.books import Books, rows_of
from skep.engines.index.dialect import encode
from skep.engines.index.ranking import OTHER_CASE, PREFIX, SUBSTRING, WORD
from skep.engines.index.trigram.compiled import Compiled, either
from skep.engines.index.trigram.definitions import Definitions
from skep.engines.index.trigram.masks import Masks
from skep.engines.index.trigram.match import MOST_LINES, Matches, Span, Watch
from skep.engines.index.trigram.postings import Ids, Mask
from skep.engines.index.trigram.rows import Lying
from skep.engines.index.trigram.shard import Shard
from skep.lazy import lazy_property
from skep.model.search import And, Language, Not, Or, Query, Term, Within

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
