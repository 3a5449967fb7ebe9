"""PostgreSQL through asyncpg, for more than one machine.

Parameters have the types PostgreSQL infers from the statement: an int for a TEXT column fails, it is not converted.
An integer parameter beside a literal (`:n + 1`) is BIGINT, as all integers of the dialect are. With
`durability = "delayed"` a write marked `runtime` commits with `synchronous_commit = off`: the server's crash may lose
the last of them (less than a second), a crash of Skep loses none.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import asyncpg

from skep.engines.db import migration
from skep.engines.db.base import Bell, Row, Tx, Value
from skep.engines.db.bells import Bells
from skep.engines.db.notify import NOTIFY, Listener
from skep.engines.db.postgres_errors import CAUSES, lost, meaning, worth_another_try
from skep.engines.db.sql import insert_of_arrays, numbered, shown
from skep.engines.db.transaction import Transaction
from skep.errors import BadInput, Busy, SkepError, Unavailable

T = TypeVar("T")

CONNECTIONS = 10
TRIES = 5
CONNECT_SECONDS = 10.0
#: waiting longer than this for a free connection is answered with Busy
PATIENCE = 30.0
#: what is under way at the end gets this long
CLOSE_SECONDS = 10.0
_MIGRATING = "SELECT pg_advisory_xact_lock(7337)"


async def open_postgres(url: str, *, data: Path, durability: Literal["full", "delayed"]) -> "Postgres":
    """`postgresql://user:password@host1:5432,host2/database`; of several hosts the one that takes writes is used."""
    try:
        where = hosts(url)
        options = {"target_session_attrs": "read-write"} if "," in where else {}
        url = url.replace("postgres://", "postgresql://", 1)
        pool = await asyncpg.create_pool(
            url, min_size=1, max_size=CONNECTIONS, timeout=CONNECT_SECONDS, connection_class=_Connection, **options
        )
    except ValueError as error:
        raise BadInput(
            "the database URL is not understood",
            hint="postgresql://user:password@host:5432/name, with %40 for @ and %2F for / in the password",
        ) from error
    except CAUSES as error:
        raise meaning(error, where=where) from error
    return Postgres(pool, lambda: asyncpg.connect(url, timeout=CONNECT_SECONDS, **options), where, durability)


def hosts(url: str) -> str:
    """Host and port of each server, without user and password."""
    place = urlsplit(url).netloc
    if "@" in url and "@" not in place:
        return "the server in its URL"  # some character is not quoted: who knows what is the password
    return place.rpartition("@")[2] or "the local socket"


class _Connection(asyncpg.Connection):  # type: ignore[misc]
    """Nothing here leaves state in a session, so there is none to reset between two users of a connection."""

    def get_reset_query(self) -> str:
        return ""


class _Tx(Transaction):
    def __init__(self, connection: Any, where: str, types: dict[str, tuple[str, ...]]) -> None:
        super().__init__()
        self.connection = connection
        self._where = where
        self._types = types

    async def talk(self, say: Callable[..., Awaitable[T]], *args: Any, sql: str = "") -> T:
        """Everything said to the server goes through here, so that its errors are told from those of a `work`."""
        try:
            return await say(*args)
        except CAUSES as error:
            self.failed = meaning(error, where=self._where, sql=sql)
            raise self.failed from error

    async def _rows(self, sql: str, params: Mapping[str, Value]) -> list[Row]:
        text, names, _ = await self._prepared(sql)
        values = _picked(sql, names, params)
        return [dict(row) for row in await self.talk(self.connection.fetch, text, *values, sql=sql)]

    async def _many(self, sql: str, rows: Sequence[Mapping[str, Value]]) -> None:
        text, names, types = await self._prepared(sql)
        values = [_picked(sql, names, row) for row in rows]
        at_once = insert_of_arrays(sql, types)
        if at_once is None:
            await self.talk(self.connection.executemany, text, values, sql=sql)
        else:
            await self.talk(self.connection.execute, at_once, *map(list, zip(*values, strict=True)), sql=sql)

    async def _prepared(self, sql: str) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """Text for the server, names and types of its parameters."""
        text, names = numbered(sql)
        types = self._types.get(sql, ())
        if names and not types:
            prepared = await self.talk(self.connection.prepare, text, sql=sql)
            types = tuple("int8" if kind.name == "int4" else kind.name for kind in prepared.get_parameters())
            if len(self._types) >= 4096:
                self._types.clear()
            self._types[sql] = types
        return *numbered(sql, tuple("::int8" if kind == "int8" else "" for kind in types)), types


def _picked(sql: str, names: Sequence[str], params: Mapping[str, Value]) -> list[Value]:
    try:
        return [params[name] for name in names]
    except KeyError as error:
        raise SkepError(f"no value for parameter {error} in: {shown(sql)}") from error


class _Again(Exception):
    """Nothing has happened; another try may succeed. `failure` is what to tell when there is none left."""

    def __init__(self, failure: SkepError) -> None:
        super().__init__(str(failure))
        self.failure = failure


class Postgres:
    shared = True

    def __init__(
        self,
        pool: Any,
        connect: Callable[[], Awaitable[Any]],
        where: str,
        durability: Literal["full", "delayed"],
    ) -> None:
        self._pool = pool
        self._where = where
        self._delayed = durability == "delayed"
        self._listener = Listener(connect, Bells())
        #: Types of parameters by statement, as PostgreSQL infers them. Beside a literal it takes one for a 4-byte
        #: integer, which would fail only once numbers grow large: so every integer is sent as an 8-byte one.
        self._types: dict[str, tuple[str, ...]] = {}
        self._closed = False

    async def read(self, sql: str, /, **params: Value) -> list[Row]:
        async def fetch(tx: _Tx) -> list[Row]:
            return await tx.rows(sql, **params)

        return await self._tried(fetch)

    async def write(self, work: Callable[[Tx], Awaitable[T]], *, runtime: bool = False) -> T:
        lazy = runtime and self._delayed
        return await self._tried(lambda tx: self._transact(tx, work, lazy))

    def listen(self, channel: str) -> AbstractAsyncContextManager[Bell]:
        return self._listener.listen(channel)

    async def migrate(self, room: str, steps: Sequence[str]) -> None:
        await migration.migrate(self, room, steps, lock=_MIGRATING)

    async def now(self) -> float:
        rows = await self.read("SELECT CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION) AS now")
        return float(rows[0]["now"])

    async def close(self) -> None:
        self._closed = True
        await self._listener.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    async def _transact(self, tx: _Tx, work: Callable[[Tx], Awaitable[T]], lazy: bool) -> T:
        transaction = tx.connection.transaction()
        await tx.talk(transaction.start)
        try:
            if lazy:
                await tx.talk(tx.connection.execute, "SET LOCAL synchronous_commit = off")
            result = await work(tx)
            if tx.failed is not None:
                raise tx.failed
            if tx.rung:
                await tx.talk(tx.connection.execute, NOTIFY, sorted(tx.rung))
        except BaseException:
            with suppress(*CAUSES):  # a connection that cannot roll back is thrown away when it is released
                await transaction.rollback()
            raise
        try:
            await tx.talk(transaction.commit)
        except SkepError as error:
            if error.__cause__ is None or not lost(error.__cause__):
                raise
            tx.failed = None  # asking again could do it twice
            text = "PostgreSQL went away during a commit; it may or may not have been stored"
            raise Unavailable(text, hint=f"is it running at {self._where}?") from error
        return result

    async def _tried(self, action: Callable[[_Tx], Awaitable[T]]) -> T:
        """Again when the server asks for it or went away before a commit began; not without end."""
        pause = 0.05
        for _ in range(TRIES - 1):
            try:
                return await self._once(action)
            except _Again:
                await asyncio.sleep(pause)
                pause *= 2
        try:
            return await self._once(action)
        except _Again as again:
            raise again.failure from again.__cause__

    async def _once(self, action: Callable[[_Tx], Awaitable[T]]) -> T:
        async with self._connection() as connection:
            tx = _Tx(connection, self._where, self._types)
            try:
                return await action(tx)
            except Exception:
                cause = tx.failed and tx.failed.__cause__
                if isinstance(cause, asyncpg.ReadOnlySQLTransactionError):
                    await self._pool.expire_connections()
                if tx.failed is None or cause is None or not worth_another_try(cause):
                    raise
                raise _Again(tx.failed) from cause
            finally:
                tx.ended = True

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        if self._closed:
            raise Unavailable("the database is closed")
        try:
            connection = await self._pool.acquire(timeout=PATIENCE)
        except CAUSES as error:
            if isinstance(error, TimeoutError) and self._pool.get_size() == CONNECTIONS:
                raise Busy("every connection to PostgreSQL is in use", hint="try again in a moment") from None
            raise _Again(meaning(error, where=self._where)) from error
        try:
            yield connection
        except _Again as again:
            if again.__cause__ is not None and lost(again.__cause__):
                with suppress(*CAUSES):
                    connection.terminate()
            raise
        finally:
            with suppress(*CAUSES):
                await self._pool.release(connection)
