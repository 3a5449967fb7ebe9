"""Silence that nobody could have heard: it costs no member its partitions, and who is gone is out all the same."""

import asyncio
import signal
import threading

import pytest

from skep.base.caller import Caller
from skep.base.errors import Unavailable
from skep.storage.database import Tx
from skep.topics.api import Commit, Lease, Place
from skep.topics.groups import Groups
from tests.support.nats import NatsServer
from tests.topics.room import LISTENS, MEMBER_SECONDS, READER, WRITER, Room

LONG = 10 * MEMBER_SECONDS


async def leases(room: Room, member: str) -> list[Lease]:
    return (await room.groups.join(READER, "news", "g", member=member)).leases


async def shared(room: Room) -> dict[str, list[Lease]]:
    """Two partitions, one for each of `a` and `b`."""
    await room.topics.create(WRITER, "news", partitions=2)
    await leases(room, "a")
    await leases(room, "b")
    await room.groups.commit(READER, "news", "g", "a", [Commit(1, 1, 0, True)])
    held = {"a": [Lease(0, 1, 0)], "b": [Lease(1, 2, 0)]}
    assert {member: await leases(room, member) for member in "ba"} == dict(held)
    return held


def restarted(room: Room) -> None:
    room.groups = Groups(room.topics, MEMBER_SECONDS)


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_server_that_stood_still_or_was_away_robs_nobody(rows_room: Room, restarts: bool) -> None:
    held = await shared(rows_room)
    rows_room.clock.time += LONG
    if restarts:
        restarted(rows_room)
    # whoever comes first, and however
    await rows_room.groups.commit(READER, "news", "g", "b", [Commit(1, 2, 0)])
    assert await leases(rows_room, "b") == held["b"]
    rows_room.passes(MEMBER_SECONDS - 1)
    assert await leases(rows_room, "b") == held["b"]
    assert await leases(rows_room, "a") == held["a"]


@pytest.mark.parametrize("restarts", [False, True])
async def test_who_does_not_come_back_after_a_standstill_is_out(rows_room: Room, restarts: bool) -> None:
    await shared(rows_room)
    rows_room.clock.time += LONG
    if restarts:
        restarted(rows_room)
    await leases(rows_room, "b")
    rows_room.passes(MEMBER_SECONDS + 1)
    assert [lease.partition for lease in await leases(rows_room, "b")] == [0, 1]


async def test_restarts_again_and_again_keep_nobody_who_is_gone(rows_room: Room) -> None:
    await shared(rows_room)
    for _ in range(8):
        await leases(rows_room, "b")
        rows_room.passes(MEMBER_SECONDS / 6)
        await leases(rows_room, "b")
        rows_room.clock.time += LONG
        restarted(rows_room)
    assert [lease.partition for lease in await leases(rows_room, "b")] == [0, 1]


async def test_who_was_out_before_a_standstill_stays_out(rows_room: Room) -> None:
    await shared(rows_room)
    rows_room.passes(MEMBER_SECONDS + 1)
    await rows_room.groups.commit(READER, "news", "g", "b", [Commit(1, 2, 0)])
    rows_room.clock.time += LONG
    assert [lease.partition for lease in await leases(rows_room, "b")] == [0, 1]


async def test_what_another_server_heard_meanwhile_counts(rows_room: Room) -> None:
    await shared(rows_room)
    slept = rows_room.groups
    restarted(rows_room)
    for _ in range(4):
        rows_room.passes(MEMBER_SECONDS / 3)
        await leases(rows_room, "b")
    rows_room.groups = slept
    assert [lease.partition for lease in await leases(rows_room, "b")] == [0, 1]
    assert await leases(rows_room, "a") == []


@pytest.mark.parametrize("room", ["sqlite"], indirect=True)
async def test_a_database_that_stood_still_is_not_the_members_silence(room: Room) -> None:
    held = await shared(room)
    begun, go_on = threading.Event(), threading.Event()

    async def stall(_: Tx) -> None:
        begun.set()
        go_on.wait()  # in the thread of the database

    stalling = asyncio.create_task(room.db.write(stall))
    await asyncio.to_thread(begun.wait)
    waiting = asyncio.create_task(leases(room, "b"))
    await asyncio.sleep(0)
    room.passes(LONG)
    go_on.set()
    await stalling
    assert await waiting == held["b"]
    assert await leases(room, "a") == held["a"]


@pytest.mark.parametrize("room", ["nats"], indirect=True)
async def test_a_log_that_was_away_is_not_the_members_silence(room: Room, nats_server: NatsServer) -> None:
    held = await shared(room)
    await asyncio.to_thread(nats_server.stop, signal.SIGTERM)
    room.passes(LONG)
    room.log._link.patience = 1.0  # type: ignore[attr-defined]
    with pytest.raises(Unavailable):
        await leases(room, "b")
    room.log._link.patience = 30.0  # type: ignore[attr-defined]
    await asyncio.to_thread(nats_server.start)
    assert await leases(room, "b") == held["b"]
    assert await leases(room, "a") == held["a"]


async def test_a_group_that_is_never_heard_keeps_nobody_in_another(
    rows_room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shared(rows_room)
    await rows_room.topics.create(WRITER, "broken")
    places = rows_room.topics.places

    async def without(caller: Caller, topic: str, start: str) -> list[Place]:
        if topic == "broken":
            raise Unavailable("its log is away")
        return await places(caller, topic, start)

    monkeypatch.setattr(rows_room.topics, "places", without)
    for _ in range(11):
        rows_room.passes(LISTENS)
        with pytest.raises(Unavailable):
            await rows_room.groups.join(READER, "broken", "g", member="c")
        held = await leases(rows_room, "b")
    assert [lease.partition for lease in held] == [0, 1]
