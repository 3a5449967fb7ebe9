"""What every Log promises."""

import asyncio
from itertools import pairwise
from math import inf
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep.engines.db.base import Database, Tx
from skep.engines.log.base import TxLog
from skep.engines.open import find
from skep.errors import BadInput, SkepError
from skep.model.topic import Draft, Message, Part

PART = Part("news")


@pytest.fixture
async def log(db: Database) -> TxLog:
    opened: TxLog = await find("log", "db:")("db:", db=db)
    return opened


async def everything(log: TxLog, part: Part = PART) -> list[Message]:
    return await log.read(part, 0, 1_000_000)


async def test_offsets_begin_at_0_and_have_no_gaps(log: TxLog) -> None:
    assert await log.bounds(PART) == (0, 0)
    assert await everything(log) == []
    assert await log.append(PART, []) == []
    assert await log.append(PART, [Draft(b"a", key="k", headers={"h": "ü"}), Draft(b"")]) == [0, 1]
    assert await log.append(PART, [Draft(b"c")]) == [2]
    assert await log.append(Part("news", 1), [Draft(b"x")]) == [0]
    messages = await everything(log)
    assert [(m.offset, m.body, m.key, m.headers) for m in messages] == [
        (0, b"a", "k", {"h": "ü"}),
        (1, b"", "", {}),
        (2, b"c", "", {}),
    ]
    assert [m.offset for m in await log.read(PART, 1, 1)] == [1]
    assert await log.read(PART, 3, 10) == []
    assert await log.read(PART, 2**62, 10) == []
    assert await log.bounds(PART) == (0, 3)


async def test_a_repeated_id_keeps_its_offset(log: TxLog) -> None:
    assert log.promises.dedup_window == inf
    assert await log.append(PART, [Draft(b"1", "a"), Draft(b"2", "b"), Draft(b"1", "a")]) == [0, 1, 0]
    assert await log.append(PART, [Draft(b"x"), Draft(b"2", "b"), Draft(b"3", "c")]) == [2, 1, 3]
    assert await log.append(Part("other"), [Draft(b"2", "b")]) == [0]
    many = [Draft(str(n).encode(), f"m{n}") for n in range(300)]
    once = await log.append(PART, many)
    assert once == list(range(4, 304))
    assert await log.append(PART, many[::-1]) == once[::-1]
    assert [m.body for m in await everything(log)][:4] == [b"1", b"2", b"x", b"3"]


async def test_producers_at_the_same_time_on_a_new_topic(log: TxLog) -> None:
    async def producer(name: int) -> list[int]:
        return [(await log.append(PART, [Draft(f"{name}.{n}".encode())]))[0] for n in range(10)]

    given = await asyncio.gather(*(producer(name) for name in range(20)))
    assert all(a < b for own in given for a, b in pairwise(own))
    messages = await everything(log)
    assert [m.offset for m in messages] == list(range(200))
    by_offset = {m.offset: m.body for m in messages}
    assert all(by_offset[o] == f"{name}.{n}".encode() for name, own in enumerate(given) for n, o in enumerate(own))


async def test_transactions_at_the_same_time_on_new_topics(log: TxLog, db: Database) -> None:
    """As from several processes: nothing is gathered on the way."""

    async def one(n: int) -> int:
        async def work(tx: Tx) -> int:
            return (await log.append_in(tx, Part(f"topic{n % 3}"), [Draft(b"")], 1.0))[0]

        return await db.write(work)

    answers = await asyncio.gather(*(one(n) for n in range(24)))
    for topic in range(3):
        assert sorted(answers[topic::3]) == list(range(8))


async def test_an_append_is_rolled_back_with_its_transaction(log: TxLog, db: Database) -> None:
    async def work(tx: Tx, fail: bool) -> list[int]:
        offsets = await log.append_in(tx, PART, [Draft(b"a", "a"), Draft(b"b")], 5.0)
        if fail:
            raise LookupError
        return offsets

    with pytest.raises(LookupError):
        await db.write(lambda tx: work(tx, True))
    assert await everything(log) == []
    assert await log.bounds(PART) == (0, 0)
    assert await db.write(lambda tx: work(tx, False)) == [0, 1]
    assert [m.at for m in await everything(log)] == [5.0, 5.0]


async def test_a_bad_append_among_many_fails_alone(log: TxLog) -> None:
    good = [log.append(PART, [Draft(b"x")]) for _ in range(10)]
    bad = [log.append(PART, [Draft(b"x"), Draft(b"x", id="\ud800")]), log.append(Part("", -1), [Draft(b"x")])]
    answers = await asyncio.gather(*good[:5], *bad, *good[5:], return_exceptions=True)
    assert [isinstance(answer, SkepError) for answer in answers] == [False] * 5 + [True] * 2 + [False] * 5
    assert isinstance(answers[6], BadInput)
    assert sorted(o for answer in answers if isinstance(answer, list) for o in answer) == list(range(10))
    assert len(await everything(log)) == 10


async def test_trimmed_messages_are_gone_and_offsets_go_on(log: TxLog) -> None:
    await log.trim(PART, 5)
    await log.append(PART, [Draft(str(n).encode()) for n in range(10)])
    await log.trim(PART, 4)
    await log.trim(PART, 2)
    assert await log.bounds(PART) == (4, 10)
    assert [m.offset for m in await log.read(PART, 0, 3)] == [4, 5, 6]
    await log.trim(PART, 99)
    assert await log.bounds(PART) == (10, 10)
    assert await log.append(PART, [Draft(b"")]) == [10]


async def test_the_bell_of_a_topic(log: TxLog) -> None:
    async with log.listen(PART) as bell:
        assert await everything(log) == []
        waiting = asyncio.create_task(bell.wait(30))
        await log.append(PART, [Draft(b"a")])
        assert await waiting


async def test_a_cancelled_producer_takes_nobody_along(log: TxLog) -> None:
    tasks = [asyncio.create_task(log.append(PART, [Draft(str(n).encode())])) for n in range(40)]
    await asyncio.sleep(0)
    for task in tasks[::4]:
        task.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    bodies = {m.offset: m.body for m in await everything(log)}
    assert list(bodies) == list(range(len(bodies)))
    for n, answer in enumerate(answers):
        if n % 4 == 0:
            assert isinstance(answer, asyncio.CancelledError)
        else:
            assert isinstance(answer, list)
            assert bodies[answer[0]] == str(n).encode()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.just("append"), st.lists(st.sampled_from(["", "", "a", "b", "c", "d"]), max_size=5))
        | st.tuples(st.just("trim"), st.integers(0, 30)),
        max_size=12,
    )
)
async def test_a_log_behaves_like_a_list(log: TxLog, steps: list[tuple[str, object]]) -> None:
    part = Part(str(uuid4()))
    kept: list[tuple[int, str]] = []
    first = end = 0
    for step, what in steps:
        if step == "trim":
            assert isinstance(what, int)
            first = max(first, min(what, end))
            kept = [(offset, id) for offset, id in kept if offset >= first]
            await log.trim(part, what)
            continue
        assert isinstance(what, list)
        expected = []
        for id in what:
            old = [offset for offset, known in kept if id and known == id]
            if not old:
                kept.append((end, id))
                end += 1
            expected.append(old[0] if old else end - 1)
        assert await log.append(part, [Draft(b"x", id) for id in what]) == expected
    assert [(m.offset, m.id) for m in await everything(log, part)] == kept
    assert await log.bounds(part) == (first, end)
