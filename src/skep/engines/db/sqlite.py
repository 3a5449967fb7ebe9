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
import shutil
import tempfile
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal, TypeVar

import apsw

from skep.clock import SystemClock
from skep.engines.db import migration
from skep.engines.db.base import Bell, Param, Row, Tx, Value, spread
from skep.engines.db.bells import Bells
from skep.engines.db.sqlite_file import Sync, connect, run
from skep.engines.db.writer import Writer
from skep.errors import Unavailable

T = TypeVar("T")
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
        await migration.migrate(self, room, steps)

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
