"""Index shards, books and packs of objects that come through tunnels, and their way into this process's own index."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from skep.base.clock import Clock
from skep.base.errors import Damaged, Unavailable
from skep.base.ids import new_id
from skep.fleet.tunnels import Tunnels
from skep.rpc.messages import DeltaOf, FolderOf
from skep.rpc.transfer import take_folder
from skep.sources.model import Held
from skep.sources.service import Sources
from skep.storage.code_index.base import Searcher
from skep.storage.code_index.model import GIVEN, BookInfo, Delta, Fence, Given, digest_of_tips


class Receiving:
    def __init__(
        self, clock: Clock, data: Path, largest: int, tunnels: Tunnels, sources: Sources, searcher: Searcher
    ) -> None:
        self._clock = clock
        self._data = data
        self._largest = largest
        self._tunnels = tunnels
        self._sources = sources
        self._searcher = searcher

    async def index(self, source: str, holder: str, published: str | None) -> None:
        """Bring this process's own index of a source to what its holder has, unless it is at the `published` tips."""
        held = await self._sources.held(source)
        stands = self._searcher.standing(held.number) if held else None
        if held is None or (stands and digest_of_tips(stands.tips) == published):
            return
        what = DeltaOf(source, stands.tips, stands.rules) if stands else DeltaOf(source)
        async with self._given(holder, held, what) as (given, folder):
            await self._adopt(held, given, folder)
            # a holder that is ahead publishes that soon, and this process hears of it
            if published and (given.delta is None or digest_of_tips(given.delta.tips) != published):
                raise Unavailable(f"{holder} does not have {source} at the commits that were published")

    async def told(self, source: str) -> Mapping[str, str]:
        held = await self._sources.held(source)
        return held.told if held else {}

    def indexed(self) -> set[str]:
        return {source for source, _ in self._searcher.indexed()}

    async def drop(self, source: str) -> None:
        """From this process's own index."""
        if held := await self._sources.held(source):
            await self._searcher.drop(source, held.number)

    async def verify(self, source: str, holder: str) -> None:
        """Have this process's own index of a source compared with the holder's mirror, and made anew if it differs."""
        held = await self._sources.held(source)
        stands = self._searcher.standing(held.number) if held else None
        if held is None:
            return
        what = DeltaOf(source)
        if stands:  # or its shards were damaged, and set aside
            what = DeltaOf(source, stands.tips, stands.rules, await self._searcher.digest(held.number))
        async with self._given(holder, held, what) as (given, folder):
            if given.delta is None or given.delta.base is not None:
                return
            # what changed is not for a comparison to bring: whoever publishes it tells saved searches of it
            if stands and given.delta.commit != stands.commit:
                raise Unavailable(f"{source} has changed meanwhile")
            await self._adopt(held, given, folder)

    @asynccontextmanager
    async def _given(self, holder: str, held: Held, what: DeltaOf) -> AsyncIterator[tuple[Given, Path]]:
        async with self._taken(holder, what) as folder:
            given = await asyncio.to_thread(_read, folder / GIVEN)
            if given.delta and (given.delta.source, given.delta.number) != (held.source, held.number):
                raise Damaged(f"{holder} gave the index of another source than {held.source}")
            yield given, folder

    async def _adopt(self, held: Held, given: Given, folder: Path) -> None:
        if given.delta is None:
            return
        fence = Fence(held.source, held.epoch, given.fetched_at)
        if not await self._searcher.adopt(_inside(given.delta, folder), fence):
            raise Unavailable(f"the index of {held.source} has moved on meanwhile")
        for book in given.books:
            await self._searcher.annotate(_nearby(book, folder))

    @asynccontextmanager
    async def delta(self, member: str, delta: Delta | None) -> AsyncIterator[Delta | None]:
        """The same delta, its shards on this machine."""
        if delta is None or await asyncio.to_thread(self._is_own, [info.folder for info in delta.shards]):
            yield delta
            return
        parts = [Path(info.folder).parts for info in delta.shards]
        ids = {one[-3] for one in parts if len(one) > 3}
        if len(ids) != 1:
            raise Damaged("a delta lies in one folder of its worker's deltas")
        async with self._taken(member, FolderOf("delta", ids.pop())) as folder:
            yield _inside(delta, folder)

    @asynccontextmanager
    async def book(self, member: str, book: BookInfo | None) -> AsyncIterator[BookInfo | None]:
        """The same book, on this machine."""
        if book is None or await asyncio.to_thread(self._is_own, [book.path]):
            yield book
            return
        async with self._taken(member, FolderOf("book", f"{Path(book.path).parent.name}/{book.id}")) as folder:
            yield _nearby(book, folder)

    @asynccontextmanager
    async def pack(self, member: str, path: str) -> AsyncIterator[Path | None]:
        """Bytes of harvested objects, on this machine. None: there are none."""
        if not path or await asyncio.to_thread(self._is_own, [path]):
            yield Path(path) if path else None
            return
        async with self._taken(member, FolderOf("pack", Path(path).name)) as folder:
            yield folder / Path(path).name

    @asynccontextmanager
    async def _taken(self, member: str, what: FolderOf | DeltaOf) -> AsyncIterator[Path]:
        """What a worker gave, as long as it is needed."""
        into = self._data / "incoming" / new_id("inc", self._clock.now())
        try:
            async with self._tunnels.opened(member, what) as stream:
                await take_folder(stream, into, self._largest)
            yield into
        finally:
            await asyncio.to_thread(shutil.rmtree, into, ignore_errors=True)

    def _is_own(self, paths: Sequence[str]) -> bool:
        """Made by the worker of this machine: whatever else a worker names is on its own."""
        ours = (self._data / "worker").resolve()
        return all(Path(path).resolve().is_relative_to(ours) and Path(path).exists() for path in paths)


def _read(path: Path) -> Given:
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=Given)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Damaged(f"a delta came without saying what it is: {error}") from None


def _inside(delta: Delta, folder: Path) -> Delta:
    shards = tuple(
        msgspec.structs.replace(info, folder=str(folder.joinpath(*Path(info.folder).parts[-2:])))
        for info in delta.shards
    )
    return msgspec.structs.replace(delta, shards=shards)


def _nearby(book: BookInfo, folder: Path) -> BookInfo:
    return msgspec.structs.replace(book, path=str(folder / Path(book.path).name))
