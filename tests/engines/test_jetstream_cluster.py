"""Three servers of NATS that keep the same streams, and one of them dies, while messages arrive."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import nats.errors
import pytest

from skep.base.errors import Unavailable
from skep.processes.engines import find
from skep.storage.topic_log import Log
from skep.topics.api import Draft, Message, Part
from tests.support.nats import NatsServer, nats_cluster

PART = Part("news")
STREAM = "skep_0_news"
PRODUCERS = 3


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, NatsServer]]:
    with nats_cluster(tmp_path_factory.mktemp("hive")) as servers:
        yield servers


@pytest.fixture
async def log(servers: dict[str, NatsServer]) -> AsyncIterator[Log]:
    url = f"nats://{','.join(one.address for one in servers.values())}?replicas=3"
    log: Log | None = None
    while log is None:
        with suppress(Unavailable):  # until they have chosen who leads
            log = await find("log", url)(url, db=None, patience=2.0)
    try:
        yield log
    finally:
        await log.close()


class Producer:
    """One message after the other, each with its id until it is acknowledged."""

    def __init__(self, log: Log, name: str) -> None:
        self._log = log
        self._name = name
        #: id -> the offset that was acknowledged
        self.stored: dict[str, int] = {}
        self.refused = 0

    async def run(self) -> None:
        while True:
            id = f"{self._name}-{len(self.stored)}"
            (offset,) = await self.append(Draft(id.encode(), id=id))
            self.stored[id] = offset

    async def append(self, draft: Draft) -> list[int]:
        while True:
            try:
                return await self._log.append(PART, [draft])
            except Unavailable:
                self.refused += 1

    async def more(self, count: int = 20) -> None:
        wanted = len(self.stored) + count
        while len(self.stored) < wanted:
            await asyncio.sleep(0.01)


async def leader(server: NatsServer) -> str:
    """Who stores what comes, and has the others store it."""
    while True:
        with suppress(KeyError, TimeoutError, nats.errors.Error):  # they are choosing another
            return str((await server.call(f"STREAM.INFO.{STREAM}"))["cluster"]["leader"])
        await asyncio.sleep(0.01)


async def test_one_of_three_dies_and_nothing_is_lost(servers: dict[str, NatsServer], log: Log) -> None:
    first = Producer(log, "first")
    await first.append(Draft(b"the stream is there"))
    producers = [Producer(log, f"p{n}") for n in range(PRODUCERS)]
    tasks = [asyncio.create_task(one.run()) for one in producers]
    try:
        await asyncio.gather(*(one.more() for one in producers))
        dead = await leader(servers["n0"])
        await asyncio.to_thread(servers[dead].stop, signal.SIGKILL)
        await asyncio.gather(*(one.more() for one in producers))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await check(log, producers)


async def read(log: Log, offset: int) -> list[Message]:
    """Those who are left may still be choosing who leads."""
    while True:
        with suppress(Unavailable):
            return await log.read(PART, offset, 500)


async def check(log: Log, producers: list[Producer]) -> None:
    messages: list[Message] = []
    while page := await read(log, len(messages)):
        messages += page
    assert [one.offset for one in messages] == list(range(len(messages)))
    ids = [one.id for one in messages if one.id]
    assert len(set(ids)) == len(ids)
    assert all(one.body == one.id.encode() for one in messages if one.id)
    for producer in producers:
        assert all(messages[offset].id == id for id, offset in producer.stored.items())
        assert list(producer.stored.values()) == sorted(producer.stored.values())
