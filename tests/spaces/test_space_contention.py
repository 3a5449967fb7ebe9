"""Many getters and putters over the link, some of which die in the middle: each tuple is finished exactly once."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from skep.base.caller import SYSTEM
from skep.base.clock import SystemClock
from skep.base.errors import Conflict
from skep.config.settings import Settings
from skep.processes.build import Rooms, open_rooms
from skep.rpc.client import Peer
from skep.rpc.server import LinkServer
from skep.spaces.api import Acknowledge, Get, Got, Placed, Put, Typed
from tests.support.postgres import fresh_database

TOKEN = "c" * 64
TUPLES = 240
JOB = ("job", Typed("int"))


class Crowd:
    """What happened to each tuple, as those who took them saw it."""

    def __init__(self, target: str, rooms: Rooms) -> None:
        self.target = target
        self.rooms = rooms
        self.random = random.Random(7)
        self.finished: Counter[object] = Counter()
        #: the answer to their acknowledgement never came
        self.unsure: set[object] = set()
        self.put_all = False

    def peer(self, name: str) -> Peer:
        return Peer(self.target, TOKEN, ("manager",), SystemClock(), member=name)

    async def over(self) -> bool:
        return self.put_all and (await self.rooms.core.spaces.show(SYSTEM, "jobs")).size == 0

    async def put(self, name: str, numbers: range) -> None:
        async with self.peer(name).running() as peer:
            answers = await asyncio.gather(*(peer.ask(Put("jobs", ("job", n), f"{n}")) for n in numbers))
            assert all(isinstance(answer, Placed) for answer in answers)

    async def get(self, name: str) -> None:
        """Dies again and again, with three tuples in hand or asked for."""
        while not await self.over():
            async with self.peer(name).running() as peer:
                getters = [asyncio.create_task(self._getter(peer)) for _ in range(3)]
                await asyncio.wait(getters, return_when=asyncio.FIRST_COMPLETED)
            # its stream is gone without a word; now nobody awaits an answer any more
            for getter in getters:
                getter.cancel()
            await asyncio.gather(*getters, return_exceptions=True)

    async def _getter(self, peer: Peer) -> None:
        for n in range(self.random.randint(1, 8)):
            got = await peer.ask(Get("jobs", JOB, f"{peer.boot}-{id(asyncio.current_task())}-{n}", wait=0.5, lease=600))
            if not isinstance(got, Got):
                return
            if self.random.random() < 0.2:
                return
            job = got.taken.fields[1]
            self.unsure.add(job)
            try:
                await peer.ask(Acknowledge("jobs", got.taken.seq, got.taken.ticket))
            except Conflict:
                # it was released when an earlier stream of this process ended, and somebody else has it now
                return
            self.unsure.discard(job)
            self.finished[job] += 1


@asynccontextmanager
async def crowd_on(database: str, tmp_path: Path) -> AsyncIterator[Crowd]:
    data = tmp_path / "data"
    data.mkdir(parents=True)
    settings = Settings(data=str(data), database=database)
    async with open_rooms(settings, SystemClock(), TOKEN) as rooms:
        link = LinkServer(rooms.desk, beat_every=1.0)
        target = await link.start(f"unix:{tmp_path / 'link.sock'}")
        yield Crowd(target, rooms)
        await link.stop()


async def contend(crowd: Crowd) -> None:
    getters = [asyncio.create_task(crowd.get(f"get_{n}")) for n in range(6)]
    step = TUPLES // 3
    await asyncio.gather(*(crowd.put(f"put_{n}", range(n * step, (n + 1) * step)) for n in range(3)))
    crowd.put_all = True
    async with asyncio.timeout(120):
        await asyncio.gather(*getters)
    assert set(crowd.finished.values()) == {1}
    assert set(crowd.finished) | crowd.unsure == set(range(TUPLES))


async def test_contention_on_sqlite(tmp_path: Path) -> None:
    async with crowd_on("sqlite:", tmp_path) as crowd:
        await contend(crowd)


async def test_contention_on_postgres(postgres_url: str, tmp_path: Path) -> None:
    async with fresh_database(postgres_url) as url, crowd_on(url, tmp_path) as crowd:
        await contend(crowd)


async def test_waiting_getters_of_two_servers_share_one_space(postgres_url: str, tmp_path: Path) -> None:
    """No wake-up is lost between processes on one database: two sets of rooms stand for them."""
    async with (
        fresh_database(postgres_url) as url,
        crowd_on(url, tmp_path / "a") as one,
        crowd_on(url, tmp_path / "b") as other,
    ):
        await contend_across(one, other)


async def contend_across(one: Crowd, other: Crowd) -> None:
    taken: list[object] = []

    async def get(crowd: Crowd) -> None:
        spaces = crowd.rooms.core.spaces
        while found := await spaces.get(SYSTEM, "jobs", JOB, wait=30):
            await spaces.acknowledge(SYSTEM, "jobs", found.seq, found.ticket)
            taken.append(found.fields[1])
            if found.fields[1] == -1:
                return

    getters = [asyncio.create_task(get(crowd)) for crowd in (one, other) for _ in range(4)]
    for n in range(60):
        await (one, other)[n % 2].rooms.core.spaces.put(SYSTEM, "jobs", ("job", n))
    for _ in getters:
        await one.rooms.core.spaces.put(SYSTEM, "jobs", ("job", -1))
    async with asyncio.timeout(60):
        await asyncio.gather(*getters)
    assert sorted(taken) == sorted([*range(60), *[-1] * len(getters)])  # type: ignore[type-var]
