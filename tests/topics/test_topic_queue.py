"""The topic queue of old, on every log."""

import asyncio

import pytest

from skep.base.errors import BadInput, Conflict, NeedsToken, NotAllowed, NotFound, TooLarge
from skep.topics.legacy_queue import Nothing
from tests.topics.room import ANYBODY, LIMIT, READER, WRITER, Room


async def test_an_exchange(room: Room) -> None:
    queue = room.queue
    assert await queue.topics(READER) == []
    await queue.create(WRITER, "signups")
    with pytest.raises(Conflict):
        await queue.create(WRITER, "signups")
    assert await queue.register(WRITER, "producer", "signups") == 0
    assert await queue.register(READER, "consumer", "signups") == 0
    room.clock.time += 1
    assert await queue.register(WRITER, "producer", "logins") == 1, "makes the topic"
    assert await queue.topics(READER) == ["signups", "logins"]
    for word in ("eins", "zwei ✓", ""):
        await queue.produce(WRITER, "signups", 0, word)
    assert await queue.size(READER, "signups", 0) == 3
    assert await queue.register(READER, "consumer", "signups") == 1
    assert [await queue.consume(READER, "signups", 0) for _ in range(3)] == ["eins", "zwei ✓", ""]
    with pytest.raises(Nothing):
        await queue.consume(READER, "signups", 0)
    assert (await queue.size(READER, "signups", 0), await queue.size(READER, "signups", 1)) == (0, 3)
    assert await queue.consume(READER, "signups", 1) == "eins"
    await queue.produce(WRITER, "signups", 0, "vier")
    assert await queue.consume(READER, "signups", 0) == "vier"


async def test_ids_are_two_counters_from_0_whoever_asks_at_once(room: Room) -> None:
    producers = await asyncio.gather(*(room.queue.register(WRITER, "producer", f"t{n % 3}") for n in range(12)))
    consumers = await asyncio.gather(*(room.queue.register(WRITER, "consumer", f"t{n % 3}") for n in range(12)))
    assert sorted(producers) == sorted(consumers) == list(range(12))
    await room.groups.join(READER, "t0", "g")
    assert await room.queue.register(READER, "consumer", "t0") == 12
    assert await room.groups.list(READER, "t0") == ["g"]


async def test_one_id_consumed_at_once_gets_each_message_once(room: Room) -> None:
    queue = room.queue
    await queue.register(WRITER, "producer", "t")
    await queue.register(READER, "consumer", "t")
    for n in range(15):
        await queue.produce(WRITER, "t", 0, str(n))
    got = await asyncio.gather(*(queue.consume(READER, "t", 0) for _ in range(20)), return_exceptions=True)
    assert sorted(int(one) for one in got if isinstance(one, str)) == list(range(15))
    assert [type(one) for one in got if not isinstance(one, str)] == [Nothing] * 5


async def test_consuming_beside_producing_keeps_the_order(room: Room) -> None:
    queue = room.queue
    await queue.register(WRITER, "producer", "t")
    await queue.register(READER, "consumer", "t")

    async def produce() -> None:
        for n in range(30):
            await queue.produce(WRITER, "t", 0, str(n))

    producing = asyncio.create_task(produce())
    got: list[str] = []
    while len(got) < 30:
        try:
            got.append(await queue.consume(READER, "t", 0))
        except Nothing:
            await asyncio.sleep(0)
    await producing
    assert got == [str(n) for n in range(30)]


async def test_a_trimmed_topic_goes_on_at_its_edge(room: Room) -> None:
    await room.queue.register(WRITER, "producer", "t")
    await room.queue.register(READER, "consumer", "t")
    for n in range(6):
        await room.queue.produce(WRITER, "t", 0, str(n))
    assert await room.queue.consume(READER, "t", 0) == "0"
    await room.topics.trim(WRITER, "t", 0, 4)
    assert await room.queue.size(READER, "t", 0) == 2
    assert [await room.queue.consume(READER, "t", 0) for _ in range(2)] == ["4", "5"]


async def test_wrong_ends_are_refused(room: Room) -> None:
    queue = room.queue
    for topic in ("a", "b"):
        await queue.register(WRITER, "producer", topic)
        await queue.register(WRITER, "consumer", topic)
    await room.topics.create(WRITER, "wide", partitions=2)
    assert await queue.topics(READER) == ["a", "b"]
    for call, error in (
        (queue.produce(WRITER, "a", 1, "x"), BadInput),
        (queue.produce(WRITER, "a", 7, "x"), NotFound),
        (queue.produce(WRITER, "a", -1, "x"), NotFound),
        (queue.produce(WRITER, "none", 0, "x"), NotFound),
        (queue.produce(WRITER, "a", 0, "x" * (LIMIT + 1)), TooLarge),
        (queue.produce(READER, "a", 0, "x"), NotAllowed),
        (queue.consume(READER, "a", 1), BadInput),
        (queue.consume(READER, "a", 2), NotFound),
        (queue.consume(READER, "none", 0), NotFound),
        (queue.consume(ANYBODY, "a", 0), NeedsToken),
        (queue.size(READER, "b", 0), BadInput),
        (queue.size(ANYBODY, "a", 0), NeedsToken),
        (queue.register(READER, "producer", "a"), NotAllowed),
        (queue.register(READER, "consumer", "missing"), NotAllowed),
        (queue.register(ANYBODY, "consumer", "a"), NeedsToken),
        (queue.register(WRITER, "consumer", "wide"), BadInput),
    ):
        with pytest.raises(error):
            await call
    assert await queue.size(READER, "a", 0) == 0
    assert await queue.register(WRITER, "producer", "a") == 2, "refusals use no number"
