"""Which documents of one shard a query can be true for, before any text is read."""

from collections.abc import Mapping
from itertools import islice

import numpy as np

from skep.engines.index.base import Standing
from skep.engines.index.trigram.candidates import candidates
from skep.engines.index.trigram.compiled import Compiled, reads_text
from skep.engines.index.trigram.match import Watch
from skep.engines.index.trigram.shard import Mask, Shard
from skep.model.search import And, Language, Not, Query, Term, Within

#: a path term that matches more paths than this is asked of each document when its turn comes
_MOST_PATHS = 200


class Masks:
    def __init__(self, compiled: Compiled, shard: Shard, standings: Mapping[int, Standing], watch: Watch) -> None:
        self._compiled = compiled
        self._shard = shard
        self._standings = standings
        self._watch = watch
        self._known: dict[Term | Within | Language, Mask | None] = {}

    def is_true(self, query: Term | Within | Language, document: int) -> bool:
        """For whatever can be told without reading the text."""
        mask = self._certain(query)
        if mask is not None:
            return bool(mask[document])
        assert isinstance(query, Term)
        return any(map(self._compiled.finders[query].matches, self._shard.path(document).split(b"\n")))

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
            mask = self.candidates(query.part)
            return None if mask is None else ~mask
        return self._all(query.parts) if isinstance(query, And) else self._any(query.parts)

    def _term(self, term: Term) -> Mask | None:
        if term.field == "symbol":
            return np.zeros(self._shard.documents, bool)
        if term.field in ("path", "branch"):
            return self._certain(term)
        plan = self._compiled.finders[term].plan
        if plan is None or term.field == "content":
            return None if plan is None else candidates(self._shard, plan)
        paths = self._certain(term)
        return None if paths is None else paths | candidates(self._shard, plan)

    def _all(self, parts: tuple[Query, ...]) -> Mask | None:
        narrowed: Mask | None = None
        for part in parts:
            mask = self.candidates(part)
            if mask is not None:
                narrowed = mask if narrowed is None else narrowed & mask
                if not narrowed.any():
                    break
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
        inside = [number for number in self._shard.manifest.sources if number in query.numbers]
        return np.isin(self._shard.sources, np.array(inside, np.uint32))

    def _language(self, name: str) -> Mask:
        known = self._shard.manifest.languages
        if name not in known:
            return np.zeros(self._shard.documents, bool)
        mask: Mask = self._shard.languages == known.index(name)
        return mask

    def _branch(self, term: Term) -> Mask:
        """By source, because each has branches of its own; most have one."""
        matches = self._compiled.finders[term].matches
        mask = np.zeros(self._shard.documents, bool)
        for number in self._shard.manifest.sources:
            tips = self._standings[number].tips if number in self._standings else ()
            wanted = sum(1 << n for n, tip in enumerate(tips) if matches(tip.name.encode()))
            if wanted:
                mask |= (self._shard.sources == number) & (self._shard.branches & np.uint64(wanted) != 0)
        return mask

    def _path(self, term: Term) -> Mask | None:
        """A path is matched like a text; one that holds newlines, line by line."""
        lines = self._compiled.finders[term].lines(self._shard.paths, self._watch)
        places = [start for start, _ in islice(lines, _MOST_PATHS + 1)]
        if len(places) > _MOST_PATHS:
            return None
        mask = np.zeros(self._shard.documents, bool)
        mask[self._shard.documents_at(places)] = True
        return mask
