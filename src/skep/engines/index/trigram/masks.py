"""Which documents of one shard a query can be true for, before any text is read."""

from itertools import islice

import numpy as np

from skep.engines.index.trigram.candidates import candidates
from skep.engines.index.trigram.compiled import Compiled
from skep.engines.index.trigram.match import Watch
from skep.engines.index.trigram.shard import Mask, Shard
from skep.model.search import And, Not, Query, Term, Within, terms

#: a path term that matches more paths than this is asked of each document when its turn comes
_MOST_PATHS = 200


class Masks:
    def __init__(self, compiled: Compiled, shard: Shard, watch: Watch) -> None:
        self._compiled = compiled
        self._shard = shard
        self._watch = watch
        self._known: dict[Term | Within, Mask | None] = {}

    def is_true(self, query: Term | Within, document: int) -> bool:
        """For a path term or a set of sources."""
        mask = self._certain(query)
        if mask is not None:
            return bool(mask[document])
        assert isinstance(query, Term)
        return any(map(self._compiled.finders[query].matches, self._shard.path(document).split(b"\n")))

    def _certain(self, query: Term | Within) -> Mask | None:
        """The documents it is true for; None: too many to say in advance."""
        if query not in self._known:
            self._known[query] = self._within(query) if isinstance(query, Within) else self._path(query)
        return self._known[query]

    def candidates(self, query: Query) -> Mask | None:
        """The documents the query may be true for; None: any."""
        if isinstance(query, Within):
            return self._certain(query)
        if isinstance(query, Term):
            if query.field == "path":
                return self._certain(query)
            plan = self._compiled.finders[query].plan
            return None if plan is None else candidates(self._shard, plan)
        if isinstance(query, Not):
            if any(term.field == "content" for term in terms(query.part)):
                return None
            mask = self.candidates(query.part)
            return None if mask is None else ~mask
        return self._all(query.parts) if isinstance(query, And) else self._any(query.parts)

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

    def _path(self, term: Term) -> Mask | None:
        """A path is matched like a text; one that holds newlines, line by line."""
        lines = self._compiled.finders[term].lines(self._shard.paths, self._watch)
        places = [start for start, _ in islice(lines, _MOST_PATHS + 1)]
        if len(places) > _MOST_PATHS:
            return None
        mask = np.zeros(self._shard.documents, bool)
        mask[self._shard.documents_at(places)] = True
        return mask
