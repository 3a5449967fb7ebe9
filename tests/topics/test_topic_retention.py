"""Seeking by time, and dropping what need not be kept."""

import asyncio
from itertools import count as counted

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.storage.database import Tx
from skep.storage.topic_log import TxLog
from skep.topics.api import Draft, Part, Post
from skep.topics.outbox import sweep
from skep.topics.service import offset_at
from tests.topics.room import READER, WRITER, Room

times = st.floats(0, 1000)
count = counted()


async def put(room: Room, part: Part, at: float, *bodies: bytes) -> None:
    log = room.log
    assert isinstance(log, TxLog)

    async def work(tx: Tx) -> None:
        await log.append_in(tx, part, [Draft(body) for body in bodies], at)

    await room.db.write(work)


@settings(max_examples=25)
@given(st.lists(times, max_size=20), st.lists(times, min_size=1, max_size=5), st.integers(0, 20))
def test_a_time_is_found_even_when_clocks_step_back(
    memory_room: tuple[asyncio.Runner, Room], given_times: list[float], asked: list[float], trim: int
) -> None:
    runner, room = memory_room

    async def work() -> None:
        part = Part(f"t{next(count)}")
        for at in given_times:
            await put(room, part, at, b"x")
        await room.log.trim(part, trim)
        messages = await room.log.read(part, 0, 100)
        kept = [message.at for message in messages]
        assert kept == sorted(kept)
        first, end = await room.log.bounds(part)
        for at in [*asked, *given_times]:
            expected = next((message.offset for message in messages if message.at >= at), end)
            assert await offset_at(room.topics.log, part, at) == max(first, expected)

    runner.run(work())


async def test_old_messages_go_when_they_are_asked_to(rows_room: Room) -> None:
    room = rows_room
    now = room.clock.now()
    for name, seconds in (("kept", None), ("short", 100.0)):
        await room.topics.create(WRITER, name, partitions=2, retain_seconds=seconds)
        for age in (300, 200, 101, 100, 50, 0):
            await put(room, Part(name, 1), now - age, b"x")
    await sweep(room.topics)
    assert await room.log.bounds(Part("short", 1)) == (3, 6)
    assert await room.log.bounds(Part("short", 0)) == (0, 0)
    assert await room.log.bounds(Part("kept", 1)) == (0, 6)
    room.clock.time += 75
    await sweep(room.topics)
    assert await room.log.bounds(Part("short", 1)) == (5, 6)
    room.clock.time += 1000
    await sweep(room.topics)
    assert await room.log.bounds(Part("short", 1)) == (6, 6)
    await room.topics.publish(WRITER, "short", [Post(b"on", partition=1)])
    assert (await room.topics.read(READER, "short", 0, 9, partition=1))[0].offset == 6


@settings(max_examples=25)
@given(st.lists(st.integers(0, 300), max_size=12), st.integers(1, 1500))
def test_a_partition_keeps_as_much_as_it_may_and_no_more(
    memory_room: tuple[asyncio.Runner, Room], sizes: list[int], keep: int
) -> None:
    runner, room = memory_room

    async def work() -> None:
        name = f"b{next(count)}"
        await room.topics.create(WRITER, name, retain_bytes=keep)
        await put(room, Part(name), 0.0, *(b"x" * size for size in sizes))
        assert await room.log.size(Part(name)) == sum(sizes)
        await sweep(room.topics)
        first, end = await room.log.bounds(Part(name))
        assert end == len(sizes)
        left = sum(sizes[first:])
        assert left == await room.log.size(Part(name)) <= keep
        assert first == 0 or left + sizes[first - 1] > keep, "more went than had to"

    runner.run(work())


async def test_sizes_on_jetstream_count_more_than_bodies(room: Room) -> None:
    """Whatever an engine counts beside the bodies, about as much stays as was asked for."""
    await room.topics.create(WRITER, "news")
    await room.topics.publish(WRITER, "news", [Post(b"%03d" % n) for n in range(200)])
    full = await room.log.size(Part("news"))
    await room.topics.update(WRITER, "news", retain_seconds=None, retain_bytes=full // 2)
    await sweep(room.topics)
    first, end = await room.log.bounds(Part("news"))
    assert end == 200
    assert 95 <= first <= 105
    assert await room.log.size(Part("news")) <= full // 2


@pytest.mark.parametrize("what", [{"retain_seconds": 1e9}, {"retain_bytes": 10**9}])
async def test_nothing_goes_before_its_time(rows_room: Room, what: dict[str, int]) -> None:
    await rows_room.topics.create(WRITER, "news", **what)
    await rows_room.topics.publish(WRITER, "news", [Post(b"x")] * 10)
    await sweep(rows_room.topics)
    assert await rows_room.log.bounds(Part("news")) == (0, 10)
