"""The plans of hot statements show a lost index, and statements are counted where they are executed."""

from pathlib import Path

import apsw
import asyncpg

from skep.processes.engines import find
from skep.storage.database import Tx
from tests.support.postgres import fresh_database

from .recorders.explain import Counted, Counts, choose, counting, postgres_plans, renewed, sqlite_plans
from .recorders.schema import make_postgres, make_sqlite

_SQL = "SELECT source FROM holding WHERE member = :member"
_INDEX = "holding_member"


async def test_sqlite_plan_of_a_statement_that_lost_its_index_is_another(tmp_path: Path) -> None:
    files = await make_sqlite(tmp_path)
    before = list(sqlite_plans(files, {_SQL: _SQL}))
    assert _INDEX in before[0]
    connection = apsw.Connection(str(dict(files)["skep.db"]))
    connection.execute(f"DROP INDEX {_INDEX}")
    connection.close()
    assert list(sqlite_plans(files, {_SQL: _SQL})) != before


async def test_postgresql_plan_of_a_statement_that_lost_its_index_is_another(tmp_path: Path, postgres_url: str) -> None:
    async with fresh_database(postgres_url) as url:
        await make_postgres(url, tmp_path)
        before = await postgres_plans(url, {_SQL: _SQL})
        assert _INDEX in before[0]
        connection = await asyncpg.connect(url)
        await connection.execute(f"DROP INDEX {_INDEX}")
        await connection.close()
        assert await postgres_plans(url, {_SQL: _SQL}) != before


async def test_statements_that_are_executed_are_counted(tmp_path: Path) -> None:
    with counting() as counts:
        db = await find("db", "sqlite:")("sqlite:", data=tmp_path, durability="full")
        await db.migrate("room", ["CREATE TABLE pot (n BIGINT PRIMARY KEY)"])

        async def work(tx: Tx) -> None:
            await tx.many("INSERT INTO pot (n)\n VALUES (:n)", [{"n": 1}, {"n": 2}, {"n": 3}])

        await db.write(work)
        for _ in range(2):
            assert await db.read("SELECT n FROM pot WHERE n IN (:some)", some=[1]) == [{"n": 1}]
        await db.close()
    assert counts["INSERT INTO pot (n) VALUES (:n)"].count == 3
    assert counts["SELECT n FROM pot WHERE n IN (:some)"].count == 2
    assert counts["SELECT n FROM pot WHERE n IN (:some)"].lists == ("some",)


def test_frequent_and_slow_statements_are_chosen() -> None:
    counts: Counts = {f"SELECT {n}": Counted(count=100 - n) for n in range(60)}
    counts["SELECT slow"] = Counted(count=1, seconds=5.0)
    counts["CREATE TABLE a (b)"] = Counted(count=1000)
    chosen = choose(counts)
    assert len(chosen) == 40
    assert "SELECT slow" in chosen and "SELECT 0" in chosen and "CREATE TABLE a (b)" not in chosen


def test_statement_that_is_not_executed_any_more_is_replaced() -> None:
    counts: Counts = {f"SELECT {n}": Counted(count=100 - n) for n in range(60)}
    known: dict[str, tuple[str, ...]] = {f"SELECT {n}": () for n in range(20, 59)}
    known["SELECT lost"] = ()
    found = renewed(known, counts, counts)
    assert len(found) == 40
    assert known.keys() - found.keys() == {"SELECT lost"}
    assert renewed(found, counts, counts) == found
