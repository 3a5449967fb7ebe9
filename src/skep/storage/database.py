"""The Database face. SQL is written once, in the dialect both engines share:

- `:name` parameters; TEXT, BIGINT, DOUBLE PRECISION and BYTEA columns; no booleans (BIGINT 0/1), no NOW();
- `BIGINT PRIMARY KEY` is a rowid on SQLite; `FOR UPDATE [SKIP LOCKED]` is dropped there: one writer makes it needless;
- a list is a parameter too, as `IN (:name)`; nothing is among none;
- `INSERT … ON CONFLICT … DO …`, `RETURNING`, window functions and common table expressions work on both;
- whole rows are stored by `insert`, `upsert` and `update`, so that a column is named once.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import msgspec

from skep.base.clock import Clock
from skep.base.errors import NewerSchema, SkepError

Value = str | int | float | bytes | None
#: of a statement that is run once; a list stands in it as `IN (:name)`
Param = Value | list[str] | list[int]
#: a row by column name; Any because SQL decides the type
Row = Mapping[str, Any]
Statement = tuple[str, Mapping[str, Value]]
T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


def struct_of(kind: type[S], row: Row, **other: object) -> S:
    """Its fields are columns of the same names, except for the `other` ones."""
    return kind(**{name: row[name] for name in kind.__struct_fields__ if name not in other}, **other)


def one_row(rows: Sequence[Row], missing: SkepError) -> Row:
    """`missing` is said where there is none."""
    if not rows:
        raise missing
    return rows[0]


def among(values: Iterable[Value], name: str = "v") -> tuple[str, dict[str, Value]]:
    """For `IN (…)`: places, and what goes there. A power of two of them, so that statements are few."""
    given = list(dict.fromkeys(values)) or [None]
    given += given[-1:] * ((1 << (len(given) - 1).bit_length()) - len(given))
    names = {f"{name}{n}": value for n, value in enumerate(given)}
    return ", ".join(f":{name}" for name in names), names


def spread(sql: str, params: Mapping[str, Param]) -> tuple[str, dict[str, Value]]:
    """With a parameter for each of a list."""
    plain: dict[str, Value] = {}
    for name, value in params.items():
        if isinstance(value, list):
            places, values = among(value, name)
            sql, plain = sql.replace(f"(:{name})", f"({places})"), plain | values
        else:
            plain[name] = value
    return sql, plain


def inserting(table: str, columns: Iterable[str], then: str = "") -> str:
    """The statement that stores a row, each column from the parameter of its name. `then`: ON CONFLICT, RETURNING."""
    names = list(columns)
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES (:{', :'.join(names)}) {then}"  # noqa: S608


def upserting(table: str, columns: Iterable[str], key: str) -> str:
    """As `inserting`; where a row has the same `key`, its columns with commas between, all else of it is replaced."""
    names = list(columns)
    replaced = ", ".join(f"{name} = excluded.{name}" for name in names if name not in key.split(", "))
    return inserting(table, names, f"ON CONFLICT ({key}) DO UPDATE SET {replaced}")


class Tx(Protocol):
    """One transaction. `work` functions await nothing but this.

    After a failed statement the transaction is over: `work` may catch the error, the write fails with it all the same.
    """

    async def rows(self, sql: str, /, **params: Param) -> list[Row]: ...

    async def many(self, sql: str, rows: Sequence[Mapping[str, Value]]) -> None:
        """The same statement for each row."""
        ...

    async def several(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """The rows of each. For statements none of which reads or changes a row that another changes: where every
        statement is a journey, these are one."""
        ...

    def ring(self, channel: str) -> None:
        """Wake the listeners of `channel` after the commit."""
        ...


async def insert(tx: Tx, table: str, then: str = "", /, **row: Value) -> list[Row]:
    return await tx.rows(inserting(table, row, then), **row)


async def upsert(tx: Tx, table: str, key: str, /, **row: Value) -> list[Row]:
    return await tx.rows(upserting(table, row, key), **row)


async def update(tx: Tx, table: str, key: str, /, **row: Value) -> list[Row]:
    """Of the row with this `key` the other columns."""
    values = ", ".join(f"{name} = :{name}" for name in row if name != key)
    return await tx.rows(f"UPDATE {table} SET {values} WHERE {key} = :{key}", **row)  # noqa: S608


class Bell(Protocol):
    async def wait(self, timeout: float) -> bool:
        """True when it rang since the last wait; False after `timeout` seconds. Rings between waits are kept."""
        ...


class Database(Protocol):
    #: several processes may have it open
    shared: bool

    async def read(self, sql: str, /, **params: Param) -> list[Row]: ...

    async def write(self, work: Callable[[Tx], Awaitable[T]], *, runtime: bool = False) -> T:
        """Run `work` in one transaction and return once it is durable. It awaits only its Tx and may run twice.

        `runtime` marks state that can be found out again (what was looked at when, heartbeats): with the setting
        `durability = "delayed"` such a write returns before it is on disk.
        """
        ...

    def listen(self, channel: str) -> AbstractAsyncContextManager[Bell]:
        """Listen first, then look, then `await bell.wait(timeout)`: so that nothing is missed between."""
        ...

    async def migrate(self, room: str, steps: Sequence[str]) -> None:
        """Bring the tables of `room` to step `len(steps)`; a step holds statements divided by `;`.

        Raises NewerSchema when the database is already beyond what this program knows.
        """
        ...

    async def now(self) -> float:
        """The database's time: what coordinators share."""
        ...

    async def close(self) -> None: ...


# Bells inside one process. Everything here runs on the event loop's thread.


class _Bell:
    def __init__(self) -> None:
        self._rang = asyncio.Event()

    def ring(self) -> None:
        self._rang.set()

    async def wait(self, timeout: float) -> bool:
        if not self._rang.is_set():
            try:
                async with asyncio.timeout(timeout):
                    await self._rang.wait()
            except TimeoutError:
                return False
        self._rang.clear()
        return True


class Bells:
    def __init__(self) -> None:
        self._hung: dict[str, set[_Bell]] = {}

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[Bell]:
        bell = _Bell()
        self._hung.setdefault(channel, set()).add(bell)
        try:
            yield bell
        finally:
            others = self._hung[channel]
            others.discard(bell)
            if not others:
                del self._hung[channel]

    def ring(self, channels: Iterable[str]) -> None:
        for channel in channels:
            for bell in self._hung.get(channel, ()):
                bell.ring()

    def ring_all(self) -> None:
        """When something may have been missed."""
        self.ring(list(self._hung))


# SQL is written once, with `:name` parameters; here it becomes what an engine reads. Quotes and comments stay.

_QUIET = r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/"""
_PARTS = re.compile(rf"{_QUIET} | :: | :(?P<name>[A-Za-z_]\w*) | (?P<end>;)", re.VERBOSE | re.DOTALL)
_SQLITE = re.compile(
    rf"""{_QUIET}
    | \b(?P<lock>FOR\s+UPDATE(?:\s+OF\s+\w+)?(?:\s+SKIP\s+LOCKED|\s+NOWAIT)?)\b
    | \b(?P<key>BIGINT)(?=(?:\s+NOT\s+NULL)?\s+PRIMARY\s+KEY\b)
    | \b(?P<bytes>BYTEA)\b""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)

_INSERT = re.compile(
    r"(?P<head>INSERT\s+INTO\s+\w+\s*\([\w\s,]+\)\s*)VALUES\s*\((?P<values>\s*:\w+\s*(?:,\s*:\w+\s*)*)\)"
    r"(?P<tail>\s*(?:ON\s+CONFLICT(?:\s*\([\w\s,]+\))?\s+DO\s+NOTHING)?\s*)",
    re.IGNORECASE,
)


def statements(script: str) -> list[str]:
    """Divided by `;`, empty ones left out."""
    cuts = [found.start() for found in _PARTS.finditer(script) if found["end"]]
    pieces = [script[start:end] for start, end in zip([0, *(cut + 1 for cut in cuts)], [*cuts, None], strict=True)]
    return [piece.strip() for piece in pieces if _PARTS.sub(_only_parts, piece).strip()]


def _only_parts(found: re.Match[str]) -> str:
    """Comments vanish, so that a piece of nothing else counts as empty."""
    return "" if found[0].startswith(("--", "/*")) else found[0]


@lru_cache(maxsize=2048)
def numbered(sql: str, casts: tuple[str, ...] = ()) -> tuple[str, tuple[str, ...]]:
    """`:name` as `$1`, and the names in the order of their numbers. `casts` is what to put behind each number."""
    names: dict[str, int] = {}

    def place(found: re.Match[str]) -> str:
        if not found["name"]:
            return found[0]
        number = names.setdefault(found["name"], len(names) + 1)
        return f"${number}{casts[number - 1] if casts else ''}"

    text = _PARTS.sub(place, sql)
    return text, tuple(names)


@lru_cache(maxsize=2048)
def side_by_side(statements: tuple[str, ...], answering: tuple[bool, ...]) -> str:
    """One statement that does them all, `:name` of the second being `:name_1` there.

    Its rows are (number, row) of those that are `answering` with any.
    """
    parts, rows = [], []
    for number, (sql, answers) in enumerate(zip(statements, answering, strict=True)):
        text = _PARTS.sub(lambda found, n=number: f"{found[0]}_{n}" if found["name"] else found[0], sql)  # type: ignore[misc]
        parts.append(f"s{number} AS ({text})")
        if answers:
            rows.append(f"SELECT {number} AS number, ROW(s{number}.*) AS one FROM s{number}")  # noqa: S608
    return f"WITH {', '.join(parts)} {' UNION ALL '.join(rows) or 'SELECT 0 AS number, ROW() AS one WHERE false'}"


@lru_cache(maxsize=2048)
def insert_of_arrays(sql: str, types: tuple[str, ...]) -> str | None:
    """A plain `INSERT … VALUES (:a, :b)` as one statement that takes an array for each name; None for any other."""
    found = _INSERT.fullmatch(sql.strip())
    names = [name.strip() for name in found["values"].split(",")] if found else []
    if found is None or len(set(names)) != len(types) or len(names) != len(types):
        return None
    arrays = ", ".join(f"${number}::{type}[]" for number, type in enumerate(types, 1))
    return f"{found['head']}SELECT * FROM unnest({arrays}){found['tail']}"  # noqa: S608


@lru_cache(maxsize=2048)
def for_sqlite(sql: str) -> str:
    """Row locks dropped (there is one writer), `BIGINT PRIMARY KEY` as a rowid, BYTEA as BLOB."""
    return _SQLITE.sub(_sqlite_word, sql)


def _sqlite_word(found: re.Match[str]) -> str:
    if found["lock"]:
        return ""
    if found["key"]:
        return "INTEGER"
    return "BLOB" if found["bytes"] else found[0]


def shown(sql: str) -> str:
    """One short line for an error message; parameters are not in it, so no secret is either."""
    line = " ".join(sql.split())
    return line if len(line) <= 200 else line[:197] + "..."


# Numbered steps per room, each in a transaction of its own, recorded in `schema_step`.


async def migrate(db: Database, room: str, steps: Sequence[str], *, lock: str = "") -> None:
    """`lock` is a statement that keeps other processes out for the rest of a transaction."""

    async def one(tx: Tx) -> bool:
        if lock:
            await tx.rows(lock)
        await tx.rows("CREATE TABLE IF NOT EXISTS schema_step (room TEXT PRIMARY KEY, step BIGINT NOT NULL)")
        found = await tx.rows("SELECT step FROM schema_step WHERE room = :room", room=room)
        at = int(found[0]["step"]) if found else 0
        if at > len(steps):
            raise NewerSchema(
                f"the tables of {room!r} are at step {at}, this program knows {len(steps)}",
                hint="upgrade Skep, or start it on other data",
            )
        if at == len(steps):
            return True
        for statement in statements(steps[at]):
            await tx.rows(statement)
        await upsert(tx, "schema_step", "room", room=room, step=at + 1)
        return at + 1 == len(steps)

    while not await db.write(one):
        pass


# Time as the database has it, which is what all who share it go by, however their machines' clocks differ.

_EVERY_SECONDS = 300.0
#: smaller differences are not worth a step
_LEAST_SECONDS = 1.0


class SharedClock:
    def __init__(self, clock: Clock, db: Database) -> None:
        self._clock = clock
        self._db = db
        self._ahead = 0.0

    def now(self) -> float:
        return self._clock.now() + self._ahead

    def random(self) -> float:
        return self._clock.random()

    async def measure(self) -> None:
        before = self._clock.now()
        there = await self._db.now()
        ahead = there - (before + self._clock.now()) / 2
        if abs(ahead - self._ahead) >= _LEAST_SECONDS:
            self._ahead = ahead

    async def follow(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            await self.measure()


# What both engines' transactions share: after one failed statement nothing more happens in it.
#
# PostgreSQL refuses further statements by itself, and then answers COMMIT by rolling back in silence; SQLite would go
# on.
# So both remember the failure: a `work` that swallows it is not taken for a success.


class Transaction:
    def __init__(self) -> None:
        self.rung: set[str] = set()
        self.failed: SkepError | None = None
        self.ended = False

    async def rows(self, sql: str, /, **params: Param) -> list[Row]:
        self._check()
        try:
            return await self._rows(*spread(sql, params))
        except SkepError as error:
            self.failed = error
            raise

    async def many(self, sql: str, rows: Sequence[Mapping[str, Value]]) -> None:
        self._check()
        if not rows:
            return
        try:
            await self._many(sql, rows)
        except SkepError as error:
            self.failed = error
            raise

    async def several(self, statements: Sequence[Statement]) -> list[list[Row]]:
        return [await self.rows(sql, **params) for sql, params in statements]

    def ring(self, channel: str) -> None:
        self.rung.add(channel)

    def _check(self) -> None:
        if self.ended:
            raise SkepError("this transaction has ended; use `tx` only inside the function given to write()")
        if self.failed is not None:
            raise self.failed

    async def _rows(self, sql: str, params: Mapping[str, Value]) -> list[Row]:
        raise NotImplementedError

    async def _many(self, sql: str, rows: Sequence[Mapping[str, Value]]) -> None:
        raise NotImplementedError
