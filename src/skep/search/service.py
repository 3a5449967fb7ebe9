"""Search over everything mirrored: parse, see what the caller may see, ask the index, say how fresh each hit is."""

import time

from skep.access.audit import note
from skep.clock import Clock
from skep.engines.db.base import Database, Tx
from skep.engines.index.base import Searcher, Standing
from skep.fleet.interest import Interest
from skep.model.answers import Hit, SearchAnswer
from skep.model.caller import Caller
from skep.model.search import FileHit, Limits
from skep.search.adoption import request
from skep.search.catalogue import Catalogue
from skep.search.query import parse
from skep.sources.service import CATALOGUE
from skep.sources.views import Named, Newest, named, newest


class Search:
    def __init__(self, db: Database, clock: Clock, searcher: Searcher, interest: Interest) -> None:
        self._db = db
        self._clock = clock
        self._searcher = searcher
        self._interest = interest
        self._catalogue = Catalogue({})

    async def start(self) -> None:
        self._catalogue = Catalogue(await named(self._db))

    async def follow(self) -> None:
        """Keep the catalogue current, and drop the index of what is no longer in it."""
        async with self._db.listen(CATALOGUE) as bell:
            while True:
                await self.start()
                for source, number in self._searcher.indexed():
                    if number not in self._catalogue.sources:
                        await self._searcher.drop(source, number)
                await bell.wait(60.0)

    async def reindex(self, caller: Caller, source: str) -> None:
        """Build the index of a source anew, aside; until it is swapped in the old one answers."""
        caller.need("write")

        async def work(tx: Tx) -> None:
            await request(tx, source, "whole")
            await note(tx, self._clock.now(), caller, "source.reindex", source)

        await self._db.write(work)

    async def search(self, caller: Caller, text: str, limits: Limits) -> SearchAnswer:
        caller.need("read")
        began = time.monotonic()
        catalogue = self._catalogue
        hits = self._searcher.search(catalogue.resolve(parse(text)), catalogue.visible(caller), limits)
        found = [hit async for hit in hits]
        fresh = await newest(self._db, {hit.source for hit in found})
        answers = [
            _answer(hit, catalogue.sources[hit.source], hits.standing(hit.source), fresh.get(hit.source))
            for hit in found
        ]
        self._interest.note({hit.source for hit in answers})
        lines = sum(len(hit.lines) for hit in answers)
        return SearchAnswer(answers, lines, hits.partial, round(time.monotonic() - began, 6))


def _answer(hit: FileHit, source: Named, standing: Standing, fresh: Newest | None) -> Hit:
    tip = next(tip for n, tip in enumerate(standing.tips) if hit.branches >> n & 1)
    # a later look that found the same commit makes the hit fresher than its own fetch
    same = fresh is not None and fresh.commit == tip.commit
    fetched_at = max(standing.fetched_at, fresh.looked) if fresh and same else standing.fetched_at
    return Hit(
        source.id,
        source.name,
        hit.path,
        tip.name,
        tip.commit,
        fetched_at,
        hit.blob,
        hit.lines,
        hit.more,
    )
