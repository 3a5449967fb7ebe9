"""Which documents of one shard a query can be true for, before any text is read."""

from collections.abc import Mapping
from functools import cache
from itertools import accumulate

import numpy as np

from skep.engines.index.base import Standing
from skep.engines.index.trigram.compiled import Compiled, reads_text
from skep.engines.index.trigram.match import Matches, Watch
from skep.engines.index.trigram.postings import Ids, Mask
from skep.engines.index.trigram.shard import Shard
from skep.model.search import And, Language, Not, Or, Query, Term, Within

#: a path term that matches more paths than this is asked of each document when its turn comes
_MOST_PATHS = 200


class Masks:
    def __init__(self, compiled: Compiled, shard: Shard, standings: Mapping[int, Standing], watch: Watch) -> None:
        self._compiled = compiled
        self._shard = shard
        self._standings = standings
        self._watch = watch
        self._known: dict[Term | Within | Language, Mask | None] = {}
        #: whose paths hold the trigrams of a term
        self._paths: dict[Term, Mask | None] = {}

    def true(self, query: Term | Within | Language, documents: Ids) -> Mask:
        """Which of these it is true for; for what is told without reading text."""
        if isinstance(query, Term) and query.field in ("path", "any"):
            possible = self._possible(query)
            places = np.arange(len(documents)) if possible is None else np.flatnonzero(possible[documents])
            true = np.zeros(len(documents), bool)
            if len(places):
                true[places[self._matching(query, documents[places])]] = True
            return true
        mask = self._certain(query)
        assert mask is not None
        return mask[documents]

    def _matching(self, term: Term, documents: Ids) -> Ids:
        """Paths are matched like a text; one that holds newlines, line by line."""
        paths = [self._shard.path(document) + b"\n" for document in documents.tolist()]
        ends = np.fromiter(accumulate(map(len, paths)), np.int64, len(paths))
        text = b"".join(paths)
        found = Matches([], [], [])
        self._compiled.finders[term].find(text, [(0, len(text))], self._watch, found)
        return np.searchsorted(ends, found.starts, side="right")

    def likely(self) -> Mask | None:
        """The documents whose paths promise the best hits; None: no path promises anything."""
        if self._compiled.by_path:
            known = [self._shard.path_postings.mask(ending) for ending in self._compiled.endings]
        else:
            masks = [self._possible(term) for term in self._compiled.placed]
            known = [mask for mask in masks if mask is not None]
        return np.logical_or.reduce(known) if known else None

    def _certain(self, query: Term | Within | Language) -> Mask | None:
        """The documents it is true for; None: too many to say in advance."""
        if query not in self._known:
            self._known[query] = self._mask(query)
        return self._known[query]

    def _mask(self, query: Term | Within | Language) -> Mask | None:
        match query:
            case Within():
                return self._within(query)
            case Language(name):
                return self._language(name)
            case _:
                return self._branch(query) if query.field == "branch" else self._path(query)

    def candidates(self, query: Query) -> Mask | None:
        """The documents the query may be true for; None: any."""
        if isinstance(query, Within | Language):
            return self._certain(query)
        if isinstance(query, Term):
            return self._term(query)
        if isinstance(query, Not):
            if reads_text(query.part):
                return None
            mask = self.candidates(query.part) if self._is_certain(query.part) else None
            return None if mask is None else ~mask
        return self._all(query.parts) if isinstance(query, And) else self._any(query.parts)

    def _is_certain(self, query: Query) -> bool:
        """Is what `candidates` says of it exactly what it is true for?"""
        if isinstance(query, And | Or):
            return all(map(self._is_certain, query.parts))
        return self._is_certain(query.part) if isinstance(query, Not) else self._certain(query) is not None

    def _term(self, term: Term) -> Mask | None:
        if term.field == "branch":
            return self._certain(term)
        if term.field == "path":
            certain = self._certain(term)
            return self._possible(term) if certain is None else certain
        plan = self._compiled.finders[term].plan
        if plan is None:
            return None
        content = self._shard.having(self._shard.content_postings.mask(plan))
        if term.field == "any":
            paths = self._possible(term)
            return None if paths is None else paths | content
        return content

    def _possible(self, term: Term) -> Mask | None:
        """The documents whose path the term may match; None: any."""
        if term not in self._paths:
            plan = self._compiled.finders[term].plan
            self._paths[term] = None if plan is None else self._shard.path_postings.mask(plan)
        return self._paths[term]

    def _all(self, parts: tuple[Query, ...]) -> Mask | None:
        """Paths are matched last, when few are left to be matched."""
        paths = [part for part in parts if isinstance(part, Term) and part.field == "path"]
        narrowed: Mask | None = None
        for part in parts:
            mask = self._possible(part) if part in paths else self.candidates(part)
            if mask is not None:
                narrowed = mask if narrowed is None else narrowed & mask
                if not narrowed.any():
                    break
        for term in paths:
            left = None if narrowed is None else self._narrowed(term, narrowed)
            narrowed = narrowed if left is None else left
        return narrowed

    def _any(self, parts: tuple[Query, ...]) -> Mask | None:
        widened = np.zeros(self._shard.documents, bool)
        for part in parts:
            mask = self.candidates(part)
            if mask is None:
                return None
            widened |= mask
        return widened

    def _within(self, query: Within) -> Mask:
        return np.isin(self._shard.sources, np.fromiter(query.numbers, np.uint32, len(query.numbers)))

    def _language(self, name: str) -> Mask:
        known = self._shard.manifest.languages
        if name not in known:
            return np.zeros(self._shard.documents, bool)
        mask: Mask = self._shard.languages == known.index(name)
        return mask

    def _branch(self, term: Term) -> Mask:
        """By source, because each has branches of its own."""
        matches = cache(self._compiled.finders[term].matches)
        wanted = np.zeros(len(self._shard.numbers), np.uint64)
        for place, number in enumerate(self._shard.manifest.sources):
            tips = self._standings[number].tips if number in self._standings else ()
            wanted[place] = sum(1 << n for n, tip in enumerate(tips) if matches(tip.name.encode()))
        mask: Mask = self._shard.branches & wanted[np.searchsorted(self._shard.numbers, self._shard.sources)] != 0
        return mask

    def _path(self, term: Term) -> Mask | None:
        possible = self._possible(term)
        return None if possible is None else self._narrowed(term, possible)

    def _narrowed(self, term: Term, possible: Mask) -> Mask | None:
        """Without those whose paths do not match; None: there are too many to say."""
        ids: Ids = np.flatnonzero(possible)
        if len(ids) > _MOST_PATHS:
            return None
        mask = np.zeros(self._shard.documents, bool)
        mask[ids[self._matching(term, ids)]] = True
        return mask
