"""Plans of the hottest statements on both databases: a lost index shows as a scan.

`statements.txt` lists them. `scripts/golden statements` measures again which they are: it counts and times what the
scene executes. Every one of them has to be executed by the scene, so that a changed statement shows too.
"""

import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import msgspec

from skep.storage.database import Transaction, for_sqlite, numbered, spread
from skep.storage.sqlite import Sqlite
from tests.support.postgres import fresh_database

from ..lines import line
from .schema import Files, made_up, make_postgres, make_sqlite

STATEMENTS = Path(__file__).parent.parent / "statements.txt"
HOTTEST = 40
_BY_COUNT = 30
_OURS = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")
_SETTINGS = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan"


class Counted(msgspec.Struct):
    count: int = 0
    seconds: float = 0.0
    #: parameters that are lists
    lists: tuple[str, ...] = ()


Counts = dict[str, Counted]


@contextmanager
def counting() -> Iterator[Counts]:
    """Every statement that any database of this process executes inside the block."""
    counts: Counts = {}
    read, rows, many = Sqlite.read, Transaction.rows, Transaction.many

    def note(sql: str, params: Mapping[str, Any], seconds: float, times: int = 1) -> None:
        one = counts.setdefault(" ".join(sql.split()), Counted())
        one.count += times
        one.seconds += seconds
        one.lists = tuple(sorted(name for name, value in params.items() if isinstance(value, list)))

    async def counted_read(self: Any, sql: str, /, **params: Any) -> Any:
        began = time.perf_counter()
        found = await read(self, sql, **params)
        note(sql, params, time.perf_counter() - began)
        return found

    async def counted_rows(self: Any, sql: str, /, **params: Any) -> Any:
        began = time.perf_counter()
        found = await rows(self, sql, **params)
        note(sql, params, time.perf_counter() - began)
        return found

    async def counted_many(self: Any, sql: str, given: Sequence[Mapping[str, Any]]) -> None:
        began = time.perf_counter()
        await many(self, sql, given)
        note(sql, {}, time.perf_counter() - began, len(given))

    Sqlite.read, Transaction.rows, Transaction.many = counted_read, counted_rows, counted_many  # type: ignore[method-assign, assignment]
    try:
        yield counts
    finally:
        Sqlite.read, Transaction.rows, Transaction.many = read, rows, many  # type: ignore[method-assign]


def copied(counts: Counts) -> Counts:
    """As they are now."""
    return {sql: msgspec.structs.replace(one) for sql, one in counts.items()}


def choose(counts: Counts) -> dict[str, tuple[str, ...]]:
    """The most frequent ones, and those of the others that took the most time; with their parameters that are lists."""
    usable = {sql: one for sql, one in counts.items() if sql.startswith(_OURS) and "schema_step" not in sql}
    by_count = sorted(usable, key=lambda sql: (-usable[sql].count, sql))
    chosen = by_count[:_BY_COUNT]
    chosen += sorted(by_count[_BY_COUNT:], key=lambda sql: -usable[sql].seconds)[: HOTTEST - len(chosen)]
    return {sql: usable[sql].lists for sql in sorted(chosen)}


def renewed(known: Mapping[str, tuple[str, ...]], executed: Counts, hot: Counts) -> dict[str, tuple[str, ...]]:
    """Those that are still executed, and the hottest others in place of those that are not."""
    kept = {sql: lists for sql, lists in known.items() if sql in executed}
    others = [one for one in choose(hot).items() if one[0] not in kept]
    return kept | dict(others[: HOTTEST - len(kept)])


def write_statements(found: Mapping[str, tuple[str, ...]]) -> None:
    STATEMENTS.write_text("".join(f"{sql}\t{','.join(lists)}\n" for sql, lists in sorted(found.items())))


def read_statements() -> dict[str, tuple[str, ...]]:
    found = (text.split("\t") for text in STATEMENTS.read_text().splitlines())
    return {sql: tuple(filter(None, lists.split(","))) for sql, lists in found}


async def record(
    folder: Path, postgres: str, statements: Mapping[str, tuple[str, ...]], executed: Collection[str]
) -> AsyncIterator[str]:
    yield line("statements", str(len(statements)))
    for sql in statements:
        yield line(sql, "executed", "yes" if sql in executed else "no")
    full = {sql: spread(sql, {name: [1, 2] for name in lists})[0] for sql, lists in statements.items()}
    files = await make_sqlite(folder / "explain-sqlite")
    async with fresh_database(postgres) as url:
        files += await make_postgres(url, folder / "explain-postgres")
        for text in await postgres_plans(url, full):
            yield text
    for text in sqlite_plans(files, full):
        yield text


def sqlite_plans(files: Files, statements: Mapping[str, str]) -> Iterator[str]:
    connections = {name: apsw.Connection(str(path)) for name, path in files}
    for key, sql in statements.items():
        text, names = for_sqlite(sql), numbered(sql)[1]
        found = False
        for name, connection in connections.items():
            try:
                rows = connection.execute(f"EXPLAIN QUERY PLAN {text}", dict.fromkeys(names)).fetchall()
            except apsw.SQLError as error:
                if "no such table" in str(error):
                    continue
                raise
            found = True
            yield line(key, "sqlite", name, made_up(" | ".join(str(row[3]) for row in rows)))
        if not found:
            yield line(key, "sqlite", "no database has these tables")
    for connection in connections.values():
        connection.close()


async def postgres_plans(url: str, statements: Mapping[str, str]) -> list[str]:
    connection = await asyncpg.connect(url)
    found = []
    try:
        await connection.execute(_SETTINGS)
        for number, (key, sql) in enumerate(statements.items()):
            text, names = numbered(sql)
            try:
                await connection.execute(f"PREPARE q{number} AS {text}")
            except asyncpg.UndefinedTableError:
                continue  # a table of the worker, or of the index
            given = f"({', '.join(['NULL'] * len(names))})" if names else ""
            rows = await connection.fetch(f"EXPLAIN (COSTS OFF) EXECUTE q{number}{given}")
            found.append(line(key, "postgresql", made_up(" | ".join(row[0].strip() for row in rows))))
    finally:
        await connection.close()
    return found
