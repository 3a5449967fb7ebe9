"""What a search sees of the server: candidates, fetched as they are needed, as small shards made on the spot.

So everything that is decided about a document (does it match, where, how well) is decided by the embedded engine.
"""

import base64
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from skep.base.errors import Unavailable
from skep.base.lazy import lazy_property
from skep.storage.code_index.base import Size, Standing, Standings, steps
from skep.storage.code_index.model import Delta, Document, FileHit
from skep.storage.code_index.opensearch.client import (
    LIGHT,
    PLACE_BITS,
    Filter,
    Light,
    Node,
    Sift,
    Slow,
    among,
    light,
    likely,
    narrow,
    one_of,
    path_hash,
)
from skep.storage.code_index.trigram.builder import TrigramBuilder
from skep.storage.code_index.trigram.candidates import Part, Snapshot
from skep.storage.code_index.trigram.matchers import Compiled, Watch
from skep.storage.code_index.trigram.search import LOOK_PER_FILE, Asked, Lanes, OutOfTime, TrigramHits
from skep.storage.code_index.trigram.shard import Shard
from skep.storage.database import Database, Tx

# What the database knows of an index on a server: where each source stands, and what on the server is of no use.
#
# A document on the server is never changed. It counts when the database says so: from the moment its generation was
# committed here, until it is gone by what is said here. Deleting it on the server comes later, when nobody looks.

_STEPS = (
    steps("remote_")
    + """
    CREATE TABLE remote (prefix TEXT PRIMARY KEY, uuids TEXT NOT NULL, generation BIGINT NOT NULL);
    CREATE TABLE remote_gone (
        number BIGINT NOT NULL, path TEXT NOT NULL, generation BIGINT NOT NULL, PRIMARY KEY (number, path));
    CREATE TABLE remote_aborted (generation BIGINT PRIMARY KEY)
    """,
)
_GONE = (
    "INSERT INTO remote_gone (number, path, generation) VALUES (:number, :path, :generation)"
    " ON CONFLICT (number, path) DO UPDATE SET generation = excluded.generation"
)
#: stands for all the paths of a source
ALL = ""


class Gone(msgspec.Struct, frozen=True):
    """Documents of older generations than this one are dead."""

    number: int
    #: its hash, or ALL
    path: str
    generation: int


def gone_by(delta: Delta, generation: int) -> list[Gone]:
    paths = [ALL] if delta.base is None else sorted(map(path_hash, set(delta.gone)))
    return [Gone(delta.number, path, generation) for path in paths]


class Tables(Standings):
    def __init__(self, db: Database, prefix: str) -> None:
        super().__init__(db, "remote_")
        self._prefix = prefix

    async def migrate(self) -> None:
        await self._db.migrate("opensearch", _STEPS)

    async def known(self) -> tuple[list[str], int]:
        """The unique ids of the indexes that may be behind the alias, and the newest generation."""
        rows = await self._db.read("SELECT uuids, generation FROM remote WHERE prefix = :prefix", prefix=self._prefix)
        return (rows[0]["uuids"].split(), rows[0]["generation"]) if rows else ([], 0)

    async def know(self, uuids: list[str]) -> None:
        async def work(tx: Tx) -> None:
            await tx.rows(
                "INSERT INTO remote (prefix, uuids, generation) VALUES (:prefix, :uuids, 0)"
                " ON CONFLICT (prefix) DO UPDATE SET uuids = excluded.uuids",
                prefix=self._prefix,
                uuids=" ".join(uuids),
            )

        await self._db.write(work)

    async def lose(self) -> None:
        """The index is not the one we wrote: no source stands anywhere."""

        async def work(tx: Tx) -> None:
            await tx.rows(
                "INSERT INTO remote_lost SELECT source FROM remote_indexed WHERE 1 = 1 ON CONFLICT DO NOTHING"
            )
            for table in ("remote_indexed", "remote_gone", "remote_aborted"):
                await tx.rows(f"DELETE FROM {table}")  # noqa: S608  # the three names above

        await self._db.write(work)

    async def gone(self) -> list[Gone]:
        rows = await self._db.read("SELECT number, path, generation FROM remote_gone")
        return [Gone(row["number"], row["path"], row["generation"]) for row in rows]

    async def aborted(self) -> list[int]:
        return [row["generation"] for row in await self._db.read("SELECT generation FROM remote_aborted")]

    async def begin(self) -> int:
        """A new generation. What is written under it is of no use unless it is adopted."""

        async def work(tx: Tx) -> int:
            rows = await tx.rows(
                "UPDATE remote SET generation = generation + 1 WHERE prefix = :prefix RETURNING generation",
                prefix=self._prefix,
            )
            generation: int = rows[0]["generation"]
            await tx.rows("INSERT INTO remote_aborted (generation) VALUES (:generation)", generation=generation)
            return generation

        return await self._db.write(work)

    async def forget(self, gone: list[Gone]) -> None:
        """They are deleted on the server, too."""
        same = "DELETE FROM remote_gone WHERE number = :number AND path = :path AND generation = :generation"
        await self._db.write(lambda tx: tx.many(same, [msgspec.structs.asdict(one) for one in gone]))


async def settle(tx: Tx, generation: int, gone: list[Gone]) -> None:
    """What was written under a generation counts from now on; what it replaces does not."""
    await tx.many(_GONE, [msgspec.structs.asdict(one) for one in gone])
    await tx.rows("DELETE FROM remote_aborted WHERE generation = :generation", generation=generation)


#: candidates asked for at once: few at first, for an early first hit
_FIRST_PAGE, _PAGE = 100, 1000
#: bytes of content in one shard of candidates
_FIRST_BYTES, _BYTES = 500_000, 4_000_000
#: bytes of content out of which the best are chosen, and how many when they are also counted; and the share of the
#: time that is spent on fetching them
_RANKED_BYTES, _COUNTED_BYTES, _RANKED_SHARE = 32_000_000, 64_000_000, 0.5
#: sources that are named for the sake of the order alone
_MOST_NAMED = 1000
#: shards that live for milliseconds are best kept in memory, where there is this much of it to spare
_MEMORY, _SPARE = Path("/dev/shm"), 512_000_000  # noqa: S108  # a folder of its own is made there

_decode = msgspec.msgpack.Decoder(Document).decode


@dataclass(frozen=True, eq=False)
class State:
    """What the database says, as it was at one moment. Never changed, only replaced."""

    generation: int = 0
    #: by source number
    standings: dict[int, Standing] = field(default_factory=dict)
    #: by source number and path
    gone: dict[tuple[int, str], int] = field(default_factory=dict)
    aborted: frozenset[int] = frozenset()
    size: Size = field(default_factory=lambda: Size(0, 0, 0))

    def is_live(self, one: Light) -> bool:
        if one.source not in self.standings or one.born > self.generation or one.born in self.aborted:
            return False
        since = max(self.gone.get((one.source, ALL), 0), self.gone.get((one.source, one.path), 0))
        return one.born >= since


class Reader:
    """Reads documents of one state, in the order of their places; with `first`, those that it is true for first."""

    def __init__(self, node: Node, state: State, until: float | None = None, first: list[Filter] | None = None) -> None:
        self._node = node
        self._state = state
        self._until = until
        self._first = first

    def lights(self, filters: list[Filter]) -> Iterator[list[Light]]:
        asked: dict[str, Any] = {
            "size": _FIRST_PAGE,
            "query": {"bool": {"filter": filters}},
            "sort": [{"place": "asc"}],
            "docvalue_fields": list(LIGHT),
            "stored_fields": "_none_",
            "track_total_hits": False,
        }
        if self._first is not None:
            asked["query"]["bool"]["should"] = [{"constant_score": {"filter": one}} for one in self._first]
            asked["sort"] = [{"_score": "desc"}, {"place": "asc"}]
        while True:
            answer = self._call(f"{self._node.prefix}/_search", asked, allow_partial_search_results="false")
            hits = answer["hits"]["hits"]
            yield [one for one in map(light, hits) if self._state.is_live(one)]
            if len(hits) < asked["size"]:
                return
            asked |= {"size": _PAGE, "search_after": hits[-1]["sort"]}

    def blobs(self) -> Iterator[NDArray[np.bytes_]]:
        return (np.array([one.blob for one in page], np.bytes_) for page in self.lights([]))

    def bodies(self, wanted: list[Light]) -> list[tuple[Light, Document]]:
        asked = {"ids": [str(one.place) for one in wanted]}
        answer = self._call(f"{self._node.prefix}/_mget", asked, stored_fields="body")
        documents = [_document(found) for found in answer["docs"]]
        return list(zip(wanted, documents, strict=True))

    def groups(self, filters: list[Filter]) -> Iterator[list[Light]]:
        """Documents whose bodies are some megabytes together."""
        most, size = _FIRST_BYTES, 0
        group: list[Light] = []
        for page in self.lights(filters):
            for one in page:
                group.append(one)
                size += one.size
                if size >= most:
                    yield group
                    group, size, most = [], 0, _BYTES
            if group:
                yield group
                group, size = [], 0

    def _call(self, path: str, body: object, **query: str) -> Any:
        try:
            return self._node.call("POST", path, body, until=self._until, **query)
        except Slow:
            if self._until is not None and time.monotonic() > self._until:
                raise OutOfTime from None
            raise


def _document(found: dict[str, Any]) -> Document:
    if not found.get("found"):
        raise Unavailable("the index changed while it was read", hint="ask again")
    return _decode(base64.b64decode(found["fields"]["body"][0]))


class Parts:
    """The candidates of a query, shard by shard, each made when its turn comes. Runs in the search's thread.

    To choose the best of them all must be there at once, so their number is bounded.
    """

    def __init__(self, node: Node, state: State, asked: Asked) -> None:
        self._node = node
        self._state = state
        self._query, self._visible, self._gains, self._limits, self._shelf, self._books = asked
        #: there were more
        self.cut = False

    def __iter__(self) -> Iterator[Part]:
        compiled = Compiled(self._query, self._shelf)
        try:
            yield from self._parts(compiled)
        except OutOfTime:
            if not self._limits.rank:
                raise
            self.cut = True
        finally:
            compiled.done()

    def _parts(self, compiled: Compiled) -> Iterator[Part]:
        limits, filters = self._limits, self._filters(compiled)
        if filters is None:
            return
        until = time.monotonic() + limits.seconds * (_RANKED_SHARE if limits.rank else 1)
        first = [{"term": {"marked": False}}, *self._promising(compiled), *self._preferred()] if limits.rank else None
        reader, sift = Reader(self._node, self._state, until, first), Sift(compiled, _watch(until))
        left, looked = _COUNTED_BYTES if limits.count else _RANKED_BYTES, 0
        for group in reader.groups(filters):
            is_enough = looked >= max(limits.look, limits.lines) and not limits.count
            if limits.rank and (left <= 0 or is_enough):
                self.cut = True
                return
            found = [(*one, sift.lines(one[1])) for one in reader.bodies(group)]
            kept = [(light, document) for light, document, lines in found if lines is not None]
            looked += sum(max(1, min(lines, LOOK_PER_FILE)) for *_, lines in found if lines is not None)
            left -= sum(light.size for light, _ in kept)
            yield from _shards(kept)

    def _promising(self, compiled: Compiled) -> list[Filter]:
        blobs = self._books.defining(compiled.names)
        return [likely(compiled), one_of("blob", [blob.decode() for blob in blobs.tolist()])]

    def _preferred(self) -> list[Filter]:
        """What is of a source set before others, where those are few enough to be named."""
        preferred = [] if self._gains is None else np.flatnonzero(self._gains > 0).tolist()
        return [among(preferred)] if 0 < len(preferred) <= _MOST_NAMED else []

    def _filters(self, compiled: Compiled) -> list[Filter] | None:
        """None: there is nothing the caller may see."""
        standings, visible = self._state.standings, self._visible
        allowed = [number for number in standings if number < len(visible) and visible[number]]
        if not allowed:
            return None
        query = narrow(compiled)
        filters = [{"range": {"place": {"lt": (self._state.generation + 1) << PLACE_BITS}}}]
        filters += [among(allowed)] if len(allowed) < len(standings) else []
        return filters if query is None else [*filters, query]


def _watch(until: float) -> Watch:
    def watch() -> None:
        if time.monotonic() > until:
            raise OutOfTime

    return watch


class View(Snapshot):
    """A snapshot whose parts come from the server."""

    @lazy_property
    def _size(self) -> int:
        return 1 + max(self.standings, default=0)


def _shards(group: list[tuple[Light, Document]]) -> Iterator[Part]:
    """Open files outlive their names, so the folder can go at once."""
    with tempfile.TemporaryDirectory(prefix="skep-", dir=_memory()) as folder:
        documents = ((one.source, document) for one, document in group)
        made = TrigramBuilder().build_mixed(documents, Path(folder), lambda _: None)
        shards = [Shard(Path(info.folder)) for info in made]
    for shard in shards:
        yield Part(shard, np.zeros(shard.documents, bool))


def _memory() -> Path | None:
    try:
        return _MEMORY if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _SPARE else None
    except OSError:
        return None


# A running search on a server.

log = logging.getLogger(__name__)


class OpenSearchHits(TrigramHits):
    def __init__(self, lanes: Lanes, node: Node, state: State, *asked: *Asked) -> None:
        self._parts = Parts(node, state, asked)
        view = View(self._parts, state.standings)  # type: ignore[arg-type]  # iterated once, as a tuple would be
        super().__init__(lanes, view, _notice, *asked)

    async def __anext__(self) -> FileHit:
        try:
            return await super().__anext__()
        except StopAsyncIteration:
            if self._parts.cut:
                self.partial = True
                self.counted = msgspec.structs.replace(self.counted, exact=False)
            raise


def _notice(damaged: dict[str, str]) -> None:
    """Shards that are made for one search have nobody who could set them aside."""
    log.error("candidates could not be read", extra={"reasons": sorted(damaged.values())})
