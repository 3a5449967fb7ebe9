"""What every Log promises: on rows of each database, and on JetStream."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import pairwise
from math import inf
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.base.errors import BadInput, SkepError
from skep.processes.engines import find
from skep.storage.database import Database, Tx
from skep.storage.topic_log import Log, TxLog
from skep.topics.api import Draft, Message, Part
from tests.support.nats import NatsServer
from tests.support.postgres import fresh_database

PART = Part("news")
#: a server that is there may take its time
PATIENT = {"patience": 30.0}
Reopen = Callable[[], Awaitable[Log]]


async def opened(stack: AsyncExitStack, db_url: str, log_url: str, data: Path) -> Log:
    db: Database = await find("db", db_url)(db_url, data=data, durability="full")
    stack.push_async_callback(db.close)
    log: Log = await find("log", log_url)(log_url, db=db, **PATIENT if log_url != "db:" else {})
    stack.push_async_callback(log.close)
    return log


@pytest.fixture(params=["sqlite", "memory", "postgres", "nats"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[str, str]]:
    """The URLs of a database and of a log."""
    if request.param == "postgres":
        async with fresh_database(request.getfixturevalue("postgres_url")) as url:
            yield url, "db:"
    elif request.param == "nats":
        server: NatsServer = request.getfixturevalue("nats_server")
        yield "memory:", server.url
        await server.empty()
    else:
        yield request.param + ":", "db:"


@pytest.fixture
async def log(engine: tuple[str, str], tmp_path: Path) -> AsyncIterator[Log]:
    async with AsyncExitStack() as stack:
        yield await opened(stack, *engine, tmp_path)


@pytest.fixture
async def rows(db: Database) -> TxLog:
    log: TxLog = await find("log", "db:")("db:", db=db)
    return log


@pytest.fixture
async def restarted(
    request: pytest.FixtureRequest, engine: tuple[str, str], tmp_path: Path
) -> AsyncIterator[tuple[Log, Reopen]]:
    """A log, and what closes it, restarts its server where that is ours to do, and opens it again."""
    if engine == ("memory:", "db:"):
        pytest.skip("keeps nothing, and says so")
    async with AsyncExitStack() as stack:

        async def reopen() -> Log:
            await stack.aclose()
            if engine[1].startswith("nats:"):
                await asyncio.to_thread(request.getfixturevalue("nats_server").restart)
            return await opened(stack, *engine, tmp_path)

        yield await opened(stack, *engine, tmp_path), reopen


async def everything(log: Log, part: Part = PART) -> list[Message]:
    return await log.read(part, 0, 1_000_000)


async def test_offsets_begin_at_0_and_have_no_gaps(log: Log) -> None:
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


async def test_a_repeated_id_keeps_its_offset(log: Log) -> None:
    assert log.promises.dedup_window > 60
    assert await log.append(PART, [Draft(b"1", "a"), Draft(b"2", "b"), Draft(b"1", "a")]) == [0, 1, 0]
    assert await log.append(PART, [Draft(b"x"), Draft(b"2", "b"), Draft(b"3", "c")]) == [2, 1, 3]
    assert await log.append(Part("other"), [Draft(b"2", "b")]) == [0]
    many = [Draft(str(n).encode(), f"m{n}") for n in range(300)]
    once = await log.append(PART, many)
    assert once == list(range(4, 304))
    assert await log.append(PART, many[::-1]) == once[::-1]
    assert [m.body for m in await everything(log)][:4] == [b"1", b"2", b"x", b"3"]


async def test_producers_at_the_same_time_on_a_new_topic(log: Log) -> None:
    async def producer(name: int) -> list[int]:
        return [(await log.append(PART, [Draft(f"{name}.{n}".encode())]))[0] for n in range(10)]

    given = await asyncio.gather(*(producer(name) for name in range(20)))
    assert all(a < b for own in given for a, b in pairwise(own))
    messages = await everything(log)
    assert [m.offset for m in messages] == list(range(200))
    by_offset = {m.offset: m.body for m in messages}
    assert all(by_offset[o] == f"{name}.{n}".encode() for name, own in enumerate(given) for n, o in enumerate(own))


async def test_transactions_at_the_same_time_on_new_topics(rows: TxLog, db: Database) -> None:
    """As from several processes: nothing is gathered on the way."""

    async def one(n: int) -> int:
        async def work(tx: Tx) -> int:
            return (await rows.append_in(tx, Part(f"topic{n % 3}"), [Draft(b"")], 1.0))[0]

        return await db.write(work)

    answers = await asyncio.gather(*(one(n) for n in range(24)))
    for topic in range(3):
        assert sorted(answers[topic::3]) == list(range(8))


async def test_an_append_is_rolled_back_with_its_transaction(rows: TxLog, db: Database) -> None:
    async def work(tx: Tx, fail: bool) -> list[int]:
        offsets = await rows.append_in(tx, PART, [Draft(b"a", "a"), Draft(b"b")], 5.0)
        if fail:
            raise LookupError
        return offsets

    with pytest.raises(LookupError):
        await db.write(lambda tx: work(tx, True))
    assert await everything(rows) == []
    assert await rows.bounds(PART) == (0, 0)
    assert await db.write(lambda tx: work(tx, False)) == [0, 1]
    assert [m.at for m in await everything(rows)] == [5.0, 5.0]


async def test_a_bad_append_among_many_fails_alone(log: Log) -> None:
    good = [log.append(PART, [Draft(b"x")]) for _ in range(10)]
    bad = [log.append(PART, [Draft(b"x"), Draft(b"x", id="\ud800")]), log.append(Part("", -1), [Draft(b"x")])]
    answers = await asyncio.gather(*good[:5], *bad, *good[5:], return_exceptions=True)
    assert [isinstance(answer, SkepError) for answer in answers] == [False] * 5 + [True] * 2 + [False] * 5
    assert isinstance(answers[6], BadInput)
    assert sorted(o for answer in answers if isinstance(answer, list) for o in answer) == list(range(10))
    assert len(await everything(log)) == 10


async def test_trimmed_messages_are_gone_and_offsets_go_on(log: Log) -> None:
    await log.trim(PART, 5)
    await log.append(PART, [Draft(str(n).encode()) for n in range(10)])
    await log.trim(PART, 4)
    await log.trim(PART, 2)
    assert await log.bounds(PART) == (4, 10)
    assert [m.offset for m in await log.read(PART, 0, 3)] == [4, 5, 6]
    await log.trim(PART, 99)
    assert await log.bounds(PART) == (10, 10)
    assert await log.append(PART, [Draft(b"")]) == [10]


async def test_the_bell_of_a_topic(log: Log) -> None:
    async with log.listen(PART) as bell:
        assert await everything(log) == []
        waiting = asyncio.create_task(bell.wait(30))
        await log.append(PART, [Draft(b"a")])
        assert await waiting


async def test_a_cancelled_producer_takes_nobody_along(log: Log) -> None:
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


async def follow(log: Log, part: Part, count: int) -> list[Message]:
    """Reads when the bell rings, and only then: what rang must be there."""
    messages: list[Message] = []
    async with log.listen(part) as bell:
        while True:
            while some := await log.read(part, len(messages), 7):
                messages += some
            if len(messages) >= count:
                return messages
            assert await bell.wait(30)


async def test_producers_and_consumers_at_the_same_time(log: Log) -> None:
    parts = [Part("a.b", n) for n in range(2)]

    async def produce(name: int, part: Part) -> None:
        for n in range(15):
            await log.append(part, [Draft(f"{name}.{n}.{m}".encode()) for m in range(n % 3 + 1)])

    followers = [asyncio.create_task(follow(log, part, 8 * 30)) for part in parts for _ in range(3)]
    await asyncio.gather(*(produce(name, part) for name in range(8) for part in parts))
    told = await asyncio.gather(*followers)
    for messages in told:
        assert [m.offset for m in messages] == list(range(240))
        places = {m.body: m.offset for m in messages}
        for name in range(8):
            own = [places[f"{name}.{n}.{m}".encode()] for n in range(15) for m in range(n % 3 + 1)]
            assert own == sorted(own)
    assert told[0] == told[1] == told[2]
    assert told[3] == told[4] == told[5]


async def test_a_slow_reader_misses_nothing_and_keeps_nobody_waiting(log: Log) -> None:
    """Its place is far behind, at the trimmed edge and then in the middle of what others append and read."""
    slow: list[Message] = []
    for turn in range(30):
        await log.append(PART, [Draft(f"{turn}.{n}".encode()) for n in range(4)])
        assert len(await log.read(PART, turn * 4, 100)) == 4
        slow += await log.read(PART, len(slow), 1)
    await log.trim(PART, 40)
    rest = await log.read(PART, len(slow), 3)
    assert [m.offset for m in rest] == [40, 41, 42]
    while some := await log.read(PART, rest[-1].offset + 1, 9):
        rest += some
    assert [m.offset for m in slow] == list(range(30))
    assert [m.body for m in rest] == [f"{n // 4}.{n % 4}".encode() for n in range(40, 120)]


async def test_what_was_acknowledged_is_there_after_a_restart(restarted: tuple[Log, Reopen]) -> None:
    log, reopen = restarted
    drafts = [Draft(str(n).encode(), f"id{n}", "key", {"n": str(n)}) for n in range(50)]
    assert await log.append(PART, drafts) == list(range(50))
    await log.append(Part("other"), [Draft(b"")])
    await log.trim(PART, 10)
    await log.trim(Part("other"), 1)
    before = await everything(log)
    log = await reopen()
    assert await everything(log) == before
    assert await log.bounds(PART) == (10, 50)
    assert await log.bounds(Part("other")) == (1, 1)
    assert await log.append(PART, [drafts[30], Draft(b"new"), drafts[49]]) == [30, 50, 49]
    assert await log.append(Part("other"), [Draft(b"")]) == [1]


async def test_a_batch_with_a_bad_draft_is_not_stored(log: Log) -> None:
    """On every log, whether its batches are atomic or not."""
    with pytest.raises(SkepError):
        await log.append(PART, [Draft(b"1"), Draft(b"2", id="\ud800"), Draft(b"3")])
    assert await everything(log) == []
    assert await log.bounds(PART) == (0, 0)


async def test_rings_are_kept_until_somebody_waits(log: Log) -> None:
    async with log.listen(PART) as bell, log.listen(Part("quiet")) as quiet:
        await log.append(PART, [Draft(b"a"), Draft(b"b")])
        await log.append(PART, [Draft(b"c")])
        assert await bell.wait(30)
        assert len(await everything(log)) == 3
        assert not await quiet.wait(0)


async def test_odd_ids_keys_and_headers_come_back_as_they_went(log: Log) -> None:
    texts = [
        "plain",
        " a ",
        "a",
        "a\r\nNats-Msg-Id: b",
        "ü€😀",
        "100%",
        "%41",
        "A",
        "a:b",
        "\t",
        '{"x": [1]}',
        "\x7f\x1b",
    ]
    drafts = [Draft(text.encode(), text, text, {text: text, "Status": "503", "": ""}) for text in texts]
    assert await log.append(PART, drafts) == list(range(len(texts)))
    messages = await everything(log)
    assert [Draft(m.body, m.id, m.key, m.headers) for m in messages] == drafts
    assert [m.at for m in messages] == sorted(m.at for m in messages)
    assert await log.append(PART, drafts) == list(range(len(texts)))


@settings(max_examples=15)
@given(
    steps=st.lists(
        st.tuples(st.just("append"), st.lists(st.sampled_from(["", "", "a", "b", "c", "d"]), max_size=5))
        | st.tuples(st.just("trim"), st.integers(0, 30)),
        max_size=12,
    )
)
async def test_a_log_behaves_like_a_list(log: Log, steps: list[tuple[str, object]]) -> None:
    part = Part(str(uuid4()))
    kept: list[tuple[int, str]] = []
    ids: dict[str, int] = {}
    #: with its message; a log that remembers ids for a time does so whether they are trimmed or not
    forgets = log.promises.dedup_window == inf
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
            if not id or ids.get(id, -1) < (first if forgets else 0):
                kept.append((end, id))
                ids[id] = end
                end += 1
            expected.append(ids[id])
        assert await log.append(part, [Draft(b"x", id) for id in what]) == expected
    assert [(m.offset, m.id) for m in await everything(log, part)] == kept
    assert await log.bounds(part) == (first, end)
