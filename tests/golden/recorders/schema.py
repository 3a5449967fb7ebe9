"""Tables of every database that the product makes: columns, types, defaults, constraints, indexes; on both engines."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import asyncpg

from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.processes.build import open_rooms
from skep.processes.engines import find
from skep.sources.polling.store import Store
from skep.storage.code_index.opensearch.candidates import Tables as OpenSearchTables
from skep.storage.database import Database
from tests.support.postgres import fresh_database

from ..lines import line

#: names that a database makes up from the name of the table
_MADE_UP = re.compile(r"\bsqlite_autoindex_(\w+)_(\d+)\b|\b(\w+)_pkey\b")
#: `(name of the file, its path)`
Files = list[tuple[str, Path]]


def made_up(text: str) -> str:
    """`holding_pkey` as `KEY(holding)`: so it can be translated with the table."""
    return _MADE_UP.sub(lambda one: f"KEY({one[1] or one[3]})" + (f" {one[2]}" if one[2] else ""), text)


async def make_sqlite(folder: Path) -> Files:
    """The files of one machine, and what an index on a server keeps in the database."""
    async with open_rooms(Settings(data=str(folder)), SystemClock(), "w" * 64):
        pass
    await _opened("sqlite:worker.db", folder, lambda db: Store(db, SystemClock()).start())
    await _opened("sqlite:opensearch.db", folder, lambda db: OpenSearchTables(db, "prefix").migrate())
    return [(name, folder / name) for name in ("skep.db", "worker.db", "opensearch.db")]


async def make_postgres(url: str, folder: Path) -> Files:
    """Returns the files that a machine has for itself where the database is shared."""
    async with open_rooms(Settings(data=str(folder), database=url), SystemClock(), "w" * 64):
        pass
    await _opened(url, folder, lambda db: OpenSearchTables(db, "prefix").migrate())
    return [("index.db", folder / "index.db")]


async def _opened(url: str, folder: Path, work: Callable[[Database], Awaitable[Any]]) -> None:
    db = await find("db", url)(url, data=folder, durability="full")
    try:
        await work(db)
    finally:
        await db.close()


async def record(folder: Path, postgres: str) -> AsyncIterator[str]:
    files = await make_sqlite(folder / "sqlite")
    async with fresh_database(postgres) as url:
        files += await make_postgres(url, folder / "postgres")
        for text in await _postgres_lines(url):
            yield text
    for name, path in files:
        for text in _sqlite_lines(path, "sqlite", name):
            yield text


def _sqlite_lines(path: Path, *where: str) -> Iterator[str]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)

    def rows(sql: str) -> list[tuple[str, ...]]:
        return [tuple(map(str, row)) for row in connection.execute(sql).fetchall()]

    for kind, name, table, sql in rows("SELECT type, name, tbl_name, sql FROM sqlite_master"):
        if name.startswith("sqlite_"):
            continue
        yield line(*where, table, kind, name, "sql", " ".join(sql.split()))
        if kind != "table":
            continue
        for _, column, typed, notnull, default, key in rows(f"PRAGMA table_info({name})"):
            yield line(*where, table, "column", column, f"{typed} notnull {notnull} default {default} key {key}")
        for _, index, unique, origin, partial in rows(f"PRAGMA index_list({name})"):
            columns = ", ".join(row[2] for row in rows(f"PRAGMA index_info({index})"))
            yield line(*where, table, "index on", columns, f"unique {unique} origin {origin} partial {partial}")
        for row in rows(f"PRAGMA foreign_key_list({name})"):
            yield line(*where, table, "references", row[2], " ".join(row[3:7]))
    connection.close()


_COLUMNS = """
    SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name, is_identity
    FROM information_schema.columns WHERE table_schema = current_schema()
"""
_CONSTRAINTS = """
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE connamespace = current_schema()::regnamespace AND conrelid <> 0
"""
_INDEXES = "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()"
_TABLES = """
    SELECT relname, relkind::text, relpersistence::text, reloptions::text FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'v', 'S', 'm', 'p')
"""


async def _postgres_lines(url: str) -> list[str]:
    connection = await asyncpg.connect(url)
    try:
        found = [
            line("postgresql", table, "column", column, " ".join(map(str, rest)))
            for table, column, *rest in await connection.fetch(_COLUMNS)
        ]
        for what, sql in (("constraint", _CONSTRAINTS), ("index", _INDEXES)):
            for table, name, text in await connection.fetch(sql):
                found.append(made_up(line("postgresql", table, what, name, text.replace("public.", ""))))
        for name, *rest in await connection.fetch(_TABLES):
            found.append(line("postgresql", name, "is", " ".join(map(str, rest))))
        return found
    finally:
        await connection.close()
