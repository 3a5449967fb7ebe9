"""What Skep tells where the log is not its database: committed first, then carried over, in order."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from skep.base.errors import SkepError
from skep.processes.engines import find
from skep.storage.database import Tx
from skep.storage.jetstream import open_jetstream
from skep.topics import service
from skep.topics.api import Draft, Message, Part
from skep.topics.service import CHANGES, TASKS
from tests.support.nats import NatsServer
from tests.topics.room import Room, room_on


@pytest.fixture
async def far(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Room]:
    async with AsyncExitStack() as stack:
        db = await find("db", "sqlite:")("sqlite:", data=tmp_path, durability="full")
        stack.push_async_callback(db.close)
        log = await open_jetstream(nats_server.url, db=db, patience=30.0)
        stack.push_async_callback(log.close)
        yield await room_on(db, log, tmp_path)
    await nats_server.empty()


async def tell(room: Room, name: str, *ids: int) -> None:
    async def work(tx: Tx) -> None:
        drafts = [Draft(b"%d" % n, f"id{n}", "key", {"n": str(n)}) for n in ids]
        await room.topics.tell(tx, name, drafts, room.clock.now())

    await room.db.write(work)


async def arrived(room: Room, name: str, count: int) -> list[Message]:
    """Once so many are there."""
    async with asyncio.timeout(60), room.log.listen(Part(name)) as bell:
        while True:
            try:
                if len(found := await room.log.read(Part(name), 0, 10_000)) >= count:
                    return found
            except SkepError:
                pass  # the server is away
            await bell.wait(0.2)


async def left(room: Room) -> int:
    return len(await room.db.read("SELECT n FROM relay"))


async def test_what_is_told_arrives_in_order(far: Room) -> None:
    carrying = asyncio.create_task(service.carry(far.db, far.log))
    try:
        for n in range(0, 40, 2):
            await tell(far, CHANGES, n, n + 1)
            await tell(far, TASKS, n)
        found = await arrived(far, CHANGES, 40)
        assert [message.id for message in found] == [f"id{n}" for n in range(40)]
        assert (found[7].body, found[7].key, found[7].headers) == (b"7", "key", {"n": "7"})
        assert [message.id for message in await arrived(far, TASKS, 20)] == [f"id{n}" for n in range(0, 40, 2)]
    finally:
        await ended(carrying)


async def ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_transaction_that_fails_tells_nothing(far: Room) -> None:
    async def work(tx: Tx) -> None:
        await far.topics.tell(tx, CHANGES, [Draft(b"never", "n")], 0.0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await far.db.write(work)
    assert await left(far) == 0
    await tell(far, CHANGES, 1)
    assert await service.step(far.db, far.log) == 1
    assert [message.id for message in await arrived(far, CHANGES, 1)] == ["id1"]


async def test_it_goes_on_when_the_server_is_back(far: Room, nats_server: NatsServer) -> None:
    await tell(far, CHANGES, 0)
    await service.step(far.db, far.log)
    await asyncio.to_thread(nats_server.stop, signal.SIGTERM)
    far.log._link.patience = 1.0  # type: ignore[attr-defined]
    carrying = asyncio.create_task(service.carry(far.db, far.log, pause=0.1))
    try:
        for n in range(1, 10):
            await tell(far, CHANGES, n)
        with pytest.raises(SkepError):
            await service.step(far.db, far.log)
        assert await left(far) == 9
        await asyncio.to_thread(nats_server.start)
        found = await arrived(far, CHANGES, 10)
        assert [message.id for message in found] == [f"id{n}" for n in range(10)]
    finally:
        await ended(carrying)


async def test_a_repeat_after_a_kill_has_the_same_id_and_is_stored_once(far: Room) -> None:
    await tell(far, CHANGES, 1, 2, 3)
    rows = await far.db.read("SELECT * FROM relay ORDER BY n")
    drafts = [Draft(row["body"], row["id"], row["mkey"]) for row in rows]
    await far.log.append(Part(CHANGES), drafts)  # killed here: carried, not yet crossed out
    assert await service.step(far.db, far.log) == 3
    assert await left(far) == 0
    assert [message.id for message in await far.log.read(Part(CHANGES), 0, 10)] == ["id1", "id2", "id3"]
    await tell(far, CHANGES, 4)
    await service.step(far.db, far.log)
    assert (await far.log.read(Part(CHANGES), 3, 10))[0].id == "id4"
