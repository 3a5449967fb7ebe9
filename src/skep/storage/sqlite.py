"""The embedded database: one SQLite file, one writer thread with group commit, readers in parallel.

What an answered write survives:

| durability | write                | kill -9 of the process | power loss                                        |
|------------|----------------------|------------------------|---------------------------------------------------|
| full       | every                | kept                   | kept                                              |
| delayed    | not marked `runtime` | kept                   | kept, with every runtime write before it          |
| delayed    | marked `runtime`     | kept                   | lost back to the last full write or checkpoint;   |
|            |                      |                        | the file is never damaged                         |
"""

import asyncio
import copy
import errno
import queue
import shutil
import tempfile
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal, TypeVar

import apsw

from skep.base.clock import SystemClock
from skep.base.errors import BadInput, Busy, Conflict, Damaged, NoSpace, SkepError, TooLarge, Unavailable
from skep.storage import database
from skep.storage.database import Bell, Bells, Param, Row, Transaction, Tx, Value, for_sqlite, shown, spread

# One SQLite file through apsw: how a connection is set up, how statements run, what its errors mean to people.

Sync = Literal["FULL", "NORMAL", "OFF"]

#: another process holding the file (a backup, a shell) is waited for this long
BUSY_MILLISECONDS = 5_000


#: KiB; whoever reads drops its pages after each write, and the machine keeps the file in memory anyway
_CACHE, _READ_CACHE = 32_768, 4_096


def connect(path: Path, *, sync: Sync = "FULL", read_only: bool = False) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    try:
        connection = apsw.Connection(str(path), flags=flags, statementcachesize=512)
    except apsw.Error as error:
        raise meaning(error, None, path=path) from error
    try:
        connection.set_busy_timeout(BUSY_MILLISECONDS)
        if not read_only:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA journal_size_limit = 67108864")
            connection.execute("PRAGMA wal_autocheckpoint = 4000")
            connection.execute(f"PRAGMA synchronous = {sync}")
            connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA cache_size = {-_READ_CACHE if read_only else -_CACHE}")
        connection.execute(
            "SELECT count(*) FROM sqlite_schema"
        ).fetchall()  # a file that is no database shows itself here
    except apsw.Error as error:
        connection.close(True)
        raise meaning(error, connection, path=path) from error
    return connection


def run(connection: apsw.Connection, sql: str, params: Mapping[str, Value]) -> list[Row]:
    try:
        cursor = connection.execute(for_sqlite(sql), params)
        try:
            names = [column[0] for column in cursor.get_description()]
        except apsw.ExecutionCompleteError:
            return []
        return [dict(zip(names, values, strict=True)) for values in cursor]
    except _CAUSES as error:
        raise meaning(error, connection, sql=sql) from error


def run_many(connection: apsw.Connection, sql: str, rows: Sequence[Mapping[str, Value]]) -> None:
    try:
        for _ in connection.executemany(for_sqlite(sql), rows):
            pass
    except _CAUSES as error:
        raise meaning(error, connection, sql=sql) from error


#: what apsw raises for a statement: its own errors, and Python's for parameters that are missing or do not fit
_CAUSES = (apsw.Error, KeyError, TypeError, OverflowError, UnicodeEncodeError)


def meaning(
    error: Exception, connection: apsw.Connection | None, *, sql: str = "", path: Path | None = None
) -> SkepError:
    """The error in Skep's words."""
    where = f" in: {shown(sql)}" if sql else f" ({path})" if path else ""
    if _no_space(error, connection):
        return NoSpace("the disk of the database is full" + where, hint="free some space; nothing stored is lost")
    match error:
        case apsw.ConstraintError():
            return Conflict(f"{error}{where}")
        case apsw.BusyError() | apsw.LockedError():
            return Unavailable(f"another process holds the database: {error}{where}", hint="try again in a moment")
        case apsw.CorruptError() | apsw.NotADBError():
            return Damaged(f"the database file is damaged: {error}{where}", hint="restore it from a backup")
        case apsw.IOError() | apsw.CantOpenError() | apsw.PermissionsError() | apsw.ReadOnlyError():
            hint = "look at the folder's permissions and at the disk"
            return Unavailable(f"the database file cannot be used: {error}{where}", hint=hint)
        case apsw.TooBigError():
            return TooLarge(f"a value is too large for the database{where}")
        case KeyError():
            return SkepError(f"no value for parameter {error}{where}")
        case TypeError() | OverflowError() | UnicodeEncodeError():
            return BadInput(f"a value does not fit the database: {error}{where}")
        case _:
            return SkepError(f"the database refused: {error}{where}")


def _no_space(error: Exception, connection: apsw.Connection | None) -> bool:
    if isinstance(error, apsw.FullError):
        return True
    number = connection.system_errno if connection is not None and isinstance(error, apsw.IOError) else 0
    return number in {errno.ENOSPC, errno.EDQUOT}


# The one writer of a SQLite file: a thread that commits in groups.
#
# Everything asked for while a commit runs becomes the next group: one transaction, a savepoint for each `work` so that
# a
# bad one fails alone, one COMMIT with one fsync, then all are answered. A lone caller waits for nobody else.

T = TypeVar("T")


class _Tx(Transaction):
    def __init__(self, connection: apsw.Connection) -> None:
        super().__init__()
        self._connection = connection

    async def _rows(self, sql: str, params: Mapping[str, Value]) -> list[Row]:
        return run(self._connection, sql, params)

    async def _many(self, sql: str, rows: Sequence[Mapping[str, Value]]) -> None:
        run_many(self._connection, sql, rows)


class _Job:
    """A `work` on its way: asked for on the loop, done on the thread, answered on the loop."""

    __slots__ = ("error", "future", "result", "runtime", "work")

    def __init__(self, work: Callable[[Tx], Awaitable[Any]], runtime: bool, future: asyncio.Future[Any]) -> None:
        self.work = work
        self.runtime = runtime
        self.future = future
        self.result: Any = None
        self.error: BaseException | None = None


class Writer:
    def __init__(
        self, path: Path, bells: Bells, *, full: Sync, runtime: Sync, capacity: int = 4096, patience: float = 30.0
    ) -> None:
        """`full` and `runtime` are the levels of sync for groups with and without anything but runtime state.

        At most `capacity` works are under way; who finds no place for `patience` seconds gets Busy.
        """
        self._loop = asyncio.get_running_loop()
        self._bells = bells
        self._full, self._runtime = full, runtime
        self._patience = patience
        self._places = asyncio.Semaphore(capacity)
        self._asked: list[_Job] = []
        self._queue: queue.SimpleQueue[list[_Job] | None] = queue.SimpleQueue()
        self._closed = False
        self._sync = full
        self._connection = connect(path, sync=full)
        self._thread = threading.Thread(target=self._serve, name=f"writer of {path.name}", daemon=True)
        self._thread.start()

    async def write(self, work: Callable[[Tx], Awaitable[T]], *, runtime: bool) -> T:
        await self._place()
        if self._closed:
            self._places.release()
            raise Unavailable("the database is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._asked.append(_Job(work, runtime, future))
        if len(self._asked) == 1:
            # one turn of the loop later, so that tasks woken together are written together
            self._loop.call_soon(self._hand_over)
        return await future

    async def close(self) -> None:
        """What was asked for is still written."""
        if self._closed:
            return
        self._closed = True
        self._hand_over()
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    async def _place(self) -> None:
        if not self._places.locked():
            await self._places.acquire()
            return
        try:
            async with asyncio.timeout(self._patience):
                await self._places.acquire()
        except TimeoutError:
            raise Busy("too many writes are waiting for the database", hint="try again in a moment") from None

    def _hand_over(self) -> None:
        if self._asked:
            self._queue.put(self._asked)
            self._asked = []

    def _answer(self, group: list[_Job], rung: set[str]) -> None:
        self._bells.ring(rung)
        for job in group:
            self._places.release()
            if job.future.done():
                continue  # its caller was cancelled
            if job.error is not None:
                job.future.set_exception(job.error)
            else:
                job.future.set_result(job.result)

    # from here on: the thread

    def _serve(self) -> None:
        going = True
        while going:
            group, going = self._take()
            if group:
                rung = self._commit(group)
                try:
                    self._loop.call_soon_threadsafe(self._answer, group, rung)
                except RuntimeError:
                    break  # the loop is gone, and with it everybody who could be answered
        self._connection.close(True)

    def _take(self) -> tuple[list[_Job], bool]:
        """Everything that is waiting now, and whether more may come."""
        group: list[_Job] = []
        asked = self._queue.get()
        while asked is not None:
            group += (job for job in asked if not job.future.cancelled())
            try:
                asked = self._queue.get_nowait()
            except queue.Empty:
                return group, True
        return group, False

    def _commit(self, group: list[_Job]) -> set[str]:
        """Do the group in one transaction; each job then has its result or error. Returns the bells to ring."""
        rung: set[str] = set()
        connection = self._connection
        try:
            self._set_sync(self._runtime if all(job.runtime for job in group) else self._full)
            connection.execute("BEGIN IMMEDIATE")
            for job in group:
                rung |= self._do(job)
            connection.execute("COMMIT")
        except BaseException as error:
            failure = meaning(error, connection) if isinstance(error, apsw.Error) else error
            self._roll_back()
            for job in group:
                # each its own, or their tracebacks would grow into one
                job.error = job.error or (copy.copy(failure) if isinstance(failure, SkepError) else failure)
            return set()
        return rung

    def _set_sync(self, sync: Sync) -> None:
        if sync != self._sync:
            self._connection.execute(f"PRAGMA synchronous = {sync}")
            self._sync = sync

    def _do(self, job: _Job) -> set[str]:
        connection = self._connection
        tx = _Tx(connection)
        connection.execute("SAVEPOINT work")
        try:
            job.result = drive(job.work, tx)
            if tx.failed is not None:
                raise tx.failed
        except BaseException as error:
            job.error = error
            if not connection.in_transaction:
                # a full disk may end the whole transaction: nobody's work is in it any more
                raise tx.failed or error from error
            connection.execute("ROLLBACK TO work")
            tx.rung.clear()
        finally:
            tx.ended = True
        connection.execute("RELEASE work")
        return tx.rung

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except apsw.Error:
                # the file is in trouble; the next BEGIN says so
                return


def drive(work: Callable[[Tx], Awaitable[T]], tx: Tx) -> T:
    """Run a coroutine that never has to wait."""
    steps = work(tx).__await__()
    try:
        next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    except RuntimeError as error:
        if str(error) == "no running event loop":
            raise _strayed() from error
        raise
    steps.close()
    raise _strayed()


def _strayed() -> SkepError:
    return SkepError(
        "the function given to write() awaited something other than its transaction",
        hint="do the other waiting before or after write()",
    )


Durability = Literal["full", "delayed"]

READERS = 4


async def open_sqlite(url: str, *, data: Path, durability: Durability) -> "Sqlite":
    """`sqlite:` is DATA/skep.db; `sqlite:PATH` that file, relative to DATA."""
    path = path_of(url, data)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"cannot make the folder of the database {path}: {error.strerror}") from error
    return Sqlite(path, full="FULL", runtime="NORMAL" if durability == "delayed" else "FULL")


def path_of(url: str, data: Path) -> Path:
    return data / (url.partition(":")[2].removeprefix("//") or "skep.db")


async def open_memory(url: str, *, data: Path, durability: Durability) -> "Sqlite":
    """For trying out: a file in a private folder, never synced, gone after close."""
    folder = Path(tempfile.mkdtemp(prefix="skep-"))
    return Sqlite(folder / "skep.db", full="OFF", runtime="OFF", remove=folder)


class Sqlite:
    shared = False

    def __init__(
        self,
        path: Path,
        *,
        full: Sync,
        runtime: Sync,
        remove: Path | None = None,
        capacity: int = 4096,
        patience: float = 30.0,
    ) -> None:
        self._path = path
        self._remove = remove
        self._bells = Bells()
        self._clock = SystemClock()
        self._writer = Writer(path, self._bells, full=full, runtime=runtime, capacity=capacity, patience=patience)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix=f"reader of {path.name}")
        self._mine = threading.local()
        self._connections: list[apsw.Connection] = []

    async def read(self, sql: str, /, **params: Param) -> list[Row]:
        loop = asyncio.get_running_loop()
        try:
            answer = loop.run_in_executor(self._readers, self._read, *spread(sql, params))
        except RuntimeError:
            raise Unavailable("the database is closed") from None
        return await answer

    async def write(self, work: Callable[[Tx], Awaitable[T]], *, runtime: bool = False) -> T:
        return await self._writer.write(work, runtime=runtime)

    def listen(self, channel: str) -> AbstractAsyncContextManager[Bell]:
        return self._bells.listen(channel)

    async def migrate(self, room: str, steps: Sequence[str]) -> None:
        await database.migrate(self, room, steps)

    async def now(self) -> float:
        return self._clock.now()

    async def close(self) -> None:
        await asyncio.to_thread(self._readers.shutdown)
        while self._connections:
            self._connections.pop().close(True)
        await self._writer.close()  # the last one folds the write-ahead log into the file
        if self._remove is not None:
            await asyncio.to_thread(shutil.rmtree, self._remove, ignore_errors=True)

    def _read(self, sql: str, params: dict[str, Value]) -> list[Row]:
        """On one of the reading threads, each with a connection of its own."""
        if not hasattr(self._mine, "connection"):
            self._mine.connection = connect(self._path, read_only=True)
            self._connections.append(self._mine.connection)
        return run(self._mine.connection, sql, params)
