"""Records in a folder, through tantivy: the engine that needs no server."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from skep.engines.records.base import Ask, Kind, OneOf, Page, Record
from skep.engines.records.shelf import Change, Shelf, set_aside
from skep.errors import Busy, Damaged, NotFound

log = logging.getLogger(__name__)

_READERS = 4
T = TypeVar("T")


async def open_folder(url: str, *, data: Path) -> "FolderRecords":
    """`file:` is DATA/records, `file:PATH` another folder."""
    path = url.partition(":")[2]
    return FolderRecords(Path(path) if path else data / "records")


class FolderRecords:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shelves: dict[str, Shelf] = {}
        #: what waits to be written, by kind: a commit costs the same for one change and for many
        self._waiting: dict[str, deque[tuple[Change, Future[None]]]] = {}
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="records")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="records-writer")

    async def declare(self, kind: Kind) -> bool:
        return await _run(self._writer, lambda: self._open(kind))

    async def filled(self, kind: str) -> None:
        await _run(self._writer, self._shelf(kind).filled)

    async def put(self, kind: str, records: Sequence[Record]) -> None:
        if records:
            await self._write(kind, records)

    async def delete(self, kind: str, which: OneOf) -> None:
        await self._write(kind, which)

    async def search(self, kind: str, ask: Ask) -> Page:
        shelf = self._shelf(kind)
        try:
            async with asyncio.timeout(ask.seconds):
                return await _run(self._readers, lambda: shelf.search(ask))
        except TimeoutError:
            raise Busy(
                f"the search took longer than {ask.seconds:g} seconds", hint="narrow the query, or try again later"
            ) from None

    async def check(self) -> list[str]:
        found = [await _run(self._writer, partial(self._check, kind)) for kind in list(self._shelves)]
        return [kind for kind in found if kind is not None]

    async def close(self) -> None:
        shelves, self._shelves = self._shelves, {}
        for shelf in shelves.values():
            await _run(self._writer, shelf.close)
        for executor in (self._readers, self._writer):
            await asyncio.to_thread(executor.shutdown)

    def _shelf(self, kind: str) -> Shelf:
        if kind not in self._shelves:
            raise NotFound(f"there are no records of kind {kind[:100]!r}")
        return self._shelves[kind]

    async def _write(self, kind: str, change: Change) -> None:
        await _run(self._readers, partial(self._shelf(kind).prepare, change))
        done: Future[None] = Future()
        self._waiting[kind].append((change, done))
        self._writer.submit(self._drain, kind)
        await asyncio.wrap_future(done)

    # in the writer's thread

    def _open(self, kind: Kind) -> bool:
        folder = self._folder / kind.name
        try:
            shelf = Shelf(folder, kind)
        except Damaged as error:
            log.error("records are set aside", extra={"kind": kind.name, "reason": error.message})
            set_aside(folder)
            shelf = Shelf(folder, kind)
        self._shelves[kind.name] = shelf
        self._waiting.setdefault(kind.name, deque())
        return not shelf.is_filled

    def _check(self, kind: str) -> str | None:
        shelf = self._shelves[kind]
        try:
            shelf.verify()
        except Damaged:
            shelf.close()
            self._open(shelf.kind)
            return kind
        return None

    def _drain(self, kind: str) -> None:
        """Everything that has come in while the last commit ran, in one commit. Who was cancelled is left out."""
        waiting = self._waiting[kind]
        taken = [waiting.popleft() for _ in range(len(waiting))]
        taken = [one for one in taken if one[1].set_running_or_notify_cancel()]
        if not taken:
            return
        try:
            self._shelves[kind].apply([change for change, _ in taken])
        except BaseException as error:
            for _, done in taken:
                done.set_exception(error)
        else:
            for _, done in taken:
                done.set_result(None)


async def _run(executor: Executor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(executor, work)
