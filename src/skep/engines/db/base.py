"""The Database face. SQL is written once, in the dialect both engines share:

- `:name` parameters; TEXT, BIGINT, DOUBLE PRECISION and BYTEA columns; no booleans (BIGINT 0/1), no NOW();
- `BIGINT PRIMARY KEY` is a rowid on SQLite; `FOR UPDATE [SKIP LOCKED]` is dropped there: one writer makes it needless;
- a list is a parameter too, as `IN (:name)`; nothing is among none;
- `INSERT … ON CONFLICT … DO …`, `RETURNING`, window functions and common table expressions work on both;
- whole rows are stored by `insert`, `upsert` and `update`, so that a column is named once.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

import msgspec

from skep.errors import SkepError

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
