"""From a told change to a searchable commit: who asks for an index, and what happens when one arrives.

A reader of `skep.changes` puts a request into the space `index` for each source of which an indexed branch moved; a
manager takes it and makes a context of it. When the delta comes it is adopted and the source is marked. At most one
request for a source is waiting, however often it is asked for.
"""

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from skep.base.clock import Clock
from skep.base.globs import compile_globs
from skep.sources.catalogue import default_branch, unindexed, unverified
from skep.sources.model import Held
from skep.sources.report_handler import Intake
from skep.sources.service import Sources
from skep.spaces import batch
from skep.spaces.api import Typed
from skep.storage.code_index.base import Searcher, Watcher
from skep.storage.code_index.model import WAYS, BookInfo, Delta, Fence, Stands, Tip, Way
from skep.storage.database import Database, Tx
from skep.topics.service import CHANGES, Topics

READER = "skep.index"
SPACE = "index"
#: seconds until it is looked again whether shards were found damaged
_LOST_SECONDS = 2.0
#: indexes that are asked to be verified at a time
_AT_ONCE = 100


class _Told(msgspec.Struct):
    source: str
    entry: str


class Adoption:
    def __init__(
        self,
        db: Database,
        topics: Topics,
        intake: Intake,
        searcher: Searcher,
        sources: Sources,
        branches: Sequence[str] = (),
        watcher: Watcher | None = None,
    ) -> None:
        """`branches`: patterns of those that are indexed besides the default branch, where a source says nothing."""
        self._db = db
        self._topics = topics
        self._intake = intake
        self._searcher = searcher
        self._sources = sources
        self._branches = tuple(branches)
        self._watcher = watcher
        #: source -> when it was last asked to be verified
        self._asked: dict[str, float] = {}
        #: one after the other: each knows what stood there before
        self._adopting = asyncio.Lock()

    async def request(self, source: str, way: Way = "changed") -> None:
        await self._db.write(lambda tx: request(tx, source, way))

    async def follow(self) -> None:
        """Ask for an index whenever an indexed branch moved."""
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

        said = await self._sources.settings_with_labels(list(moved))

        async def work(tx: Tx) -> None:
            for source, entries in moved.items():
                patterns = said[source].branches if source in said else None
                also = _indexed(self._branches if patterns is None else patterns, entries)
                if also or "HEAD" in entries or await default_branch(tx, source) in entries:
                    await request(tx, source)
            await self._topics.commit(tx, READER, CHANGES, messages[-1].offset + 1)

        await self._db.write(work)
        return True

    async def sweep(self) -> None:
        """Ask for whatever is not indexed at its newest commit at start, and then for what damaged shards have lost."""
        asked_before = await self._db.write(requested)
        for source in set(await unindexed(self._db)) - asked_before:
            await self.request(source)
        asked: set[str] = set()
        while True:
            lost = set(await self._searcher.lost())
            for source in sorted(lost - asked):
                await self._intake.indexed(source, (), 0.0)
                await self.request(source)
            asked = lost
            await asyncio.sleep(_LOST_SECONDS)

    async def verify(self, every: float, clock: Clock) -> None:
        """Have each index compared with its mirror once in `every` seconds, a few at a time."""
        while True:
            now = clock.now()
            for source in await unverified(self._db, now - every, _AT_ONCE):
                if self._asked.get(source, 0.0) < now - every / 4:
                    self._asked[source] = now
                    await self.request(source, "verify")
            self._asked = {source: at for source, at in self._asked.items() if at > now - every / 4}
            await asyncio.sleep(min(60.0, every / 10))

    def stands(self, held: Held) -> Stands:
        """What a new delta of a source should start from."""
        standing = self._searcher.standing(held.number)
        return Stands(held.epoch, standing.tips, standing.rules) if standing else Stands(held.epoch, None)

    async def is_so(self, held: Held, tips: tuple[Tip, ...], digest: str) -> bool:
        """Does the index hold what the mirror holds? True as well when it has moved on meanwhile."""
        found = await self._searcher.digest(held.number)
        standing = self._searcher.standing(held.number)
        return standing is None or standing.tips != tips or found == digest

    async def annotate(self, book: BookInfo | None, known: Sequence[str]) -> bool:
        """Takes in the book, if there is one. False: it was lost, or these blobs are in no book."""
        if book is not None and not await self._searcher.annotate(book):
            return False
        return not known or self._searcher.annotated(known)

    async def adopt(self, fence: Fence, delta: Delta | None, now: float) -> bool:
        """False: the delta is stale or lost. What was built whole is adopted whatever stands there, and may have been
        begun before something newer that was published meanwhile: then what has changed since is asked for again."""
        async with self._adopting:
            before = self._searcher.standing(delta.number) if delta else None
            if delta is not None and not await self._searcher.adopt(delta, fence, self._watcher):
                return False
            await self._intake.indexed(fence.source, delta.tips if delta else (), now)
        if delta is not None and delta.base is None and before is not None and before.tips != delta.tips:
            await self.request(fence.source)
        return True


def _indexed(patterns: Sequence[str], entries: Iterable[str]) -> bool:
    """Is one of these refs a branch or tag that matches?"""
    names = [entry.split("/", 2)[2] for entry in entries if entry.startswith(("refs/heads/", "refs/tags/"))]
    if not patterns or not names:
        return False
    wanted = compile_globs(patterns, "branches")
    return any(wanted.fullmatch(name) for name in names)


async def request(tx: Tx, source: str, way: Way = "changed") -> None:
    """Part of the caller's transaction. One that waits already is enough, unless more is wanted than it wants."""
    await batch.numbers(tx, SPACE, 0)  # two at once must not both find none
    waiting = await batch.remove(tx, SPACE, ("request", source, Typed("str")))
    wanted = {way, *(str(one.fields[2]) for one in waiting)}
    await batch.put(tx, SPACE, ("request", source, max(wanted, key=WAYS.index)))


async def requested(tx: Tx) -> set[str]:
    """Sources of which an index is asked for, or being built."""
    requests = (one.fields for one in await batch.everything(tx, SPACE))
    return {str(fields[1]) for fields in requests if fields[0] == "request" and len(fields) == 3}
