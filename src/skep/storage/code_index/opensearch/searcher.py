"""The Searcher on a server: writes the deltas that workers built as documents, and asks for candidates.

The database says what counts (see tables.py), so that a delta is adopted at once and whole, whatever the server does
meanwhile. One process writes an index, as with shards in a folder.
"""

import asyncio
import logging
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from weakref import WeakSet

import numpy as np

from skep.base.errors import Damaged, SkepError
from skep.storage.code_index.analysis_files import Librarian
from skep.storage.code_index.base import Gains, Side, Size, Standing, Visible, Watcher
from skep.storage.code_index.model import Damage, Delta, Document, Fence, Limits, Query, ShardInfo
from skep.storage.code_index.opensearch.candidates import (
    ALL,
    Gone,
    OpenSearchHits,
    Reader,
    State,
    Tables,
    gone_by,
    settle,
)
from skep.storage.code_index.opensearch.client import FORMAT, MAPPING, PLACE_BITS, Address, Filter, Node, actions, parse
from skep.storage.code_index.trigram.candidates import Part, Snapshot
from skep.storage.code_index.trigram.matchers import Shelf
from skep.storage.code_index.trigram.search import Lanes, TrigramHits
from skep.storage.code_index.trigram.shard import Shard, open_shard
from skep.storage.database import Database

# The indexes on the server: one behind our alias, and during a copy another beside it.


class Indexes:
    def __init__(self, node: Node, address: Address) -> None:
        self._node = node
        self._address = address

    def current(self) -> tuple[str, str]:
        """Name and unique id of the index behind the alias; made when there is none."""
        found = self._node.behind()
        if found:
            return next(iter(found.items()))
        name, uuid = self.make()
        self._node.call("POST", "_aliases", {"actions": [{"add": {"index": name, "alias": self._node.prefix}}]})
        return name, uuid

    def make(self) -> tuple[str, str]:
        """An empty index that no alias names. What a copy left behind that did not finish is removed."""
        names = set(self._node.call("GET", f"{self._node.prefix}-*/_settings"))
        ours = {name for name in names if name.removeprefix(f"{self._node.prefix}-").isdigit()}
        named = set(self._node.behind())
        for name in ours - named:
            self._node.call("DELETE", name)
        last = max((int(name.rpartition("-")[2]) for name in named & ours), default=0)
        name = f"{self._node.prefix}-{last + 1:06d}"
        self._node.call("PUT", name, {"settings": self._address.settings(), "mappings": MAPPING})
        settings = self._node.call("GET", f"{name}/_settings")
        return name, settings[name]["settings"]["index"]["uuid"]

    def fill(self, name: str, documents: Iterator[tuple[int, int, Document]]) -> None:
        self._node.bulk(name, actions(documents), is_alias=False)
        self._node.call("POST", f"{name}/_refresh")

    def swap(self, name: str) -> None:
        """The alias names this index from now on, and the old one is removed."""
        alias = self._node.prefix
        old = list(self._node.behind())
        away = [{"remove": {"index": one, "alias": alias}} for one in old]
        self._node.call("POST", "_aliases", {"actions": [*away, {"add": {"index": name, "alias": alias}}]})
        for one in old:
            self._node.call("DELETE", one)

    def is_current(self) -> bool:
        """Of this format, and with as many shards as the URL says."""
        name, _ = self.current()
        found = self._node.call("GET", name)[name]
        wanted = str(self._address.shards)
        made = found["mappings"].get("_meta", {}).get("format")
        return bool(made == FORMAT and found["settings"]["index"]["number_of_shards"] == wanted)

    def size(self) -> Size:
        asked = {"size": 0, "track_total_hits": True, "aggs": {"bytes": {"sum": {"field": "size"}}}}
        answer = self._node.call("POST", f"{self._node.prefix}/_search", asked)
        return Size(
            answer["_shards"]["total"], answer["hits"]["total"]["value"], int(answer["aggregations"]["bytes"]["value"])
        )

    def damage(self) -> list[Damage]:
        health = self._node.call("GET", f"_cluster/health/{self._node.prefix}", level="indices")["indices"]
        return [
            Damage(name, "the server has lost some of its shards")
            for name, one in health.items()
            if one["status"] == "red"
        ]


log = logging.getLogger(__name__)

#: searches that run at once: mostly they wait for the server
_AT_ONCE = 16
#: paths named in one request to delete
_MOST_PATHS = 10_000


class OpenSearchSearcher:
    def __init__(self, address: Address, db: Database, books: Path) -> None:
        self._node = Node(address)
        self._indexes = Indexes(self._node, address)
        self.db = db
        self._tables = Tables(db, address.prefix)
        self._lanes = Lanes(_AT_ONCE)
        self._librarian = Librarian(books)
        self.annotate, self.annotated = self._librarian.annotate, self._librarian.annotated
        self._shelf = Shelf()
        self._state = State()
        #: states that running searches look at: what they see is not deleted yet
        self._looked_at: WeakSet[State] = WeakSet()
        self._changing = asyncio.Lock()
        #: the state is what the database says
        self._sure = False
        #: aborted generations whose documents are deleted
        self._deleted: set[int] = set()

    async def start(self) -> None:
        await self._tables.migrate()
        await self._identify()
        await self._librarian.start()
        await self._load()
        await self._measure()

    async def _load(self) -> None:
        """What the database says; after something went wrong nobody else knows for sure."""
        _, generation = await self._tables.known()
        gone = {(one.number, one.path): one.generation for one in await self._tables.gone()}
        self._state = replace(
            self._state,
            generation=generation,
            standings=await self._tables.standings(),
            gone=gone,
            aborted=frozenset(await self._tables.aborted()),
        )
        self._sure = True

    async def _identify(self) -> bool:
        """Make sure that the index behind the alias is the one the database knows; else nothing in it counts."""
        known, _ = await self._tables.known()
        name, uuid = await asyncio.to_thread(self._indexes.current)
        if uuid in known:
            return True
        if known:
            log.error("the index is not the one that was written", extra={"index": name})
        await self._tables.know([uuid])
        await self._tables.lose()
        return not known

    async def adopt(self, delta: Delta, fence: Fence, watcher: Watcher | None = None) -> bool:
        async with self._change():
            done = await self._tables.was_adopted(delta, fence)
            if done:
                await asyncio.to_thread(_remove, delta.shards)
            if done is not None:
                return done
            try:
                shards = await asyncio.to_thread(_open, delta)
            except Damaged as error:
                log.warning("a delta cannot be adopted", extra={"source": delta.source, "reason": error.message})
                return False
            await asyncio.to_thread(self._node.behind)  # who cannot be reached gets no generation
            self._sure = False
            generation = await self._tables.begin()
            await asyncio.to_thread(self._write, generation, delta.number, shards)
            also = await watcher(delta, fence, *self._sides(delta, fence, shards)) if watcher else None
            gone = gone_by(delta, generation)
            if not await self._tables.adopt(delta, fence, lambda tx: settle(tx, generation, gone), also):
                return False
            await self._load()
            await asyncio.to_thread(_remove, delta.shards)
            await self._tidy()
            return True

    def _sides(self, delta: Delta, fence: Fence, shards: Sequence[Shard]) -> tuple[Side, Side]:
        """What goes is searched among all of the source: nobody compares more than files of one name."""
        mine = np.arange(delta.number + 1) == delta.number
        standing = Standing(delta.source, delta.number, delta.tips, fence.fetched_at, delta.rules)
        parts = tuple(Part(shard, np.zeros(shard.documents, bool)) for shard in shards)
        new = Snapshot(parts, {delta.number: standing})
        return (
            lambda query, limits: self.search(query, mine, limits),
            lambda query, limits: self._run(new, query, mine, limits),
        )

    @asynccontextmanager
    async def _change(self) -> AsyncIterator[None]:
        """One change at a time; searches go on meanwhile."""
        async with self._changing:
            if not self._sure:
                await self._load()
            yield

    def _write(self, generation: int, number: int, shards: Sequence[Shard]) -> None:
        """Durable and ready to be found on return."""
        self._node.bulk(self._node.prefix, actions(_placed(generation, number, shards)))
        self._node.call("POST", f"{self._node.prefix}/_refresh")

    async def drop(self, source: str, number: int) -> None:
        async with self._change():
            if number in self._state.standings:
                self._sure = False
                generation = await self._tables.begin()
                gone = [Gone(number, ALL, generation)]
                await self._tables.drop(source, lambda tx: settle(tx, generation, gone))
                await self._load()
                await self._tidy()

    def _run(self, snapshot: Snapshot, query: Query, visible: Visible, limits: Limits) -> TrigramHits:
        asked = query, visible, None, limits, self._shelf, self._librarian.books
        return TrigramHits(self._lanes, snapshot, _unread, *asked)

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
        return TrigramHits(self._lanes, Snapshot.of(map(Shard, shards), standings), _unread, *asked)

    def search(self, query: Query, visible: Visible, limits: Limits, gains: Gains | None = None) -> OpenSearchHits:
        self._looked_at.add(self._state)
        asked = query, visible, gains, limits, self._shelf, self._librarian.books
        return OpenSearchHits(self._lanes, self._node, self._state, *asked)

    def standing(self, number: int) -> Standing | None:
        return self._state.standings.get(number)

    def indexed(self) -> list[tuple[str, int]]:
        return [(standing.source, number) for number, standing in self._state.standings.items()]

    def size(self) -> Size:
        return self._state.size

    async def lost(self) -> list[str]:
        return await self._tables.lost()

    async def digest(self, number: int) -> str:
        return await asyncio.to_thread(self._digest, self._state, number)

    def _digest(self, state: State, number: int) -> str:
        """The sum of the documents' own digests."""
        pages = Reader(self._node, state).lights([{"term": {"source": number}}])
        total = sum(int(one.digest, 16) for page in pages for one in page)
        return f"{total & (1 << 128) - 1:032x}"

    async def check(self) -> list[Damage]:
        """What the server says of itself, and whether the index is still ours."""
        async with self._change():
            if not await self._identify():
                await self._load()
        return await asyncio.to_thread(self._indexes.damage)

    async def merge_once(self) -> bool:
        """Merging is the server's affair; here the dead are deleted, and an index of an older format is copied."""
        async with self._change():
            await self._tidy()
            if not await asyncio.to_thread(self._indexes.is_current):
                await self._copy()
                return True
        return await self._librarian.merge_once(Reader(self._node, self._state).blobs)

    async def _copy(self) -> None:
        """Into a new index, aside; then the alias is swapped. Until then the old one answers."""
        state = self._state
        reader = Reader(self._node, state)
        bodies = (one for group in reader.groups([]) for one in reader.bodies(group))
        known, _ = await self._tables.known()
        name, uuid = await asyncio.to_thread(self._indexes.make)
        await asyncio.to_thread(
            self._indexes.fill, name, ((light.place, light.source, document) for light, document in bodies)
        )
        await self._tables.know([*known, uuid])
        await asyncio.to_thread(self._indexes.swap, name)
        await self._tables.know([uuid])

    async def _tidy(self) -> None:
        """Delete on the server what no search can see any more. What fails is tried again later."""
        try:
            await self._delete_dead()
            await self._measure()
        except SkepError as error:
            log.warning("the index could not be tidied", extra={"reason": error.message})

    async def _delete_dead(self) -> None:
        oldest = min((state.generation for state in self._looked_at), default=self._state.generation)
        dead = [one for one in await self._tables.gone() if one.generation <= oldest]
        aborted = self._state.aborted - self._deleted
        for query in [*_queries(dead), *map(_of_generation, aborted)]:
            await asyncio.to_thread(self._node.delete, self._node.prefix, query)
        self._deleted |= aborted
        if dead:
            await self._tables.forget(dead)
            await self._load()

    async def _measure(self) -> None:
        self._state = replace(self._state, size=await asyncio.to_thread(self._indexes.size))

    async def close(self) -> None:
        await asyncio.to_thread(self._lanes.shutdown, cancel_futures=True)
        self._node.close()


def _open(delta: Delta) -> list[Shard]:
    shards = [open_shard(info, Path(info.folder), delta.number) for info in delta.shards]
    for shard in shards:
        shard.verify()
    return shards


def _placed(generation: int, number: int, shards: Sequence[Shard]) -> Iterator[tuple[int, int, Document]]:
    place = generation << PLACE_BITS
    for shard in shards:
        for document in range(shard.documents):
            yield place, number, shard.document(document)
            place += 1


def _remove(shards: Sequence[ShardInfo]) -> None:
    """They are on the server now."""
    for info in shards:
        shutil.rmtree(info.folder, ignore_errors=True)


def _of_generation(generation: int) -> Filter:
    return {"range": {"place": {"gte": generation << PLACE_BITS, "lt": (generation + 1) << PLACE_BITS}}}


def _queries(dead: list[Gone]) -> Iterator[Filter]:
    """Whose documents are dead, by source and generation."""
    grouped: dict[tuple[int, int], list[str]] = defaultdict(list)
    for one in dead:
        grouped[one.number, one.generation].append(one.path)
    for (number, generation), paths in grouped.items():
        older = [{"term": {"source": number}}, {"range": {"place": {"lt": generation << PLACE_BITS}}}]
        for at in range(0, len(paths), _MOST_PATHS):
            piece = paths[at : at + _MOST_PATHS]
            named = [] if ALL in piece else [{"terms": {"path": piece}}]
            yield {"bool": {"filter": [*older, *named]}}


def _unread(damaged: dict[str, str]) -> None:
    log.warning("a delta cannot be searched for what is new", extra={"damaged": damaged})


# An index on a server: OpenSearch, or Elasticsearch by the same part of its interface.


async def open_opensearch(url: str, *, data: Path, db: Database) -> OpenSearchSearcher:
    """`opensearch://[USER:PASSWORD@]HOST[:PORT][/PREFIX][?tls=yes&shards=3&replicas=1]`; books in DATA/books."""
    return OpenSearchSearcher(parse(url), db, data / "books")
