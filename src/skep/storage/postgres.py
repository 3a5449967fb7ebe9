"""PostgreSQL through asyncpg, for more than one machine.

Parameters have the types PostgreSQL infers from the statement: an int for a TEXT column fails, it is not converted.
An integer parameter beside a literal (`:n + 1`) is BIGINT, as all integers of the dialect are. With
`durability = "delayed"` a write marked `runtime` commits with `synchronous_commit = off`: the server's crash may lose
the last of them (less than a second), a crash of Skep loses none.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

import asyncpg

from skep.base.errors import BadInput, Busy, Conflict, Damaged, NoSpace, SkepError, TooLarge, Unavailable
from skep.storage import database
from skep.storage.database import (
    Bell,
    Bells,
    Param,
    Row,
    Statement,
    Transaction,
    Tx,
    Value,
    insert_of_arrays,
    numbered,
    shown,
    side_by_side,
)

# What PostgreSQL's and asyncpg's errors mean to people.

#: everything asyncpg raises on purpose, and what sockets raise below it
CAUSES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)

#: ended by the server in favour of another transaction, or planned for tables that changed since
_COLLIDED = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.InvalidCachedStatementError,
)
_LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.ReadOnlySQLTransactionError,  # the primary became a standby
    asyncpg.InternalClientError,  # what asyncpg says after the server ended a connection nobody was using
    OSError,
    TimeoutError,
)


def lost(error: BaseException) -> bool:
    """The connection is of no use any more."""
    if isinstance(error, asyncpg.InterfaceError):
        return "closed" in str(error) or "released" in str(error)
    return isinstance(error, _LOST)


def worth_another_try(error: BaseException) -> bool:
    return isinstance(error, _COLLIDED) or lost(error)


def meaning(error: Exception, *, where: str, sql: str = "") -> SkepError:
    """`where` is host and port: a URL would carry the password."""
    text = str(error) or type(error).__name__
    at = f" in: {shown(sql)}" if sql else ""
    state = getattr(error, "sqlstate", None) or ""
    if state == "53100":
        return NoSpace("the disk of PostgreSQL is full" + at, hint=f"free some space at {where}")
    if lost(error) or state.startswith("53"):
        return Unavailable(
            f"PostgreSQL does not answer: {text}", hint=f"is it running at {where}, and reachable from here?"
        )
    if state.startswith(("28", "3D")):
        return Unavailable(
            f"PostgreSQL refused us: {text}", hint=f"look at user, password and database name for {where}"
        )
    if state.startswith("23"):
        return Conflict(text + at)
    if isinstance(error, _COLLIDED):
        return Conflict(f"other transactions were in the way too often: {text}{at}", hint="try again in a moment")
    if state.startswith("XX00") and state != "XX000":
        return Damaged(f"PostgreSQL's data is damaged: {text}", hint=f"look at the server's log at {where}")
    if state.startswith("54"):
        return TooLarge(text + at)
    if state.startswith("22") or isinstance(error, asyncpg.DataError):
        return BadInput(f"a value does not fit the database: {text}{at}")
    return SkepError(f"the database refused: {text}{at}")


# Bells across processes: one connection listens for all channels, and comes back by itself.
#
# All channels share one PostgreSQL channel and travel as its payload, because channel names are cut at 63 bytes there.
# Bells of the process that rings are rung directly; what it hears of itself is marked with its own tag, and passed
# over.

CHANNEL = "skep"
RECONNECT_MAX = 5.0


class Listener:
    def __init__(self, connect: Callable[[], Awaitable[Any]], bells: Bells) -> None:
        self._connect = connect
        self._bells = bells
        self._tag = secrets.token_hex(6)
        self._task: asyncio.Task[None] | None = None
        #: set once the first attempt to connect has ended, well or badly
        self._tried = asyncio.Event()

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[Bell]:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="listens to PostgreSQL")
        # hung before the connection listens: if it is down, all bells ring when it is back
        async with self._bells.listen(channel) as bell:
            await self._tried.wait()
            yield bell

    def notify(self, channels: Iterable[str]) -> str:
        """A statement without parameters, so that it can travel with a COMMIT; then `ring`."""
        quoted = (channel.replace("\\", "\\\\").replace("'", "''") for channel in channels)
        return "".join(f"SELECT pg_notify('{CHANNEL}', E'{self._tag}{channel}'); " for channel in quoted)

    def ring(self, channels: Iterable[str]) -> None:
        """The bells of this process."""
        self._bells.ring(channels)

    def _heard(self, payload: str) -> None:
        if not payload.startswith(self._tag):
            self._bells.ring((payload[len(self._tag) :],))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        pause = 0.1
        while True:
            try:
                connection = await self._connect()
            except CAUSES:
                self._tried.set()
                await asyncio.sleep(pause)
                pause = min(pause * 2, RECONNECT_MAX)
                continue
            try:
                await self._hear(connection)
                pause = 0.1
            except CAUSES:
                await asyncio.sleep(pause)
            finally:
                connection.terminate()

    async def _hear(self, connection: Any) -> None:
        """Until the connection ends."""
        ended = asyncio.Event()
        connection.add_termination_listener(lambda _: ended.set())
        await connection.add_listener(CHANNEL, lambda _c, _pid, _channel, payload: self._heard(payload))
        if self._tried.is_set():
            self._bells.ring_all()  # something may have been missed while nobody listened
        self._tried.set()
        await ended.wait()


T = TypeVar("T")

CONNECTIONS = 10
TRIES = 5
CONNECT_SECONDS = 10.0
#: waiting longer than this for a free connection is answered with Busy
PATIENCE = 30.0
#: what is under way at the end gets this long
CLOSE_SECONDS = 10.0
#: statements remembered by this process, and prepared in each connection
_STATEMENTS, _CACHED = 4096, 512
_MIGRATING = "SELECT pg_advisory_xact_lock(7337)"


async def open_postgres(url: str, *, data: Path, durability: Literal["full", "delayed"]) -> "Postgres":
    """`postgresql://user:password@host1:5432,host2/database`; of several hosts the one that takes writes is used."""
    try:
        where = hosts(url)
        options = {"target_session_attrs": "read-write"} if "," in where else {}
        url = url.replace("postgres://", "postgresql://", 1)
        pool = await asyncpg.create_pool(
            url,
            min_size=1,
            max_size=CONNECTIONS,
            timeout=CONNECT_SECONDS,
            connection_class=_Connection,
            statement_cache_size=_CACHED,
            **options,
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


class _Known(NamedTuple):
    """A statement as the server knows it. Beside a literal it takes a parameter for a 4-byte integer, which would fail
    only once numbers grow large: so every integer is sent as an 8-byte one.
    """

    text: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    columns: tuple[str, ...]


class _Tx(Transaction):
    def __init__(self, connection: Any, where: str, known: dict[str, _Known]) -> None:
        super().__init__()
        self.connection = connection
        self._where = where
        self._statements = known

    async def talk(self, say: Callable[..., Awaitable[T]], *args: Any, sql: str = "") -> T:
        """Everything said to the server goes through here, so that its errors are told from those of a `work`."""
        try:
            return await say(*args)
        except CAUSES as error:
            self.failed = meaning(error, where=self._where, sql=sql)
            raise self.failed from error

    async def several(self, statements: Sequence[Statement]) -> list[list[Row]]:
        if len(statements) < 2:
            return await super().several(statements)
        columns = [(await self._known(sql)).columns for sql, _ in statements]
        sql = side_by_side(tuple(sql for sql, _ in statements), tuple(map(bool, columns)))
        params = {f"{name}_{n}": value for n, (_, own) in enumerate(statements) for name, value in own.items()}
        found: list[list[Row]] = [[] for _ in statements]
        for row in await self.rows(sql, **params):
            found[row["number"]].append(dict(zip(columns[row["number"]], row["one"], strict=True)))
        return found

    async def _rows(self, sql: str, params: Mapping[str, Value]) -> list[Row]:
        known = await self._known(sql)
        values = _picked(sql, known.names, params)
        return [dict(row) for row in await self.talk(self.connection.fetch, known.text, *values, sql=sql)]

    async def _many(self, sql: str, rows: Sequence[Mapping[str, Value]]) -> None:
        known = await self._known(sql)
        values = [_picked(sql, known.names, row) for row in rows]
        at_once = insert_of_arrays(sql, known.types)
        if at_once is None:
            await self.talk(self.connection.executemany, known.text, values, sql=sql)
        else:
            await self.talk(self.connection.execute, at_once, *map(list, zip(*values, strict=True)), sql=sql)

    async def _known(self, sql: str) -> _Known:
        known = self._statements.get(sql)
        if known is None:
            text, names = numbered(sql)
            prepared = await self.talk(self.connection.prepare, text, sql=sql)
            types = tuple("int8" if kind.name == "int4" else kind.name for kind in prepared.get_parameters())
            text, _ = numbered(sql, tuple("::int8" if kind == "int8" else "" for kind in types))
            columns = tuple(column.name for column in prepared.get_attributes())
            if len(self._statements) >= _STATEMENTS:
                self._statements.clear()
            known = self._statements[sql] = _Known(text, names, types, columns)
        return known


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
        self._known: dict[str, _Known] = {}
        self._closed = False

    async def read(self, sql: str, /, **params: Param) -> list[Row]:
        async def fetch(tx: _Tx) -> list[Row]:
            return await tx.rows(sql, **params)

        return await self._tried(fetch)

    async def write(self, work: Callable[[Tx], Awaitable[T]], *, runtime: bool = False) -> T:
        lazy = runtime and self._delayed
        return await self._tried(lambda tx: self._transact(tx, work, lazy))

    def listen(self, channel: str) -> AbstractAsyncContextManager[Bell]:
        return self._listener.listen(channel)

    async def migrate(self, room: str, steps: Sequence[str]) -> None:
        await database.migrate(self, room, steps, lock=_MIGRATING)

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
        execute = tx.connection.execute
        committing = False
        try:
            await tx.talk(execute, "BEGIN; SET LOCAL synchronous_commit = off" if lazy else "BEGIN")
            result = await work(tx)
            if tx.failed is not None:
                raise tx.failed
            committing = True
            await tx.talk(execute, self._listener.notify(sorted(tx.rung)) + "COMMIT")
        except BaseException as error:
            with suppress(*CAUSES):  # a connection that cannot roll back is thrown away when it is released
                await execute("ROLLBACK")
            if not committing or error.__cause__ is None or not lost(error.__cause__):
                raise
            tx.failed = None  # asking again could do it twice
            text = "PostgreSQL went away during a commit; it may or may not have been stored"
            raise Unavailable(text, hint=f"is it running at {self._where}?") from error
        finally:
            if committing and tx.failed is None:
                self._listener.ring(tx.rung)
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
            tx = _Tx(connection, self._where, self._known)
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
