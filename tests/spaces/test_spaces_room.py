"""What spaces promise, on each database."""

import asyncio
import contextlib
from typing import Any

import pytest

from skep.base.caller import SYSTEM, Caller
from skep.base.errors import BadInput, Conflict, NeedsToken, NotAllowed, NotFound
from skep.spaces import batch
from skep.spaces.api import Fields, Taken, template_of
from skep.spaces.service import Spaces
from skep.storage.database import Database, Tx
from tests.rooms.house import MovedClock

ME = Caller("me", frozenset({"read", "write"}))
READER = Caller("reader", frozenset({"read"}))
NOBODY = Caller("nobody", frozenset(), known=False)
JOB = template_of(("job", int))


async def take(spaces: Spaces, template: tuple[Any, ...] = ("job", int), **how: Any) -> Taken:
    found = await spaces.get(ME, "s", template_of(template), **how)
    assert found is not None
    return found


async def everything(spaces: Spaces, *template: Any) -> list[Fields]:
    return [one.fields for one in await spaces.query_all(ME, "s", template_of(template))]


async def test_the_oldest_match_is_taken_first_and_acknowledged(spaces: Spaces) -> None:
    for fields in [("job", 1), ("note", 2), ("job", 3), ("job", 4.0), ("job", True)]:
        await spaces.put(ME, "s", fields)
    first, second = await take(spaces), await take(spaces)
    assert (first.fields, second.fields) == (("job", 1), ("job", 3))
    assert first.seq < second.seq
    assert await spaces.get(ME, "s", JOB) is None
    assert await spaces.query(ME, "s", JOB) is None
    assert (await take(spaces, (str, float))).fields == ("job", 4.0)
    await spaces.acknowledge(ME, "s", first.seq, first.ticket)
    await spaces.give_back(ME, "s", second.seq, second.ticket)
    assert (await take(spaces)).fields == ("job", 3)
    with pytest.raises(Conflict, match="no longer yours"):
        await spaces.acknowledge(ME, "s", first.seq, first.ticket)
    with pytest.raises(Conflict):
        await spaces.acknowledge(ME, "s", second.seq, second.ticket)
    (listed,) = (await spaces.list(ME)).items
    assert (listed.name, listed.size, listed.taken) == ("s", 4, 2)


async def test_looking_leaves_it_there(spaces: Spaces) -> None:
    await spaces.put(ME, "s", ("job", 1))
    found = await spaces.query(READER, "s", JOB)
    assert found is not None
    assert found.fields == ("job", 1)
    assert await everything(spaces, str, int) == [("job", 1)]


async def test_a_lease_that_lapses_puts_it_back_at_its_old_place(spaces: Spaces, clock: MovedClock) -> None:
    for n in range(3):
        await spaces.put(ME, "s", ("job", n))
    lapsing, kept = await take(spaces, lease=10), await take(spaces, lease=10)
    clock.time += 6
    await spaces.keep(ME, "s", kept.seq, kept.ticket, lease=10)
    clock.time += 6
    assert await everything(spaces, "job", int) == [("job", 0), ("job", 2)]
    # nobody else has it: the ticket is still good
    await spaces.keep(ME, "s", lapsing.seq, lapsing.ticket, lease=10)
    clock.time += 11
    again = await take(spaces)
    assert again.fields == ("job", 0)
    with pytest.raises(Conflict):
        await spaces.acknowledge(ME, "s", lapsing.seq, lapsing.ticket)
    with pytest.raises(Conflict):
        await spaces.keep(ME, "s", lapsing.seq, lapsing.ticket)
    await spaces.acknowledge(ME, "s", again.seq, again.ticket)
    await spaces.acknowledge(ME, "s", kept.seq, kept.ticket)
    assert await everything(spaces, "job", int) == [("job", 2)]


async def test_who_waits_is_woken_first_come_first_served(spaces: Spaces) -> None:
    waiting = [asyncio.create_task(spaces.get(ME, "s", JOB, wait=60)) for _ in range(5)]
    looking = asyncio.create_task(spaces.query(ME, "s", template_of((any, any)), wait=60))
    await asyncio.sleep(0.05)
    await asyncio.gather(*(spaces.put(ME, "s", ("job", n)) for n in range(5)))
    taken = [await one for one in waiting]
    assert [one.fields for one in taken if one] == [("job", n) for n in range(5)]
    seen = await looking
    assert seen is not None
    assert seen.fields == ("job", 0)


async def test_who_waits_is_woken_by_another_process(database: Database, clock: MovedClock, spaces: Spaces) -> None:
    other = Spaces(database, clock, "other")
    waiting = asyncio.create_task(spaces.get(ME, "s", JOB, wait=60))
    await asyncio.sleep(0.05)
    await other.put(ME, "s", ("job", 1))
    found = await waiting
    assert found is not None
    waiting = asyncio.create_task(other.get(ME, "s", JOB, wait=60))
    await asyncio.sleep(0.05)
    await spaces.give_back(ME, "s", found.seq, found.ticket)
    assert await waiting
    # and by another room, in a transaction of its own
    waiting = asyncio.create_task(spaces.get(ME, "s", JOB, wait=60))
    await asyncio.sleep(0.05)
    await database.write(lambda tx: batch.put(tx, "s", ("job", 2)))
    assert await waiting
    await other.close()


async def test_waiting_ends(spaces: Spaces) -> None:
    assert await spaces.get(ME, "s", JOB, wait=0.01) is None
    assert await spaces.query(ME, "s", JOB, wait=0.01) is None


async def test_who_leaves_while_waiting_swallows_nothing(spaces: Spaces) -> None:
    for n in range(30):
        waiting = asyncio.create_task(spaces.get(ME, "s", JOB, wait=60))
        for _ in range(n % 5):
            await asyncio.sleep(0)
        putting = asyncio.create_task(spaces.put(ME, "s", ("job", n)))
        for _ in range(n % 7):
            await asyncio.sleep(0)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            taken = await waiting
            if taken:
                await spaces.give_back(ME, "s", taken.seq, taken.ticket)
        await putting
    for n in range(30):
        assert (await take(spaces, wait=60)).fields == ("job", n)


async def test_a_put_with_the_id_of_a_tuple_that_is_there(spaces: Spaces) -> None:
    places = await asyncio.gather(*(spaces.put(ME, "s", ("job", 1), "a") for _ in range(4)))
    assert len(set(places)) == 1
    taken = await take(spaces)
    assert taken.id == "a"
    assert await spaces.put(ME, "s", ("job", 1), "a") == taken.seq
    await spaces.acknowledge(ME, "s", taken.seq, taken.ticket)
    assert await spaces.put(ME, "s", ("job", 1), "a") != taken.seq


async def test_a_repeated_request_finds_what_the_first_did(spaces: Spaces) -> None:
    await spaces.put(ME, "s", ("job", 1))
    await spaces.put(ME, "s", ("job", 2))
    first = await take(spaces, taker="man/1", ticket="t")
    assert await take(spaces, taker="man/1", ticket="t", again=True) == first
    await spaces.acknowledge(ME, "s", first.seq, "t")
    await spaces.acknowledge(ME, "s", first.seq, "t", again=True)
    assert (await take(spaces, taker="man/1", ticket="t", again=True)).fields == ("job", 2)


async def test_all_at_once(spaces: Spaces) -> None:
    for n in range(5):
        await spaces.put(ME, "s", ("job", n))
    await take(spaces)
    gone = await spaces.get_all(ME, "s", JOB)
    assert [one.fields for one in gone] == [("job", n) for n in range(1, 5)]
    assert await spaces.get_all(ME, "s", JOB) == []


async def test_replacing_keeps_exactly_one(spaces: Spaces, database: Database, clock: MovedClock) -> None:
    other = Spaces(database, clock, "other")
    mine = template_of(("me", str))
    rooms = [spaces, other] * 10
    await asyncio.gather(*(room.replace(ME, "s", mine, ("me", f"{n}")) for n, room in enumerate(rooms)))
    assert len(await everything(spaces, "me", str)) == 1
    await spaces.replace(ME, "s", mine, ("me", "last"))
    assert await everything(spaces, "me", str) == [("me", "last")]
    await other.close()


async def test_the_functions_for_other_rooms(spaces: Spaces, database: Database) -> None:
    async def work(tx: Tx) -> None:
        await batch.put(tx, "s", ("latch", 2))
        found = await batch.first(tx, "s", template_of(("latch", int)))
        assert found is not None
        await batch.replace(tx, "s", template_of(("latch", int)), ("latch", 1))
        await batch.put(tx, "s", ("latch", 7))
        assert [one.fields for one in await batch.remove(tx, "s", template_of(("latch", int)))] == [("latch", 1)]

    await database.write(work)
    assert await everything(spaces, "latch", int) == [("latch", 7)]


async def test_what_a_taker_had_is_released_when_it_goes(spaces: Spaces) -> None:
    for n in range(4):
        await spaces.put(ME, "s", ("job", n))
    for taker in ("man_1/1", "man_1/2", "man_11/1"):
        await take(spaces, taker=taker)
    await spaces.release("man_1", but="man_1/2")
    assert await everything(spaces, "job", int) == [("job", 0), ("job", 3)]
    await spaces.release("man_1/2")
    assert await everything(spaces, "job", int) == [("job", 0), ("job", 1), ("job", 3)]


async def test_what_an_earlier_start_had_taken_is_there_again(
    spaces: Spaces, database: Database, clock: MovedClock
) -> None:
    await spaces.put(ME, "s", ("job", 1))
    await spaces.put(ME, "s", ("job", 2))
    await take(spaces)
    await take(spaces, taker="http")
    clock.time += 1
    later = Spaces(database, clock)
    await later.start()
    assert [one.fields for one in await later.query_all(ME, "s", JOB)] == [("job", 1)]
    await later.close()


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_matches_are_looked_up_not_searched(spaces: Spaces, database: Database) -> None:
    """By the plan, not by the clock: what else is in the space costs nothing."""
    free = "EXPLAIN QUERY PLAN SELECT seq FROM tuple WHERE taker IS NULL AND space = 's' AND arity = 2 AND seq > 0"
    (by_head,) = await database.read(f"{free} AND head = 5 ORDER BY seq LIMIT 1")
    assert "tuple_by_head (space=? AND arity=? AND head=? AND seq>?)" in by_head["detail"]
    (in_order,) = await database.read(f"{free} ORDER BY seq LIMIT 1")
    assert "tuple_in_order (space=? AND arity=? AND seq>?)" in in_order["detail"]


async def test_who_may_do_what(spaces: Spaces) -> None:
    with pytest.raises(NeedsToken):
        await spaces.query(NOBODY, "s", JOB)
    with pytest.raises(NotAllowed):
        await spaces.put(READER, "s", ("job", 1))
    with pytest.raises(NotAllowed):
        await spaces.get(READER, "s", JOB)
    for own in ("status", "index", "skep.x", "context:ctx_1"):
        await spaces.put(SYSTEM, own, ("job", 1))
        with pytest.raises(NotAllowed, match="Skep's own"):
            await spaces.get_all(ME, own, JOB)
        with pytest.raises(NotAllowed, match="Skep's own"):
            await spaces.replace(Caller("skep", frozenset({"admin"})), own, JOB, ("job", 2))
        assert await spaces.query(READER, own, JOB)
    with pytest.raises(BadInput, match="not a name"):
        await spaces.put(ME, "a b", ("job", 1))
    with pytest.raises(BadInput, match="id of a tuple"):
        await spaces.put(ME, "s", ("job", 1), "x" * 201)


async def test_dropping_a_space(spaces: Spaces) -> None:
    await spaces.put(ME, "s", ("job", 1))
    taken = await take(spaces)
    await spaces.drop(ME, "s")
    assert (await spaces.list(ME)).items == []
    with pytest.raises(NotFound):
        await spaces.drop(ME, "s")
    await spaces.put(ME, "s", ("job", 2))
    with pytest.raises(Conflict):
        await spaces.acknowledge(ME, "s", taken.seq, taken.ticket)
