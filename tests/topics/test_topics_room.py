"""Making, finding, publishing and reading topics, on every log."""

import asyncio
from collections import Counter

import pytest

from skep.base.caller import SYSTEM
from skep.base.errors import BadInput, Conflict, NeedsToken, NotAllowed, NotFound, SkepError, TooLarge
from skep.topics.api import Part, Post, Posted, Standing
from tests.topics.room import ANYBODY, LIMIT, READER, WRITER, Room

BAD_NAMES = [
    "",
    "a/b",
    "/",
    "..",
    ".a",
    "-a",
    "a b",
    "a\n",
    "a\x00b",
    "\x1b[2J",
    "é",
    "n" * 201,
    "x" * 10_000,
    "\ud800",
]


async def stored(room: Room, name: str) -> int:
    topic = await room.topics.find(name)
    bounds = [await room.log.bounds(Part(name, n)) for n in range(topic.partitions)]
    return sum(end for _, end in bounds)


def posts(*bodies: bytes, key: str = "", partition: int | None = None) -> list[Post]:
    return [Post(body, key, partition=partition) for body in bodies]


async def test_topics_are_made_listed_and_changed(room: Room) -> None:
    made = await room.topics.create(WRITER, "news", partitions=3, retain_seconds=60.0)
    assert (made.name, made.owner, made.partitions, made.retain_seconds, made.retain_bytes) == (
        "news",
        "user",
        3,
        60,
        None,
    )
    await room.topics.create(WRITER, "n" * 200)
    with pytest.raises(Conflict, match="exists already"):
        await room.topics.create(WRITER, "news")
    changed = await room.topics.update(WRITER, "news", retain_seconds=None, retain_bytes=10)
    assert (changed.retain_seconds, changed.retain_bytes, changed.partitions) == (None, 10, 3)
    assert await room.topics.find("news") == changed
    topic, standing = await room.topics.show(READER, "news")
    assert topic == changed
    assert standing == [Standing(n, 0, 0, 0) for n in range(3)]


async def test_the_list_goes_on_from_page_to_page(room: Room) -> None:
    for n in range(5):
        await room.topics.create(WRITER, f"t{n}")
    names, page = [], ""
    while True:
        found = await room.topics.list(READER, page=page, limit=3)
        names += [topic.name for topic in found.items]
        page = found.next_page
        if not page:
            break
    own = ["skep.changes", "skep.failures", "skep.indexed", "skep.searches", "skep.steps", "skep.tasks", "skep.workers"]
    assert names == [*own, "t0", "t1", "t2", "t3", "t4"]


async def test_bad_names_are_refused_everywhere(rows_room: Room, subtests: pytest.Subtests) -> None:
    for name in BAD_NAMES:
        with subtests.test(ascii(name)[:200]):
            before = await rows_room.db.read("SELECT name FROM topic")
            calls = [
                rows_room.topics.create(WRITER, name),
                rows_room.topics.publish(WRITER, name, posts(b"x")),
                rows_room.topics.read(READER, name, 0, 1),
                rows_room.topics.find(name),
                rows_room.queue.create(WRITER, name),
                rows_room.queue.register(WRITER, "producer", name),
                rows_room.groups.join(READER, name, "g"),
            ]
            for call in calls:
                with pytest.raises(BadInput) as refused:
                    await call
                assert len(refused.value.message) < 400
            assert await rows_room.db.read("SELECT name FROM topic") == before


async def test_what_is_not_there_is_not_found(room: Room) -> None:
    for call in (
        room.topics.publish(WRITER, "none", posts(b"x")),
        room.topics.read(READER, "none", 0, 1),
        room.topics.trim(WRITER, "none", 0, 1),
        room.topics.show(READER, "none"),
        room.topics.update(WRITER, "none", retain_seconds=1.0, retain_bytes=None),
        room.groups.join(READER, "none", "g"),
        room.queue.produce(WRITER, "none", 0, "x"),
    ):
        with pytest.raises(NotFound):
            await call


@pytest.mark.parametrize(
    "wrong", [{"partitions": 0}, {"partitions": -1}, {"partitions": 1025}, {"retain_seconds": 0.0}]
)
async def test_bounds_of_a_topic(rows_room: Room, wrong: dict[str, int]) -> None:
    with pytest.raises(BadInput):
        await rows_room.topics.create(WRITER, "news", **wrong)
    with pytest.raises(NotFound):
        await rows_room.topics.find("news")


async def test_who_may_what(room: Room) -> None:
    await room.topics.create(WRITER, "news")
    for who, error in ((READER, NotAllowed), (ANYBODY, NeedsToken)):
        for call in (
            room.topics.create(who, "more"),
            room.topics.publish(who, "news", posts(b"x")),
            room.topics.trim(who, "news", 0, 1),
            room.topics.update(who, "news", retain_seconds=None, retain_bytes=None),
            room.groups.seek(who, "news", "g", "end"),
        ):
            with pytest.raises(error):
                await call
    with pytest.raises(NeedsToken):
        await room.topics.read(ANYBODY, "news", 0, 1)
    assert await stored(room, "news") == 0


async def test_skeps_own_topics_are_not_for_users(room: Room) -> None:
    for call in (
        room.topics.create(SYSTEM, "skep.mine"),
        room.topics.publish(SYSTEM, "skep.changes", posts(b"x")),
        room.topics.read(WRITER, "skep.changes", 0, 1),
        room.topics.trim(WRITER, "skep.changes", 0, 1),
        room.topics.update(WRITER, "skep.changes", retain_seconds=1.0, retain_bytes=None),
        room.groups.join(WRITER, "skep.changes", "g"),
        room.queue.register(WRITER, "producer", "skep.changes"),
        room.queue.register(WRITER, "consumer", "skep.changes"),
    ):
        with pytest.raises(NotAllowed):
            await call
    assert await room.topics.read(SYSTEM, "skep.changes", 0, 1) == []


async def test_a_key_stays_in_its_partition_and_the_rest_take_turns(room: Room) -> None:
    await room.topics.create(WRITER, "news", partitions=4)
    homes: dict[str, set[int]] = {}
    for n in range(40):
        (posted,) = await room.topics.publish(WRITER, "news", posts(b"x", key=f"k{n % 8}"))
        homes.setdefault(f"k{n % 8}", set()).add(posted.partition)
    assert all(len(partitions) == 1 for partitions in homes.values())
    assert len(set.union(*homes.values())) > 1
    (given,) = await room.topics.publish(WRITER, "news", posts(b"x", key="k1", partition=2))
    assert given.partition == 2
    turns = [(await room.topics.publish(WRITER, "news", posts(b"x")))[0].partition for _ in range(40)]
    assert set(Counter(turns).values()) == {10}
    together = await room.topics.publish(WRITER, "news", posts(b"1", b"2", b"3"))
    assert len({posted.partition for posted in together}) == 1
    offsets = [posted.offset for posted in together]
    assert offsets == list(range(offsets[0], offsets[0] + 3))


async def test_a_batch_over_several_partitions_answers_in_its_own_order(room: Room) -> None:
    await room.topics.create(WRITER, "news", partitions=3)
    batch = [Post(str(n).encode(), partition=n % 3, headers={"n": str(n)}) for n in range(9)]
    posted = await room.topics.publish(WRITER, "news", batch)
    assert posted == [Posted(n % 3, n // 3) for n in range(9)]
    for partition in range(3):
        found = await room.topics.read(READER, "news", 0, 10, partition=partition)
        assert [(m.offset, m.body, m.headers) for m in found] == [
            (n, str(3 * n + partition).encode(), {"n": str(3 * n + partition)}) for n in range(3)
        ]
    assert await room.topics.publish(WRITER, "news", []) == []


async def test_a_bad_message_takes_its_batch_along(room: Room) -> None:
    await room.topics.create(WRITER, "news", partitions=2)
    for bad, error in (
        (Post(b"x" * (LIMIT + 1)), TooLarge),
        (Post(b"x", partition=2), BadInput),
        (Post(b"x", partition=-1), BadInput),
    ):
        with pytest.raises(error):
            await room.topics.publish(WRITER, "news", [*posts(b"fine", partition=0), bad, *posts(b"fine", partition=1)])
    assert await stored(room, "news") == 0
    await room.topics.publish(WRITER, "news", posts(b"x" * LIMIT))
    assert await stored(room, "news") == 1


@pytest.mark.parametrize("bad", [Post(b"x", key="\ud800"), Post(b"x", headers={"h": "\udfff"})])
async def test_half_characters_are_refused_or_kept_but_never_half_stored(room: Room, bad: Post) -> None:
    await room.topics.create(WRITER, "news")
    with pytest.raises(SkepError) as refused:
        await room.topics.publish(WRITER, "news", [Post(b"fine"), bad])
    assert refused.value.status == 400
    assert await stored(room, "news") == 0
    assert await room.topics.publish(WRITER, "news", posts(b"next")) == [Posted(0, 0)]


async def test_a_repeated_publish_is_stored_once(room: Room) -> None:
    await room.topics.create(WRITER, "news", partitions=4)
    batch = [Post(b"1"), Post(b"2", "key"), Post(b"3")]
    first = await room.topics.publish(WRITER, "news", batch, producer="p", sequence=0)
    for _ in range(5):
        assert await room.topics.publish(WRITER, "news", batch, producer="p", sequence=0) == first
        await room.topics.publish(WRITER, "news", posts(b"other"))  # moves the turn on
    assert await stored(room, "news") == 3 + 5
    again = await room.topics.publish(WRITER, "news", batch, producer="q", sequence=0)
    later = await room.topics.publish(WRITER, "news", batch, producer="p", sequence=3)
    assert len({(posted.partition, posted.offset) for posted in (*first, *again, *later)}) == 9


async def test_repeats_at_the_same_time_are_stored_once(room: Room) -> None:
    await room.topics.create(WRITER, "news")
    publish = room.topics.publish
    answers = await asyncio.gather(
        *(publish(WRITER, "news", posts(b"x"), producer="p", sequence=n % 10) for n in range(50))
    )
    assert await stored(room, "news") == 10
    assert all(answers[n] == answers[n % 10] for n in range(50))


async def test_reading_waits_until_something_is_there(room: Room) -> None:
    await room.topics.create(WRITER, "news", partitions=2)
    assert await room.topics.read(READER, "news", 0, 10) == []
    reading = [
        asyncio.create_task(room.topics.read(READER, "news", 0, 10, partition=1, wait=60.0)),
        asyncio.create_task(room.topics.read(READER, "news", 1, 10, partition=1, wait=60.0)),
    ]
    await room.topics.publish(WRITER, "news", posts(b"elsewhere", partition=0))
    await room.topics.publish(WRITER, "news", posts(b"a", partition=1))
    async with asyncio.timeout(30):
        assert [message.body for message in await reading[0]] == [b"a"]
    assert not reading[1].done()
    await room.topics.publish(WRITER, "news", posts(b"b", partition=1))
    async with asyncio.timeout(30):
        assert [message.body for message in await reading[1]] == [b"b"]
    assert await room.topics.read(READER, "news", 2, 10, partition=1, wait=0.01) == []


async def test_wrong_places_are_told(room: Room) -> None:
    await room.topics.create(WRITER, "news")
    await room.topics.publish(WRITER, "news", posts(b"a"))
    for call in (
        room.topics.read(READER, "news", -1, 1),
        room.topics.read(READER, "news", 0, 1, partition=1),
        room.topics.read(READER, "news", 0, 1, partition=-1),
        room.topics.trim(WRITER, "news", 1, 1),
    ):
        with pytest.raises(BadInput):
            await call
    assert await room.topics.read(READER, "news", 2**62, 10) == []
    assert await room.topics.read(READER, "news", 0, 0) == []


async def test_a_reader_below_the_trimmed_edge_sees_where_it_is(room: Room) -> None:
    await room.topics.create(WRITER, "news")
    await room.topics.publish(WRITER, "news", posts(*(b"%d" % n for n in range(10))))
    standing = await room.topics.trim(WRITER, "news", 0, 4)
    assert (standing.first, standing.next) == (4, 10)
    assert [message.offset for message in await room.topics.read(READER, "news", 0, 2)] == [4, 5]
    assert (await room.topics.trim(WRITER, "news", 0, 2)).first == 4
    assert (await room.topics.trim(WRITER, "news", 0, 99)).first == 10
    assert (await room.topics.show(READER, "news"))[1] == [Standing(0, 10, 10, 0)]
    assert await room.topics.publish(WRITER, "news", posts(b"on")) == [Posted(0, 10)]
