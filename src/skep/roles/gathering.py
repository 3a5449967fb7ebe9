"""Brings together what workers elsewhere have: mirrors to serve and browse, index shards to search.

On one machine there is nothing to gather: mirrors are read in place. Of a source that another machine holds a copy is
kept in DATA/gathered, brought up to date whenever the source has changed.
"""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec

from skep.clock import Clock
from skep.config import Settings
from skep.engines.db.base import Database, Row, Tx
from skep.errors import Damaged, SkepError
from skep.link.messages import FolderOf, GitOf
from skep.link.parcel import take_folder
from skep.link.tunnels import Tunnels
from skep.model.ids import new_id
from skep.model.search import BookInfo, Delta
from skep.model.source import Failure
from skep.sources.git import browse
from skep.sources.git.copying import Bounds, fetch_through
from skep.sources.git.mirror import folder_of
from skep.sources.service import MOVED
from skep.topics.service import CHANGES, Topics

log = logging.getLogger(__name__)

READER = "skep.gather"
GATHER = "gather"
#: mirrors brought at the same time
_AT_ONCE = 4
_AGAIN, _LONGEST = 10.0, 3_600.0
_STEPS = ["CREATE TABLE gather (source TEXT PRIMARY KEY, due DOUBLE PRECISION NOT NULL, failures BIGINT NOT NULL)"]


class _Told(msgspec.Struct):
    source: str


class Gathering:
    def __init__(self, db: Database, clock: Clock, topics: Topics, settings: Settings, tunnels: Tunnels) -> None:
        self._db = db
        self._clock = clock
        self._topics = topics
        self._data = Path(settings.data)
        self._bounds = Bounds(settings.fetch_timeout, settings.max_repository)
        self.tunnels = tunnels

    async def start(self) -> None:
        await self._db.migrate("gather", _STEPS)
        # whatever was on its way when an earlier process ended is asked for again
        await asyncio.to_thread(shutil.rmtree, self._data / "incoming", ignore_errors=True)

    def mirror(self, source: str) -> Path:
        """In place where it is on this machine, else the copy."""
        here = folder_of(self._data, source)
        return here if here.exists() else folder_of(self._data / "gathered", source)

    async def has(self, source: str, commit: str) -> bool:
        """Is it here? In place it always is; a copy may still be on its way."""
        folder = self.mirror(source)
        if folder == folder_of(self._data, source):
            return True
        return await asyncio.to_thread(folder.exists) and await browse.resolve(folder, commit) is not None

    # mirrors

    async def follow(self) -> None:
        """Note what has changed."""
        async with self._topics.listen(CHANGES) as bell:
            while True:
                messages = await self._topics.unread(READER, CHANGES, 1000)
                if not messages:
                    await bell.wait(30.0)
                    continue
                moved = {msgspec.json.decode(message.body, type=_Told).source for message in messages}
                await self._db.write(partial(self._note, moved, messages[-1].offset + 1))

    async def _note(self, sources: set[str], place: int, tx: Tx) -> None:
        now = self._clock.now()
        far = [source for source in sorted(sources) if not folder_of(self._data, source).exists()]
        await tx.many(
            "INSERT INTO gather (source, due, failures) VALUES (:source, :now, 0) "
            "ON CONFLICT (source) DO UPDATE SET due = excluded.due, failures = 0",
            [{"source": source, "now": now} for source in far],
        )
        await self._topics.commit(tx, READER, CHANGES, place)
        if far:
            tx.ring(GATHER)

    async def bring(self) -> None:
        """For ever: what is due, a few at a time."""
        async with self._db.listen(GATHER) as bell:
            while True:
                rows = await self._db.read(
                    "SELECT gather.source, gather.due, gather.failures, source.url, holding.member FROM gather "
                    "LEFT JOIN source ON source.id = gather.source AND source.state <> 'removed' "
                    "LEFT JOIN holding ON holding.source = gather.source "
                    "WHERE gather.due <= :now ORDER BY gather.due LIMIT :most",
                    now=self._clock.now(),
                    most=_AT_ONCE,
                )
                await asyncio.gather(*map(self._bring, rows))
                if not rows:
                    await bell.wait(_AGAIN)

    async def _bring(self, row: Row) -> None:
        source, reason = row["source"], ""
        if row["url"] and not folder_of(self._data, source).exists():
            try:
                reason = await self._fetch(source, row["url"], row["member"] or "")
            except SkepError as error:
                reason = error.message
        if reason:
            log.info("a copy of %s cannot be brought yet: %s", source, reason)
        await self._db.write(partial(self._brought, row, bool(reason)))

    async def _fetch(self, source: str, url: str, holder: str) -> str:
        folder = folder_of(self._data / "gathered", source)
        opened = partial(self.tunnels.opened, holder, GitOf(source))
        found = await fetch_through(folder, url, opened, self._bounds, lambda progress: None, self._clock.now())
        return found.message if isinstance(found, Failure) else ""

    async def _brought(self, row: Row, failed: bool, tx: Tx) -> None:
        """What changed again meanwhile is due again."""
        if not failed:
            tx.ring(MOVED)  # a list may have waited for it
            await tx.rows(
                "DELETE FROM gather WHERE source = :source AND due = :due", source=row["source"], due=row["due"]
            )
            return
        pause = min(_LONGEST, _AGAIN * 2 ** min(row["failures"], 20))
        await tx.rows(
            "UPDATE gather SET due = :next, failures = failures + 1 WHERE source = :source AND due = :due",
            next=self._clock.now() + pause,
            source=row["source"],
            due=row["due"],
        )

    # shards

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
            shards = tuple(
                msgspec.structs.replace(info, folder=str(folder.joinpath(*one[-2:])))
                for info, one in zip(delta.shards, parts, strict=True)
            )
            yield msgspec.structs.replace(delta, shards=shards)

    @asynccontextmanager
    async def book(self, member: str, book: BookInfo | None) -> AsyncIterator[BookInfo | None]:
        """The same book, on this machine."""
        if book is None or await asyncio.to_thread(self._is_own, [book.path]):
            yield book
            return
        async with self._taken(member, FolderOf("book", book.id)) as folder:
            yield msgspec.structs.replace(book, path=str(folder / Path(book.path).name))

    @asynccontextmanager
    async def _taken(self, member: str, what: FolderOf) -> AsyncIterator[Path]:
        """What a worker gave, as long as it is needed."""
        into = self._data / "incoming" / new_id("inc", self._clock.now())
        try:
            async with self.tunnels.opened(member, what) as stream:
                await take_folder(stream, into, self._bounds.largest)
            yield into
        finally:
            await asyncio.to_thread(shutil.rmtree, into, ignore_errors=True)

    def _is_own(self, paths: Sequence[str]) -> bool:
        """Made by the worker of this machine: whatever else a worker names is on its own."""
        ours = (self._data / "worker").resolve()
        return all(Path(path).resolve().is_relative_to(ours) and Path(path).exists() for path in paths)
