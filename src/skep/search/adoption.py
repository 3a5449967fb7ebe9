"""From a told change to a searchable commit: who asks for an index, and what happens when one arrives.

A reader of `skep.changes` puts a request into the space `index` for each source whose default branch moved; a manager
takes it and makes a context of it. When the delta comes it is adopted and the source is marked. At most one request for
a source is waiting, however often it is asked for.
"""

import msgspec

from skep.engines.db.base import Database, Tx
from skep.engines.index.base import Searcher
from skep.model.search import Delta, Fence, Tip
from skep.model.space import Typed
from skep.sources.intake import Intake
from skep.sources.views import default_branch, unindexed
from skep.spaces import store
from skep.topics.service import CHANGES, Topics

READER = "skep.index"
SPACE = "index"


class _Told(msgspec.Struct):
    source: str
    entry: str


class Adoption:
    def __init__(self, db: Database, topics: Topics, intake: Intake, searcher: Searcher) -> None:
        self._db = db
        self._topics = topics
        self._intake = intake
        self._searcher = searcher

    async def request(self, source: str, *, whole: bool = False) -> None:
        """`whole`: everything is built anew, aside, and then swapped in."""
        await self._db.write(lambda tx: request(tx, source, whole=whole))

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
                    await request(tx, source)
            await self._topics.commit(tx, READER, CHANGES, messages[-1].offset + 1)

        await self._db.write(work)
        return True

    async def sweep(self) -> None:
        """At start: ask for whatever is current but not indexed at its newest commit (a damaged or lost shard)."""
        for source in await self._searcher.lost():
            await self._intake.indexed(source, None, 0.0)
        for source in await unindexed(self._db):
            await self.request(source)

    def base(self, number: int) -> tuple[Tip, ...] | None:
        """The tips a new delta should start from."""
        standing = self._searcher.standing(number)
        return standing.tips if standing else None

    async def adopt(self, fence: Fence, delta: Delta | None, now: float) -> bool:
        """False: the delta is stale or lost."""
        if delta is not None and not await self._searcher.adopt(delta, fence):
            return False
        await self._intake.indexed(fence.source, delta.commit if delta else None, now)
        return True


async def request(tx: Tx, source: str, *, whole: bool = False) -> None:
    """Part of the caller's transaction. One that waits already is enough, unless more is wanted than it wants."""
    await store.numbers(tx, SPACE, 0)  # two at once must not both find none
    waiting = await store.remove(tx, SPACE, ("request", source, Typed("bool")))
    await store.put(tx, SPACE, ("request", source, whole or any(bool(one.fields[2]) for one in waiting)))
