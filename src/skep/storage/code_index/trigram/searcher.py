"""The embedded Searcher: keeps the shard list in the database, the shards in a folder, and swaps both together."""

import asyncio
import json
import logging
import shutil
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from skep.base.child_process import Ended, run_apart
from skep.base.errors import Damaged
from skep.storage.code_index.analysis_files import Librarian
from skep.storage.code_index.base import Gains, Side, Size, Standing, Standings, Visible, Watcher, steps
from skep.storage.code_index.model import Damage, Delta, Fence, Limits, Query, ShardInfo, digest
from skep.storage.code_index.trigram import shard as folders
from skep.storage.code_index.trigram.builder import merge, pick
from skep.storage.code_index.trigram.candidates import Part, Snapshot, pack, unpack
from skep.storage.code_index.trigram.matchers import Shelf
from skep.storage.code_index.trigram.search import Lanes, TrigramHits
from skep.storage.code_index.trigram.shard import Mask, OtherFormat, Shard, path_hash
from skep.storage.database import Database, Row, Tx, Value
from skep.storage.sqlite import open_sqlite

# The index's tables: which shards are live, which of their documents are dead, and where each source stands.

_STEPS = (
    steps()
    + """
    CREATE TABLE shard (
        id TEXT PRIMARY KEY, documents BIGINT NOT NULL, bytes BIGINT NOT NULL, numbers TEXT NOT NULL,
        dead BYTEA NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL)
    """,
)


class Swap(msgspec.Struct, frozen=True):
    """A change of the shard list, made in one transaction."""

    added: Sequence[Part] = ()
    #: shards with more dead than before
    changed: Sequence[Part] = ()
    removed: Sequence[str] = ()


def dying(parts: Iterable[Part], swap: Swap) -> tuple[Part, ...]:
    """Shards in which only those live that a swap will bury."""
    dead = {part.shard.id: part.dead for part in swap.changed}
    dead |= {part.shard.id: np.ones_like(part.dead) for part in parts if part.shard.id in swap.removed}
    return tuple(Part(part.shard, part.dead | ~dead[part.shard.id]) for part in parts if part.shard.id in dead)


class Tables(Standings):
    async def migrate(self) -> None:
        await self._db.migrate("index", _STEPS)

    async def shards(self, state: str) -> list[Row]:
        return await self._db.read("SELECT * FROM shard WHERE state = :state ORDER BY id", state=state)

    async def missing(self, standings: Collection[int]) -> frozenset[int]:
        """Numbers of sources that were in damaged shards and stand nowhere since."""
        numbers = [number for row in await self.shards("damaged") for number in json.loads(row["numbers"])]
        return frozenset(numbers).difference(standings)

    async def swap(self, swap: Swap) -> None:
        await self._db.write(lambda tx: exchange(tx, swap))

    async def set_aside(self, id: str, reason: str) -> None:
        """A damaged shard: its sources are no longer whole, so they no longer stand anywhere."""

        async def work(tx: Tx) -> None:
            rows = await tx.rows(
                "UPDATE shard SET state = 'damaged', reason = :reason WHERE id = :id RETURNING numbers",
                id=id,
                reason=reason,
            )
            for number in [number for row in rows for number in json.loads(row["numbers"])]:
                gone = await tx.rows("DELETE FROM indexed WHERE number = :number RETURNING source", number=number)
                await tx.many(
                    "INSERT INTO lost (source) VALUES (:source) ON CONFLICT DO NOTHING",
                    [{"source": row["source"]} for row in gone],
                )

        await self._db.write(work)


async def exchange(tx: Tx, swap: Swap) -> None:
    await tx.many(
        "INSERT INTO shard (id, documents, bytes, numbers, dead, state, reason)"
        " VALUES (:id, :documents, :bytes, :numbers, :dead, 'live', '')",
        [
            {
                "id": part.shard.id,
                "documents": part.shard.documents,
                "bytes": part.shard.bytes,
                "numbers": json.dumps(part.shard.manifest.sources),
                "dead": pack(part.dead),
            }
            for part in swap.added
        ],
    )
    dead: list[dict[str, Value]] = [{"id": part.shard.id, "dead": pack(part.dead)} for part in swap.changed]
    await tx.many("UPDATE shard SET dead = :dead WHERE id = :id", dead)
    await tx.many("DELETE FROM shard WHERE id = :id", [{"id": id} for id in swap.removed])
    # when nothing is lost any more, damaged shards have told all they had to tell
    await tx.rows("DELETE FROM shard WHERE state = 'damaged' AND NOT EXISTS (SELECT 1 FROM lost)")


# Tombstones: which documents of older shards a delta makes obsolete.


class Gone(msgspec.Struct, frozen=True):
    source: int
    #: None: all of them
    paths: frozenset[bytes] | None


def bury(parts: Iterable[Part], gone: Gone) -> list[Part]:
    """The parts that gain dead, with them."""
    hashes = np.array([path_hash(gone.source, path) for path in gone.paths or ()], np.uint64)
    changed: list[Part] = []
    for part in parts:
        if not part.shard.has(gone.source):
            continue
        hit = part.shard.sources == gone.source if gone.paths is None else _named(part.shard, gone, hashes)
        dead = part.dead | hit
        if dead.sum() > part.dead_count:
            changed.append(Part(part.shard, dead))
    return changed


def _named(shard: Shard, gone: Gone, hashes: np.typing.NDArray[np.uint64]) -> Mask:
    mask = np.zeros(shard.documents, bool)
    for document in shard.hashed(hashes):
        if shard.sources[document] == gone.source and shard.path(document) in (gone.paths or ()):
            mask[document] = True
    return mask


log = logging.getLogger(__name__)

#: a merge of fewer bytes is done before a process for it would have started
_SMALL_MERGE = 2_000_000


class TrigramSearcher:
    def __init__(self, folder: Path, db: Database, also_close: Callable[[], Awaitable[None]] | None = None) -> None:
        self._folder = folder
        self._also_close = also_close
        self.db = db
        self._tables = Tables(db)
        self._lanes = Lanes()
        self._librarian = Librarian(folder / "books")
        self.annotate, self.annotated = self._librarian.annotate, self._librarian.annotated
        self._snapshot = Snapshot()
        #: held while the shard list changes; searches never take it
        self._changing = asyncio.Lock()
        self._merging = asyncio.Lock()
        self._shelf = Shelf()
        self._losing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await asyncio.to_thread(self._folder.mkdir, parents=True, exist_ok=True)
        await self._tables.migrate()
        parts: list[Part] = []
        for row in await self._tables.shards("live"):
            try:
                shard = await asyncio.to_thread(Shard, self._folder / row["id"])
                parts.append(Part(shard, unpack(row["dead"], shard.documents)))
            except OtherFormat as error:
                log.info("%s: its sources are indexed anew", error.message)
                await self._tables.set_aside(row["id"], error.message)
                await asyncio.to_thread(folders.remove, self._folder, [row["id"]])
            except Damaged as error:
                await self._set_aside(row["id"], error.message)
        named = {part.shard.id for part in parts} | {row["id"] for row in await self._tables.shards("damaged")}
        await asyncio.to_thread(folders.remove_unnamed, self._folder, named | {"books"})
        await self._librarian.start()
        standings = await self._tables.standings()
        self._snapshot = Snapshot(tuple(parts), standings, await self._tables.missing(standings))

    async def adopt(self, delta: Delta, fence: Fence, watcher: Watcher | None = None) -> bool:
        async with self._changing:
            done = await self._tables.was_adopted(delta, fence)
            if done is not None:
                return done
            live = {part.shard.id for part in self._snapshot.parts}
            if any(info.id in live for info in delta.shards):  # long ago
                return False
            try:
                shards = await asyncio.to_thread(folders.move_in, delta.shards, self._folder, delta.number)
            except Damaged as error:
                log.warning("a delta cannot be adopted", extra={"source": delta.source, "reason": error.message})
                return False
            swap = await self._bury(delta, [Part(shard, np.zeros(shard.documents, bool)) for shard in shards])
            standing = Standing(delta.source, delta.number, delta.tips, fence.fetched_at, delta.rules)
            also = await watcher(delta, fence, *self._sides(delta, standing, swap)) if watcher else None
            if not await self._tables.adopt(delta, fence, lambda tx: exchange(tx, swap), also):
                return False
            await self._show(swap, {**self._snapshot.standings, delta.number: standing})
            return True

    async def _bury(self, delta: Delta, added: list[Part]) -> Swap:
        gone = Gone(delta.number, None if delta.base is None else frozenset(delta.gone))
        changed = await asyncio.to_thread(bury, self._snapshot.parts, gone)
        return _swap(added, changed)

    def _sides(self, delta: Delta, standing: Standing, swap: Swap) -> tuple[Side, Side]:
        mine = np.arange(delta.number + 1) == delta.number
        old = Snapshot(dying(self._snapshot.parts, swap), self._snapshot.standings)
        new = Snapshot(tuple(swap.added), {delta.number: standing})
        return (
            lambda query, limits: self._run(old, query, mine, limits),
            lambda query, limits: self._run(new, query, mine, limits),
        )

    async def _show(self, swap: Swap, standings: dict[int, Standing]) -> None:
        """Let searches that begin from now on see the change, which is durable already."""
        changed = {part.shard.id: part for part in swap.changed}
        kept = [changed.get(part.shard.id, part) for part in self._snapshot.parts if part.shard.id not in swap.removed]
        parts = sorted([*kept, *swap.added], key=lambda part: part.shard.id)
        lost = self._snapshot.lost - standings.keys()
        self._snapshot = replace(self._snapshot, parts=tuple(parts), standings=standings, lost=lost)
        if swap.removed:
            await asyncio.to_thread(folders.remove, self._folder, swap.removed)

    async def drop(self, source: str, number: int) -> None:
        async with self._changing:
            swap = _swap([], await asyncio.to_thread(bury, self._snapshot.parts, Gone(number, None)))
            await self._tables.drop(source, lambda tx: exchange(tx, swap))
            await self._show(swap, {n: s for n, s in self._snapshot.standings.items() if n != number})

    def search(self, query: Query, visible: Visible, limits: Limits, gains: Gains | None = None) -> TrigramHits:
        return self._run(self._snapshot, query, visible, limits, gains)

    def _run(
        self, snapshot: Snapshot, query: Query, visible: Visible, limits: Limits, gains: Gains | None = None
    ) -> TrigramHits:
        asked = query, visible, gains, limits, self._shelf, self._librarian.books
        return TrigramHits(self._lanes, snapshot, self._notice, *asked)

    def search_beside(
        self,
        shards: Sequence[Path],
        books: Sequence[Path],
        standings: dict[int, Standing],
        query: Query,
        visible: Visible,
        limits: Limits,
    ) -> TrigramHits:
        asked = query, visible, None, limits, self._shelf, self._librarian.books.beside(books)
        return TrigramHits(self._lanes, Snapshot.of(map(Shard, shards), standings), self._notice, *asked)

    def _notice(self, damaged: dict[str, str]) -> None:
        """A search could not read some shards: set them aside."""
        for id, reason in damaged.items():
            task = asyncio.create_task(self._lose(id, reason))
            self._losing.add(task)
            task.add_done_callback(self._losing.discard)

    async def _lose(self, id: str, reason: str) -> None:
        async with self._changing:
            if any(part.shard.id == id for part in self._snapshot.parts):
                await self._set_aside(id, reason)
                kept = tuple(part for part in self._snapshot.parts if part.shard.id != id)
                standings = await self._tables.standings()
                self._snapshot = Snapshot(kept, standings, await self._tables.missing(standings))

    def standing(self, number: int) -> Standing | None:
        return self._snapshot.standings.get(number)

    def indexed(self) -> list[tuple[str, int]]:
        return [(standing.source, number) for number, standing in self._snapshot.standings.items()]

    def size(self) -> Size:
        return self._snapshot.size

    async def lost(self) -> list[str]:
        return await self._tables.lost()

    async def check(self) -> list[Damage]:
        """Read every shard and compare checksums; what fails is set aside at once."""
        for part in self._snapshot.parts:
            await self._is_sound(part)
        return [Damage(row["id"], row["reason"]) for row in await self._tables.shards("damaged")]

    async def _is_sound(self, part: Part) -> bool:
        """Is it as it was written? If not, it is set aside."""
        try:
            await asyncio.to_thread(part.shard.verify)
        except (Damaged, OSError) as error:
            await self._lose(part.shard.id, str(error))
            return False
        return True

    async def digest(self, number: int) -> str:
        return await asyncio.to_thread(digest, self._snapshot.living(number))

    async def _set_aside(self, id: str, reason: str) -> None:
        log.error("a shard is damaged", extra={"shard": id, "reason": reason})
        await self._tables.set_aside(id, reason)

    async def merge_once(self) -> bool:
        """One merge, if one is due; True when there may be another."""
        async with self._merging:
            chosen = pick(self._snapshot.parts)
            if not chosen:
                return await self._librarian.merge_once(self._snapshot.blobs)
            if not all([await self._is_sound(part) for part in chosen]):
                return True  # merged, its damage would have a checksum of its own
            aside = self._folder / "merging"
            await asyncio.to_thread(shutil.rmtree, aside, ignore_errors=True)
            paths = [str(self._folder / part.shard.id) for part in chosen]
            work = partial(merge, paths, [pack(part.dead) for part in chosen], str(aside))
            try:
                is_small = sum(part.live_bytes for part in chosen) < _SMALL_MERGE
                merged = await (asyncio.to_thread(work) if is_small else run_apart(work))
            except (Ended, Damaged, OSError) as error:
                log.warning("a merge failed", extra={"reason": str(error)})
                return False
            async with self._changing:
                return await self._adopt_merged(chosen, merged)

    async def _adopt_merged(self, chosen: list[Part], merged: tuple[ShardInfo, ...]) -> bool:
        now = {part.shard.id: part for part in self._snapshot.parts}
        if any(part.shard.id not in now for part in chosen):
            return True  # one of them died or was set aside meanwhile: choose again
        shards = await asyncio.to_thread(folders.move_in, merged, self._folder)
        added = [Part(shard, np.zeros(shard.documents, bool)) for shard in shards]
        for part in chosen:  # who died during the merge is dead in the result
            for document in np.flatnonzero(now[part.shard.id].dead & ~part.dead).tolist():
                _bury_one(added, int(part.shard.sources[document]), part.shard.path(document))
        swap = Swap(added, (), [part.shard.id for part in chosen])
        await self._tables.swap(swap)
        await self._show(swap, self._snapshot.standings)
        return True

    async def close(self) -> None:
        await asyncio.gather(*self._losing, return_exceptions=True)
        await asyncio.to_thread(self._lanes.shutdown, cancel_futures=True)
        self._snapshot = Snapshot()
        if self._also_close is not None:
            await self._also_close()


def _swap(added: list[Part], changed: list[Part]) -> Swap:
    """Shards without a living document go at once."""
    dead = [part.shard.id for part in changed if part.dead.all()]
    return Swap(added, [part for part in changed if not part.dead.all()], dead)


def _bury_one(parts: list[Part], source: int, path: bytes) -> None:
    for part in parts:
        part.dead[part.shard.find(source, path)] = True


# Trigram shards in a folder: the index that needs no server.


async def open_trigram(url: str, *, data: Path, db: Database) -> TrigramSearcher:
    """`file:` is DATA/index, `file:PATH` another folder."""
    path = url.partition(":")[2]
    folder = Path(path) if path else data / "index"
    if not db.shared:
        return TrigramSearcher(folder, db)
    # shards are files of this machine, and so is the list of them, whoever else shares the database
    own = await open_sqlite("sqlite:index.db", data=data, durability="full")
    return TrigramSearcher(folder, own, also_close=own.close)
