"""The Database face. SQL is written once, in the dialect both engines share:

- `:name` parameters; TEXT, BIGINT, DOUBLE PRECISION and BYTEA columns; no booleans (BIGINT 0/1), no NOW();
- `BIGINT PRIMARY KEY` is a rowid on SQLite; `FOR UPDATE [SKIP LOCKED]` is dropped there: one writer makes it needless;
- `INSERT … ON CONFLICT … DO …`, `RETURNING`, window functions and common table expressions work on both.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

Value = str | int | float | bytes | None
#: a row by column name; Any because SQL decides the type
Row = Mapping[str, Any]
Statement = tuple[str, Mapping[str, Value]]
T = TypeVar("T")


class Tx(Protocol):
    """One transaction. `work` functions await nothing but this.

    After a failed statement the transaction is over: `work` may catch the error, the write fails with it all the same.
    """

    async def rows(self, sql: str, /, **params: Value) -> list[Row]: ...

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


class Bell(Protocol):
    async def wait(self, timeout: float) -> bool:
        """True when it rang since the last wait; False after `timeout` seconds. Rings between waits are kept."""
        ...


class Database(Protocol):
    #: several processes may have it open
    shared: bool

    async def read(self, sql: str, /, **params: Value) -> list[Row]: ...

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
