"""Groups on every log: sharing, eviction, seeking, lag, and what is refused."""

import asyncio

import pytest

from skep.base.errors import BadInput, Conflict, NotFound
from skep.topics.api import Commit, Lease, Post
from tests.topics.room import MEMBER_SECONDS, READER, WRITER, Room


async def filled(room: Room, partitions: int, each: int) -> None:
    await room.topics.create(WRITER, "news", partitions=partitions)
    for partition in range(partitions):
        posts = [Post(b"%d" % n, partition=partition) for n in range(each)]
        await room.topics.publish(WRITER, "news", posts)


async def offsets(room: Room) -> list[int]:
    return [lag.offset for lag in await room.groups.lag(READER, "news", "g")]


async def test_a_new_group_starts_at_the_beginning_unless_it_asks_otherwise(room: Room) -> None:
    await filled(room, 2, 5)
    await room.topics.trim(WRITER, "news", 1, 2)
    membership = await room.groups.join(READER, "news", "g")
    assert membership.leases == [Lease(0, 1, 0), Lease(1, 1, 2)]
    assert membership.member
    late = await room.groups.join(READER, "news", "late", start="end")
    assert [lease.offset for lease in late.leases] == [5, 5]
    placed = await room.groups.join(READER, "news", "placed", start="offset:3")
    assert [lease.offset for lease in placed.leases] == [3, 3]
    assert await room.groups.list(READER, "news") == ["g", "late", "placed"]
    assert [lag.lag for lag in await room.groups.lag(READER, "news", "g")] == [5, 3]


async def test_members_who_join_at_once_share(room: Room) -> None:
    await filled(room, 6, 0)
    names = ["a", "b", "c"]
    leases: dict[str, set[int]] = {}
    for _ in range(4):
        answers = await asyncio.gather(*(room.groups.join(READER, "news", "g", member=name) for name in names))
        for answer in answers:
            back = [
                Commit(lease.partition, lease.generation, 0, True)
                for lease in answer.leases
                if lease.partition in answer.give_back
            ]
            await room.groups.commit(READER, "news", "g", answer.member, back)
            leases[answer.member] = {lease.partition for lease in answer.leases} - set(answer.give_back)
    assert [len(held) for held in leases.values()] == [2, 2, 2]
    assert set.union(*leases.values()) == set(range(6))


async def test_who_does_not_come_back_is_out_and_its_commits_are_refused(room: Room) -> None:
    await filled(room, 1, 5)
    (lease,) = (await room.groups.join(READER, "news", "g", member="slow")).leases
    await room.groups.commit(READER, "news", "g", "slow", [Commit(0, lease.generation, 2)])
    room.passes(MEMBER_SECONDS - 1)
    waiting = await room.groups.join(READER, "news", "g", member="other")
    assert waiting.leases == []
    room.passes(2)
    taken = await room.groups.join(READER, "news", "g", member="other")
    assert taken.leases == [Lease(0, lease.generation + 1, 2)]
    with pytest.raises(Conflict):
        await room.groups.commit(READER, "news", "g", "slow", [Commit(0, lease.generation, 4)])
    with pytest.raises(Conflict):
        await room.groups.commit(READER, "news", "g", "slow", [Commit(0, lease.generation + 1, 4)])
    assert await offsets(room) == [2]


async def test_commits_are_all_or_none_and_never_go_back(room: Room) -> None:
    await filled(room, 2, 5)
    await room.groups.join(READER, "news", "g", member="m")
    with pytest.raises(Conflict):
        await room.groups.commit(READER, "news", "g", "m", [Commit(0, 1, 4), Commit(1, 9, 4)])
    assert await offsets(room) == [0, 0]
    await room.groups.commit(READER, "news", "g", "m", [Commit(0, 1, 4), Commit(1, 1, 3)])
    await room.groups.commit(READER, "news", "g", "m", [Commit(0, 1, 1)])
    assert await offsets(room) == [4, 3]
    for wrong in (Commit(0, 1, 6), Commit(0, 1, -1), Commit(2, 1, 0), Commit(-1, 1, 0)):
        with pytest.raises(BadInput):
            await room.groups.commit(READER, "news", "g", "m", [wrong])


async def test_seeking_moves_the_group_and_ends_the_leases(room: Room) -> None:
    await filled(room, 2, 5)
    (lease, _) = (await room.groups.join(READER, "news", "g", member="m")).leases
    assert [lag.offset for lag in await room.groups.seek(WRITER, "news", "g", "end")] == [5, 5]
    with pytest.raises(Conflict):
        await room.groups.commit(READER, "news", "g", "m", [Commit(0, lease.generation, 1)])
    lags = await room.groups.seek(WRITER, "news", "g", "offset:2", 1)
    assert [lag.offset for lag in lags] == [5, 2]
    assert [lag.lag for lag in await room.groups.seek(WRITER, "news", "g", "time:0")] == [5, 5]
    assert [lag.lag for lag in await room.groups.seek(WRITER, "news", "g", "time:1e12")] == [0, 0]
    again = await room.groups.join(READER, "news", "g", member="m")
    assert [lease.offset for lease in again.leases] == [5, 5]
    for wrong in ("", "middle", "offset:", "offset:-1", "offset:x", "time:", "time:soon"):
        with pytest.raises(BadInput):
            await room.groups.seek(WRITER, "news", "g", wrong)
    with pytest.raises(BadInput):
        await room.groups.seek(WRITER, "news", "g", "end", 2)


async def test_a_leaver_makes_place_at_once(room: Room) -> None:
    await filled(room, 1, 3)
    await room.groups.join(READER, "news", "g", member="a")
    assert (await room.groups.join(READER, "news", "g", member="b")).leases == []
    await room.groups.leave(READER, "news", "g", "a")
    assert (await room.groups.join(READER, "news", "g", member="b")).leases == [Lease(0, 2, 0)]
    await room.groups.leave(READER, "news", "g", "nobody")


BAD_NAMES: list[str] = ["", "a/b", "skep.index", "x" * 10_000, "a\x00"]


async def test_bad_names_of_groups_and_members(rows_room: Room, subtests: pytest.Subtests) -> None:
    await filled(rows_room, 1, 0)
    for name in BAD_NAMES:
        with subtests.test(ascii(name)[:200]):
            with pytest.raises(BadInput):
                await rows_room.groups.join(READER, "news", name)
            with pytest.raises((BadInput, NotFound)):
                await rows_room.groups.lag(READER, "news", name)
            if name not in ("", "skep.index"):
                with pytest.raises(BadInput):
                    await rows_room.groups.join(READER, "news", "g", member=name)
            assert await rows_room.groups.list(READER, "news") == []
