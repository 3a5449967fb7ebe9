"""Documents read together. Each ends with a newline and nothing matches across lines: neighbours are one text."""

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

import numpy as np

from skep.engines.index.books import Books
from skep.engines.index.ranking import DEFINITION, PART, PREFIX, SUBSTRING, WORD
from skep.engines.index.trigram.compiled import Compiled
from skep.engines.index.trigram.definitions import Definitions
from skep.engines.index.trigram.masks import Masks
from skep.engines.index.trigram.match import MOST_LINES, Matches, Watch
from skep.engines.index.trigram.postings import Ids
from skep.engines.index.trigram.shard import Shard
from skep.errors import Damaged
from skep.model.search import And, Language, Not, Query, Term, Within

_IS_WORD = np.array([chr(byte).isalnum() or byte == ord("_") or byte > 127 for byte in range(256)])


class Found:
    """The matching lines of a term in all the documents of a reading."""

    def __init__(self, matches: Matches, starts: Ids) -> None:
        self.matches = matches
        #: where the matches of the n-th document begin
        self.cuts: list[int] = [*np.searchsorted(matches.starts, starts).tolist(), len(matches.starts)]

    def documents(self) -> set[int]:
        return {nth for nth, (low, high) in enumerate(pairwise(self.cuts)) if low < high}


class Reading:
    def __init__(
        self, compiled: Compiled, masks: Masks, shard: Shard, books: Books, documents: Ids, watch: Watch
    ) -> None:
        self._compiled = compiled
        self._masks = masks
        self._shard = shard
        self._books = books
        self._watch = watch
        self.documents: list[int] = documents.tolist()
        #: where each begins in the shard's content
        self.starts: Ids = shard.offsets[documents]
        breaks = np.flatnonzero(documents[1:] - documents[:-1] != 1) + 1
        firsts = self.starts[[0, *breaks.tolist()]].tolist()
        lasts = shard.offsets[documents[[*(breaks - 1).tolist(), -1]] + 1].tolist()
        if min(firsts) < 0 or max(lasts) > shard.bytes:
            raise Damaged(f"a document of shard {shard.id} lies outside its content")
        #: where to look: from here to there
        self._runs: list[tuple[int, int]] = list(zip(firsts, lasts, strict=True))
        self._found: dict[Term, Found] = {}
        #: a document has more matching lines than are looked for
        self.is_cut = False

    def true(self, query: Query) -> set[int]:
        """The documents it is true for, by their place in this reading."""
        match query:
            case Within() | Language():
                return self._masks.true(query, self.documents)
            case Term():
                return self._term(query)
            case Not(part):
                return set(range(len(self.documents))) - self.true(part)
            case And(parts):
                left = self.true(parts[0])
                for part in parts[1:]:
                    left = left and left & self.true(part)
                return left
            case _:
                return set().union(*map(self.true, query.parts))

    def _term(self, term: Term) -> set[int]:
        if term.field in ("path", "branch"):
            return self._masks.true(term, self.documents)
        inside = self.found(term).documents()
        return inside | self._masks.true(term, self.documents) if term.field == "any" else inside

    def found(self, term: Term) -> Found:
        if term not in self._found:
            matches = self._symbols(term) if term.field == "symbol" else self._content(term)
            self.is_cut |= len(matches.lines) >= matches.most
            self._found[term] = Found(matches, self.starts)
        return self._found[term]

    def _content(self, term: Term) -> Matches:
        matches = Matches([], [], [], MOST_LINES) if len(self.documents) == 1 else Matches([], [], [])
        find = self._compiled.finders[term].find
        for start, end in self._runs:
            find(self._shard.content, start, end, self._watch, matches)
        return matches

    def _symbols(self, term: Term) -> Matches:
        return self.definitions.find(self._compiled.finders[term], self._watch)

    @cached_property
    def definitions(self) -> Definitions:
        return Definitions(self._books, self._shard, np.array(self.documents))

    def definition(self, nth: int, start: int) -> tuple[int, int, str]:
        """Where its name starts and ends, counted from `start`, and its kind."""
        found = self.definitions
        return int(found.starts[nth]) - start, int(found.ends[nth]) - start, found.kind(nth)

    def kinds(self, term: Term) -> tuple[list[int], list[int]]:
        """How each match lies among the words around it; and the definition whose name it touches, -1 for none."""
        matches = self.found(term).matches
        kinds = self._words(matches)
        if not self._books.books or not matches.starts:
            return kinds.tolist(), [-1] * len(matches.starts)
        touched, covers = self.definitions.touched(matches)
        kinds = np.where(covers, DEFINITION, np.where(touched >= 0, np.maximum(kinds, PART), kinds))
        return kinds.tolist(), touched.tolist()

    def _words(self, matches: Matches) -> Ids:
        text = np.frombuffer(self._shard.content, np.uint8)
        starts, ends = np.array(matches.starts, np.int64), np.array(matches.ends, np.int64)
        begins = ~(_IS_WORD[text[starts - 1]] & _IS_WORD[text[starts]])
        stops = ~(_IS_WORD[text[ends - 1]] & _IS_WORD[text[ends]])
        return np.where(begins, np.where(stops, WORD, PREFIX), SUBSTRING)

    def lines(self, nth: int) -> int:
        """How many lines of the n-th document the shown terms match."""
        every = [self._lines(term, nth) for term in self._compiled.shown]
        return len(every[0]) if len(every) == 1 else len(set().union(*every))

    def _lines(self, term: Term, nth: int) -> list[int]:
        found = self.found(term)
        return found.matches.lines[found.cuts[nth] : found.cuts[nth + 1]]


def readings(shard: Shard, ids: Ids, most: Iterator[int]) -> Iterator[tuple[Ids, int]]:
    """Cut `ids` into what is read at once, one document at least: `most` says how many bytes; and how many it is."""
    ends: Ids = np.cumsum(shard.offsets[ids + 1] - shard.offsets[ids])
    at = done = 0
    while at < len(ids):
        stop = max(at + 1, int(np.searchsorted(ends, done + next(most), side="right")))
        size = int(ends[stop - 1]) - done
        yield ids[at:stop], size
        at, done = stop, done + size
