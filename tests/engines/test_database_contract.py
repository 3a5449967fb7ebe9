"""What every Database promises."""

import asyncio
import time
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.base.errors import BadInput, Conflict, NewerSchema, NotFound, SkepError, Unavailable
from skep.storage.database import Database, Row, Tx, Value, insert, one_row, update, upsert

ITEM = "CREATE TABLE item (id BIGINT PRIMARY KEY, name TEXT UNIQUE, weight DOUBLE PRECISION, body BYTEA)"


async def put(db: Database, id: int, name: str | None = None) -> None:
    async def work(tx: Tx) -> None:
        await tx.rows("INSERT INTO item (id, name) VALUES (:id, :name)", id=id, name=name)

    await db.write(work)


async def ids(db: Database) -> list[int]:
    return [row["id"] for row in await db.read("SELECT id FROM item ORDER BY id")]


@pytest.fixture
async def items(db: Database) -> Database:
    await db.migrate("test", [ITEM])
    return db


async def test_a_write_is_read_after_it_returns(items: Database) -> None:
    for id in range(20):
        await put(items, id)
        assert await items.read("SELECT id FROM item WHERE id = :id", id=id) == [{"id": id}]


async def test_rows_are_inserted_replaced_and_changed_by_column(items: Database) -> None:
    async def work(tx: Tx) -> list[list[Row]]:
        said = [await insert(tx, "item", "ON CONFLICT (id) DO NOTHING RETURNING id", id=1, name="a") for _ in range(2)]
        await upsert(tx, "item", "id", id=1, name="b", weight=1.5, body=b"x")
        await upsert(tx, "item", "id", id=2, name="c", weight=None)
        await update(tx, "item", "id", id=2, name="d", weight=2.5)
        return said

    assert await items.write(work) == [[{"id": 1}], []]
    rows = await items.read("SELECT * FROM item ORDER BY id")
    assert rows == [
        {"id": 1, "name": "b", "weight": 1.5, "body": b"x"},
        {"id": 2, "name": "d", "weight": 2.5, "body": None},
    ]
    assert one_row(rows, NotFound("none"))["id"] == 1
    with pytest.raises(NotFound, match="none"):
        one_row([], NotFound("none"))


@pytest.mark.parametrize("wanted", [[], [3], [1, 3, 5], [4, 4, 0], list(range(100))])
async def test_a_list_is_a_parameter(items: Database, wanted: list[int]) -> None:
    for id in range(6):
        await put(items, id, f"n{id}")
    names, known = [f"n{id}" for id in wanted], sorted({*wanted} & {*range(6)})
    sql = "SELECT id FROM item WHERE id IN (:ids) AND name IN (:names) AND id >= :id ORDER BY id"
    assert [row["id"] for row in await items.read(sql, ids=wanted, names=names, id=0)] == known
    assert [row["id"] for row in await items.write(lambda tx: tx.rows(sql, ids=wanted, names=names, id=0))] == known


async def test_an_error_in_the_work_rolls_everything_back(items: Database) -> None:
    async def work(tx: Tx) -> None:
        await tx.rows("INSERT INTO item (id) VALUES (1)")
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await items.write(work)
    assert await ids(items) == []


async def test_one_bad_write_among_many_fails_alone(items: Database) -> None:
    await put(items, 7)
    answers = await asyncio.gather(*(put(items, id) for id in range(50)), return_exceptions=True)
    assert [id for id, answer in enumerate(answers) if isinstance(answer, Conflict)] == [7]
    assert sum(answer is None for answer in answers) == 49
    assert await ids(items) == list(range(50))


async def test_a_swallowed_failure_is_no_success(items: Database) -> None:
    await put(items, 1)

    async def work(tx: Tx) -> str:
        await tx.rows("INSERT INTO item (id) VALUES (2)")
        try:
            await tx.rows("INSERT INTO item (id) VALUES (1)")
        except Conflict:
            return "went on"
        return "fine"

    with pytest.raises(Conflict):
        await items.write(work)
    assert await ids(items) == [1]


async def test_a_transaction_is_not_used_after_its_end(items: Database) -> None:
    kept: list[Tx] = []

    async def work(tx: Tx) -> None:
        kept.append(tx)

    await items.write(work)
    with pytest.raises(SkepError, match="ended"):
        await kept[0].rows("SELECT 1")


async def test_statements_of_the_shared_dialect(items: Database) -> None:
    async def work(tx: Tx) -> list[Row]:
        upsert = """INSERT INTO item (id, name, weight) VALUES (:id, :name, :weight)
                    ON CONFLICT (name) DO UPDATE SET weight = item.weight + excluded.weight RETURNING id, weight"""
        await tx.rows(upsert, id=1, name="a", weight=1.5)
        rows = await tx.rows(upsert, id=2, name="a", weight=1)
        assert rows == [{"id": 1, "weight": 2.5}]
        assert await tx.rows("SELECT id FROM item WHERE name = :name FOR UPDATE", name="a") == [{"id": 1}]
        await tx.rows("UPDATE item SET name = ':no -- parameter; here' WHERE id = :id /* nor :here */", id=1)
        await tx.rows(upsert, id=3, name="c", weight=4.0)
        return await tx.rows(
            """WITH heavy AS (SELECT id, weight FROM item WHERE weight > :least)
               SELECT id, weight - LAG(weight) OVER (ORDER BY id) AS step FROM heavy ORDER BY id""",
            least=0,
        )

    assert await items.write(work) == [{"id": 1, "step": None}, {"id": 3, "step": 1.5}]
    assert await items.read("SELECT name FROM item WHERE id = 1") == [{"name": ":no -- parameter; here"}]
    assert await items.read("SELECT id + :n AS far FROM item WHERE id = 1", n=2**62) == [{"far": 2**62 + 1}]
    assert await items.read("SELECT id FROM item WHERE :n + 1 > id ORDER BY id", n=2**40) == [{"id": 1}, {"id": 3}]


@settings(max_examples=30)
@given(
    text=st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    whole=st.integers(-(2**63), 2**63 - 1),
    real=st.none() | st.floats(allow_nan=False) | st.integers(-(2**31), 2**31),
    raw=st.none() | st.binary(),
)
async def test_values_come_back_as_they_were(
    items: Database, text: str | None, whole: int, real: float | None, raw: bytes | None
) -> None:
    async def work(tx: Tx) -> None:
        await tx.rows("DELETE FROM item")
        await tx.rows(
            "INSERT INTO item (id, name, weight, body) VALUES (:whole, :text, :real, :raw)",
            whole=whole,
            text=text,
            real=real,
            raw=raw,
        )

    await items.write(work)
    assert await items.read("SELECT * FROM item") == [{"id": whole, "name": text, "weight": real, "body": raw}]


async def test_many_rows_by_one_statement(items: Database) -> None:
    rows: list[dict[str, Value]] = [
        {"id": n, "name": None if n % 2 else f"n{n}", "body": b"\0\xff"} for n in range(500)
    ]

    async def work(tx: Tx) -> None:
        await tx.many("INSERT INTO item (id, name, body) VALUES (:id, :name, :body)", rows)
        await tx.many("INSERT INTO item (id, name, body) VALUES (:id, :name, :body)", [])
        await tx.many("UPDATE item SET weight = :w WHERE id = :id", [{"w": float(n), "id": n} for n in range(500)])

    await items.write(work)
    found = await items.read("SELECT count(*) AS n, count(name) AS named, sum(weight) AS sum FROM item")
    assert found == [{"n": 500, "named": 250, "sum": sum(range(500))}]
    with pytest.raises(Conflict):
        await items.write(work)


@pytest.mark.parametrize(
    ("sql", "params", "kind", "told"),
    [
        ("SELECT nothing FROM item", {}, SkepError, "nothing"),
        ("SELEC 1", {}, SkepError, "SELEC"),
        ("SELECT id FROM item WHERE id = :id", {}, SkepError, "id"),
        ("SELECT id FROM item WHERE id = :id", {"id": 2**70}, BadInput, "fit"),
        ("SELECT id FROM item WHERE name = :name", {"name": "\ud800"}, BadInput, "fit"),
    ],
)
async def test_a_bad_statement_is_told_clearly(
    items: Database, sql: str, params: dict[str, Value], kind: type[SkepError], told: str
) -> None:
    with pytest.raises(SkepError) as caught:
        await items.read(sql, **params)
    assert type(caught.value) is kind
    assert told in caught.value.message
    assert await ids(items) == []


async def test_several_statements_at_once(items: Database) -> None:
    two: dict[str, Value] = {"id": 2**40, "name": "it's :two", "body": b"\x00\xff"}

    async def work(tx: Tx) -> list[list[Row]]:
        await tx.rows("INSERT INTO item (id, name) VALUES (1, 'one')")
        return await tx.several(
            [
                ("INSERT INTO item (id, name, body) VALUES (:id, :name, :body) RETURNING id, name, body", two),
                ("UPDATE item SET weight = 1.5 WHERE id = :id", {"id": 1}),
                ("SELECT name FROM item WHERE id = :id AND name <> :name", {"id": 9, "name": ""}),
                ("SELECT count(*) AS n FROM item WHERE name = 'one'", {}),
            ]
        )

    assert await items.write(work) == [[two], [], [], [{"n": 1}]]
    assert await items.read("SELECT weight FROM item ORDER BY id") == [{"weight": 1.5}, {"weight": None}]


async def test_a_bell_rings_after_the_commit_and_is_kept_between_waits(items: Database) -> None:
    async def ringing(tx: Tx) -> None:
        tx.ring("there")
        tx.ring("there")

    async with items.listen("there") as bell, items.listen("elsewhere") as other, items.listen("there") as second:
        assert not await bell.wait(0)
        waiting = asyncio.create_task(bell.wait(30))
        await items.write(ringing)
        assert await waiting
        assert await second.wait(30)
        assert not await bell.wait(0)
        await items.write(ringing)
        await items.write(ringing)
        assert await bell.wait(30)
        assert not await other.wait(0)


async def test_no_bell_rings_for_what_was_rolled_back(items: Database) -> None:
    async def failing(tx: Tx) -> None:
        tx.ring("there")
        raise LookupError

    async def ringing(tx: Tx) -> None:
        tx.ring("after")

    async with items.listen("there") as bell, items.listen("after") as after:
        with pytest.raises(LookupError):
            await items.write(failing)
        await items.write(ringing)
        assert await after.wait(30)  # bells come in order: the other one would be here by now
        assert not await bell.wait(0)


async def test_each_row_is_leased_once(db: Database) -> None:
    await db.migrate("test", ["CREATE TABLE run (id BIGINT PRIMARY KEY, worker TEXT); CREATE INDEX w ON run (worker)"])

    async def fill(tx: Tx) -> None:
        await tx.many("INSERT INTO run (id) VALUES (:id)", [{"id": n} for n in range(200)])

    await db.write(fill)

    async def client(name: str) -> list[int]:
        async def lease(tx: Tx) -> list[Row]:
            return await tx.rows(
                """UPDATE run SET worker = :name WHERE id IN (
                     SELECT id FROM run WHERE worker IS NULL ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED)
                   RETURNING id""",
                name=name,
                limit=3,
            )

        got: list[int] = []
        while rows := await db.write(lease):
            got += [row["id"] for row in rows]
        return got

    leased = [id for got in await asyncio.gather(*(client(f"w{n}") for n in range(4))) for id in got]
    assert sorted(leased) == list(range(200))


async def test_migrations_step_by_step(db: Database) -> None:
    first = "CREATE TABLE a (id BIGINT PRIMARY KEY); -- first; with a comment\nINSERT INTO a (id) VALUES (1);"
    second = "INSERT INTO a (id) VALUES (2); CREATE TABLE b (text TEXT DEFAULT ';')"
    await db.migrate("one", [first])
    await db.migrate("one", [first])
    await db.migrate("two", ["CREATE TABLE c (id BIGINT)"])
    await db.migrate("one", [first, second])
    assert [row["id"] for row in await db.read("SELECT id FROM a ORDER BY id")] == [1, 2]
    with pytest.raises(NewerSchema, match="'one'") as caught:
        await db.migrate("one", [first])
    assert "upgrade" in caught.value.hint


async def test_a_failing_step_leaves_the_earlier_ones(db: Database) -> None:
    steps = [
        "CREATE TABLE a (id BIGINT)",
        "INSERT INTO a (id) VALUES (1); CREATE NONSENSE",
        "INSERT INTO a (id) VALUES (3)",
    ]
    with pytest.raises(SkepError, match="NONSENSE"):
        await db.migrate("one", steps)
    assert await db.read("SELECT id FROM a") == []
    await db.migrate("one", [steps[0], "INSERT INTO a (id) VALUES (2)", steps[2]])
    assert [row["id"] for row in await db.read("SELECT id FROM a ORDER BY id")] == [2, 3]


async def test_migrating_at_the_same_time_is_harmless(db: Database) -> None:
    steps = [ITEM, "INSERT INTO item (id) VALUES (1)", "INSERT INTO item (id) VALUES (2)"]
    await asyncio.gather(*(db.migrate("one", steps) for _ in range(4)))
    assert await ids(db) == [1, 2]


async def test_cancelled_writers_harm_nobody(items: Database) -> None:
    tasks = [asyncio.create_task(put(items, id)) for id in range(100)]
    for turns in range(10):
        await asyncio.sleep(0)
        for task in tasks[turns::20]:
            task.cancel()
    answers: Sequence[object] = await asyncio.gather(*tasks, return_exceptions=True)
    await put(items, 1000)
    stored = set(await ids(items))
    assert {id for id, answer in enumerate(answers) if answer is None} <= stored
    assert all(answer is None or isinstance(answer, asyncio.CancelledError) for answer in answers)
    await asyncio.gather(*(put(items, 2000 + id) for id in range(50)))
    assert len(await ids(items)) == len(stored) + 50


async def test_time_is_the_machines(db: Database) -> None:
    before = time.time()
    assert before - 1 <= await db.now() <= time.time() + 1


async def test_a_reader_sees_a_transaction_whole_or_not_at_all(items: Database) -> None:
    async def pair(id: int) -> None:
        async def work(tx: Tx) -> None:
            await tx.rows("INSERT INTO item (id) VALUES (:id)", id=id)
            await tx.rows("INSERT INTO item (id) VALUES (:id)", id=-id)

        await items.write(work)

    async def balance() -> int:
        return int((await items.read("SELECT count(*) % 2 AS odd FROM item"))[0]["odd"])

    answers = await asyncio.gather(*(pair(id) for id in range(1, 50)), *(balance() for _ in range(50)))
    assert set(answers[49:]) == {0}


async def test_after_close(items: Database) -> None:
    await items.close()
    await items.close()
    with pytest.raises(Unavailable, match="closed"):
        await put(items, 1)
    with pytest.raises(Unavailable, match="closed"):
        await ids(items)
