"""What a worker gives into a tunnel: only what it holds, only where a ticket of its coordinator sends it."""

import asyncio
import logging
import os
import re
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

from skep.base.errors import Busy, NotFound, SkepError
from skep.base.io import Stream
from skep.rpc.connect import Dial
from skep.rpc.messages import BlobOf, DeltaOf, FolderOf, GitOf, Open, What
from skep.rpc.transfer import send_blob, send_folder
from skep.rpc.tunnel import dial
from skep.sources.git.mirror import folder_of
from skep.sources.git.process import give
from skep.sources.polling.store import Store, Watch
from skep.storage.blobs import Blobs, checked_id
from skep.storage.code_index.analysis_files import SUFFIX

log = logging.getLogger(__name__)

AT_ONCE = 16
#: a taker that never finishes must not keep a place for ever
_LONGEST = 21_600.0
#: nor a mirror that was let go of
PATIENCE = 600.0
_LOOK_SECONDS = 0.5
_DELTA = re.compile(r"dlt_[0-9A-Z]{26}")
_BOOK = re.compile(r"[a-z]+_[0-9A-Z]{26}")
Give = Callable[[Stream], Awaitable[None]]
Made = Callable[[Watch, DeltaOf], AbstractAsyncContextManager[Path]]


class Giving:
    def __init__(
        self, store: Store, data: Path, here: Callable[[], Dial], made: Made | None = None, blobs: Blobs | None = None
    ) -> None:
        """`here`: the coordinator that relays for whoever has no address. `made`: builds deltas."""
        self._store = store
        self._data = data
        self._here = here
        self._made = made
        self._blobs = blobs
        self._under_way: dict[asyncio.Task[None], What] = {}

    def open(self, asked: Open) -> None:
        task = asyncio.create_task(self._open(asked, busy=len(self._under_way) >= AT_ONCE))
        self._under_way[task] = asked.what
        task.add_done_callback(self._under_way.pop)

    async def finish(self, source: str, wanted: Callable[[], bool]) -> None:
        """Until nobody reads the mirror any more, which was let go of; whoever takes too long is cut off."""
        clock = asyncio.get_running_loop().time
        end = clock() + PATIENCE
        while wanted() and (reading := [task for task, what in self._under_way.items() if _reads(what, source)]):
            for task in reading if clock() >= end else ():
                task.cancel()
            await asyncio.wait(reading, timeout=_LOOK_SECONDS)

    async def close(self) -> None:
        under_way = list(self._under_way)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def _open(self, asked: Open, *, busy: bool) -> None:
        here, declined = self._here(), None
        address = asked.address or here.targets[0]
        try:
            if busy:
                raise Busy(f"{self._store.member} gives {AT_ONCE} tunnels already", hint="it will be tried again")
            into = await self._find(asked.what)
        except SkepError as error:
            declined = error
        try:
            ticket, member = asked.ticket, self._store.member
            async with asyncio.timeout(_LONGEST), dial(address, ticket, member, here.ca, declined) as stream:
                if declined is None:
                    await into(stream)
        except (SkepError, OSError) as error:
            # whoever takes it knows as well, and says so to somebody
            log.info("a tunnel to %s ended early: %s", address, error)

    async def _find(self, what: What) -> Give:
        missing = NotFound(f"{self._store.member} does not have {_named(what)}")
        match what:
            case GitOf(source):
                watch = await self._store.watch(source)
                if watch is None or not (folder := folder_of(self._data, watch.source)).exists():
                    raise missing
                return partial(give, folder)
            case FolderOf("book", id):
                plan, _, name = id.partition("/")
                book = self._data / "worker" / "deltas" / plan / f"{name}{SUFFIX}"
                if not _DELTA.fullmatch(plan) or not _BOOK.fullmatch(name) or not book.is_file():
                    raise missing
                return partial(_send_alone, book)
            case FolderOf("pack", id):
                pack = self._data / "worker" / "packs" / id
                if not _BOOK.fullmatch(id) or not pack.is_file():
                    raise missing
                return partial(_send_alone, pack)
            case FolderOf(_, id):
                folder = self._data / "worker" / "deltas" / id
                if not _DELTA.fullmatch(id) or not folder.is_dir():
                    raise missing
                return partial(send_folder, folder)
            case DeltaOf(source):
                watch = await self._store.watch(source)
                there = folder_of(self._data, source).exists()
                if watch is None or not watch.last_looked or not there or self._made is None:
                    raise missing
                return partial(_send_made, self._made(watch, what))
            case BlobOf(id):
                if self._blobs is None or await self._blobs.stat(checked_id(id)) is None:
                    raise missing
                return partial(send_blob, self._blobs, id)


def _reads(what: What, source: str) -> bool:
    return isinstance(what, GitOf | DeltaOf) and what.source == source


def _named(what: What) -> str:
    """For people."""
    match what:
        case GitOf(source):
            return f"a mirror of {source}"
        case BlobOf(id):
            return f"the blob {id}"
        case FolderOf(kind, id):
            return f"the {kind} {id}"
        case DeltaOf(source):
            return f"{source} to index"


async def _send_made(made: AbstractAsyncContextManager[Path], stream: Stream) -> None:
    async with made as folder:
        await send_folder(folder, stream)


async def _send_alone(file: Path, stream: Stream) -> None:
    """A folder with nothing else in it."""
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".give-") as folder:
        await asyncio.to_thread(os.link, file, Path(folder) / file.name)
        await send_folder(Path(folder), stream)
