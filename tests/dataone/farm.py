"""A coordinator's rooms and a worker's kind, joined without a link: real HTTP to real nodes, a clock that can jump."""

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from skep.access.tokens import Access
from skep.base.caller import SYSTEM
from skep.config.settings import Settings
from skep.dataone.formats import Formats
from skep.dataone.harvests import Harvests
from skep.dataone.nodes import KIND, Nodes
from skep.dataone.replication import Replication
from skep.dataone.rpc import Bring
from skep.dataone.source_type import DataoneAddresses, DataoneKind
from skep.dataone.store import Store
from skep.dataone.testing import MemberNode
from skep.fleet.members import Fleet
from skep.sources.catalogue import STEPS
from skep.sources.model import Failure, Held
from skep.sources.service import Sources
from skep.sources.source_type import Moved
from skep.storage.blobs import FolderBlobs
from skep.storage.database import Database, Tx
from skep.storage.topic_log import open_rows
from skep.topics.service import CHANGES, Topics

CN = "urn:node:cnTest"


class ShiftedClock:
    def __init__(self) -> None:
        self.ahead = 0.0
        self.chances: Iterator[float] = itertools.repeat(0.5)

    def now(self) -> float:
        return time.time() + self.ahead

    def random(self) -> float:
        return next(self.chances)


async def nothing(body: Any) -> None: ...


class Farm:
    def __init__(self, db: Database, data: Path, queue: tuple[int, int] = (1_000, 4_000), **settings: Any) -> None:
        self.db = db
        self.data = data
        self.clock = ShiftedClock()
        self.settings = Settings(data=str(data), allow_networks=("127.0.0.0/8",), **settings)
        self._queue = queue
        self.asks: Counter[str] = Counter()
        #: called before each ask, and after it was answered
        self.before: Any = nothing
        self.after: Any = nothing
        self.be_born()

    def be_born(self) -> None:
        """The worker begins (again), with nothing but what is on its disk."""
        self.kind = DataoneKind(self.settings, self.data, self.clock)
        self.kind.connect(self._ask)

    async def start(self) -> "Farm":
        self.topics = Topics(self.db, await open_rows("db:", db=self.db), self.clock, 1_000_000)
        fleet = Fleet(self.db, self.clock, token="t", beat_every=5.0)
        self.sources = Sources(self.db, self.clock, fleet, {KIND: DataoneAddresses(self.settings)})
        self.store = Store(self.db, self.clock, FolderBlobs(self.data / "blobs"), self.topics, Formats(), CN)
        self.nodes = Nodes(self.db, self.clock, fleet, self.sources)
        self.replication = Replication(self.db, self.clock, self.store, self.nodes)
        self.harvests = Harvests(
            *(self.db, self.clock, fleet, self.nodes, self.store, self.replication),
            queue=self._queue,
            data_bytes=self.settings.dataone_data,
            full_every=self.settings.dataone_full_every,
        )
        access = Access(self.db, self.clock, self.data, open_read=True)
        for room in (access, self.topics, fleet, self.store):
            await room.start()
        await self.db.migrate("sources", STEPS)
        return self

    async def add(self, node: MemberNode) -> Held:
        added = await self.sources.add(SYSTEM, node.base, kind=KIND)
        held = await self.sources.held(added.source.id)
        assert held is not None
        return held

    async def _ask(self, body: Any) -> Any:
        self.asks[type(body).__name__] += 1
        await self.before(body)
        pack = Path(body.pack) if isinstance(body, Bring) and body.pack else None
        answer = await self.harvests.answer(body, pack)
        await self.after(body)
        return answer

    async def look(self, held: Held, *, asked: bool = True) -> Any:
        return await self.kind.look(held, asked=asked)

    async def visit(self, held: Held, *, asked: bool = True) -> Failure | None:
        """As a worker does it: look, fetch what moved, and go on while there is more."""
        found = await self.look(held, asked=asked)
        for _ in range(100):
            if not isinstance(found, Moved):
                return found if isinstance(found, Failure) else None
            fetched = await self.kind.fetch(held, found, lambda progress: None)
            if isinstance(fetched, Failure):
                return fetched
            if not self.kind.more(held):
                return None
            found = await self.look(held, asked=False)
        raise AssertionError(f"it does not end: {self.asks}, {await self.states(held)}")

    async def accept(self, held: Held, loss: str) -> None:
        """A person agrees with what the node did."""

        async def work(tx: Tx) -> None:
            await tx.rows("UPDATE source SET accepted = :loss WHERE id = :id", loss=loss, id=held.source)

        await self.db.write(work)

    async def pids(self) -> set[str]:
        found = await self.store.listing(None, count=1_000_000)
        return {one.identifier for one in found.object_info}

    async def content(self, pid: str) -> bytes | None:
        one = await self.store.get(pid)
        if one is None or one.blob is None:
            return None
        return b"".join([chunk async for chunk in self.store.content(one)])

    async def verdicts(self, pid: str) -> list[str]:
        return [chapter.verdict for chapter in await self.store.story(pid)]

    async def states(self, held: Held) -> dict[str, int]:
        return (await self.nodes.show(SYSTEM, held.source)).objects

    async def told(self) -> list[bytes]:
        return [one.body for one in await self.topics.read(SYSTEM, CHANGES, 0, 100_000)]

    async def told_well(self) -> bool:
        """Each change once, and those of one object in order."""
        seen: dict[str, list[int]] = {}
        for body in await self.told():
            change = msgspec.json.decode(body)
            seen.setdefault(change["entry"], []).append(change["seq"])
        return all(numbers == list(range(1, len(numbers) + 1)) for numbers in seen.values())

    async def same_as(self, node: MemberNode) -> bool:
        """Everything that the node shows is here, byte for byte, and nothing else."""
        if await self.pids() != set(node.pids):
            return False
        for pid in node.pids:
            one, theirs = await self.store.get(pid), node.meta(pid)
            assert one is not None
            if (one.meta.checksum, one.meta.access_policy, one.meta.obsoleted_by, bool(one.meta.archived)) != (
                theirs.checksum,
                theirs.access_policy,
                theirs.obsoleted_by,
                bool(theirs.archived),
            ):
                return False
            if one.kind != "DATA" and await self.content(pid) != node.body(pid):
                return False
        return True

    async def close(self) -> None:
        await self.kind.close()
