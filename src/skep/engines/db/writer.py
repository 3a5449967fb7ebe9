"""The one writer of a SQLite file: a thread that commits in groups.

Everything asked for while a commit runs becomes the next group: one transaction, a savepoint for each `work` so that a
bad one fails alone, one COMMIT with one fsync, then all are answered. A lone caller waits for nobody else.
"""

import asyncio
import copy
import queue
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw

from skep.engines.db.base import Row, Tx, Value
from skep.engines.db.bells import Bells
from skep.engines.db.sqlite_file import Sync, connect, meaning, run, run_many
from skep.engines.db.transaction import Transaction
from skep.errors import Busy, SkepError, Unavailable

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
