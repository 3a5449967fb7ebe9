"""What a search sees of the server: candidates, fetched as they are needed, as small shards made on the spot.

So everything that is decided about a document (does it match, where, how well) is decided by the embedded engine.
"""

import base64
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

from skep.engines.index.base import Size, Standing
from skep.engines.index.opensearch.documents import LIGHT, PLACE_BITS, Light, light
from skep.engines.index.opensearch.filters import Filter, one_of
from skep.engines.index.opensearch.narrow import among, likely, narrow
from skep.engines.index.opensearch.node import Node, Slow
from skep.engines.index.opensearch.sift import Sift
from skep.engines.index.opensearch.tables import ALL
from skep.engines.index.trigram.build import TrigramBuilder
from skep.engines.index.trigram.compiled import Compiled
from skep.engines.index.trigram.hits import Asked
from skep.engines.index.trigram.match import Watch
from skep.engines.index.trigram.search import LOOK_PER_FILE, OutOfTime
from skep.engines.index.trigram.shard import Shard
from skep.engines.index.trigram.snapshot import Part, Snapshot
from skep.errors import Unavailable
from skep.lazy import lazy_property
from skep.model.search import Document

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
