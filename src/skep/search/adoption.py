"""From a told change to a searchable commit: who asks for an index, and what happens when one arrives.

A reader of `skep.changes` asks the holder of each changed source for a delta; when the delta comes back it is adopted
and the source is marked. Asking twice is asking once, and a stale delta leads to a new request.
"""

import msgspec

from skep.engines.db.base import Database, Tx
from skep.engines.index.base import Searcher
from skep.fleet.service import Fleet
from skep.model.search import Delta, Fence
from skep.sources.intake import Intake
from skep.sources.views import default_branch, unindexed
from skep.topics.service import CHANGES, Topics

READER = "skep.index"


class _Told(msgspec.Struct):
    source: str
    entry: str


class Adoption:
    def __init__(self, db: Database, fleet: Fleet, topics: Topics, intake: Intake, searcher: Searcher) -> None:
        self._db = db
        self._fleet = fleet
        self._topics = topics
        self._intake = intake
        self._searcher = searcher

    async def request(self, source: str) -> None:
        await self._db.write(lambda tx: self._fleet.ask(tx, "index", source))

    async def follow(self) -> None:
        """Ask for an index whenever a default branch moved."""
        async with self._topics.listen(CHANGES) as bell:
            while True:
                if not await self.step():
                    await bell.wait(30.0)

    async def step(self) -> bool:
        messages = await self._topics.unread(READER, CHANGES, 1000)
        if not messages:
            return False
        told = [msgspec.json.decode(message.body, type=_Told) for message in messages]
        moved: dict[str, set[str]] = {}
        for one in told:
            moved.setdefault(one.source, set()).add(one.entry)

        async def work(tx: Tx) -> None:
            for source, entries in moved.items():
                if "HEAD" in entries or await default_branch(tx, source) in entries:
                    await self._fleet.ask(tx, "index", source)
            await self._topics.commit(tx, READER, CHANGES, messages[-1].offset + 1)

        await self._db.write(work)
        return True

    async def sweep(self) -> None:
        """At start: ask for whatever is current but not indexed at its newest commit (a damaged or lost shard)."""
        for source in await self._searcher.lost():
            await self._intake.indexed(source, None, 0.0)
        for source in await unindexed(self._db):
            await self.request(source)

    def base(self, number: int) -> str | None:
        """The commit a new delta should start from."""
        standing = self._searcher.standing(number)
        return standing.commit if standing else None

    async def adopt(self, source: str, epoch: int, fetched_at: float, delta: Delta | None, now: float) -> bool:
        """False: the delta was stale or lost, and another was asked for."""
        if delta is None:
            await self._intake.indexed(source, None, now)
            return True
        if not await self._searcher.adopt(delta, Fence(source, epoch, fetched_at)):
            await self.request(source)
            return False
        await self._intake.indexed(source, delta.commit, now)
        return True
