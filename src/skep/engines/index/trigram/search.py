"""Answers a query on a snapshot, shard by shard, document by document. Runs in a thread."""

from collections.abc import Iterator, Mapping

import numpy as np

from skep.engines.index.base import Standing, Visible
from skep.engines.index.trigram.compiled import Compiled
from skep.engines.index.trigram.masks import Masks
from skep.engines.index.trigram.match import Watch
from skep.engines.index.trigram.reading import Reading
from skep.engines.index.trigram.shard import Mask
from skep.engines.index.trigram.snapshot import Part, Snapshot
from skep.model.search import Counted, FileHit, Limits, Query


class Search:
    def __init__(self, query: Query, limits: Limits, watch: Watch) -> None:
        self._compiled = Compiled(query)
        self._limits = limits
        self._watch = watch
        self._left = limits.lines
        #: a limit ended it before every candidate was read
        self.partial = False
        self._files = self._lines = 0

    @property
    def counted(self) -> Counted:
        return Counted(self._files, self._lines, not self.partial)

    def run(self, snapshot: Snapshot, visible: Visible) -> Iterator[FileHit]:
        """Hits by shard, then in the order of the documents. Whatever `watch` raises ends it."""
        allowed = snapshot.allowed(visible)
        for part in snapshot.parts:
            if allowed[part.shard.manifest.sources].any():
                yield from self._run_part(part, allowed, snapshot.standings)

    def _run_part(self, part: Part, allowed: Mask, standings: Mapping[int, Standing]) -> Iterator[FileHit]:
        self._watch()
        shard = part.shard
        masks = Masks(self._compiled, shard, standings, self._watch)
        mask = masks.candidates(self._compiled.query)
        ids = np.flatnonzero(~part.dead if mask is None else mask & ~part.dead)
        for document in ids[allowed[shard.sources[ids]]].tolist():
            if self._left <= 0 or 0 < self._limits.files <= self._files:
                self.partial = True
                return
            self._watch()
            most = min(self._left, self._limits.lines_per_file)
            hit = Reading(self._compiled, masks, shard, document, most, self._watch).hit()
            if hit is not None:
                self._files += 1
                self._lines += len(hit.lines)
                self._left -= max(1, len(hit.lines))
                self.partial |= hit.more
                yield hit
