"""What a search sees of the server: candidates, fetched as they are needed, as small shards made on the spot.

So everything that is decided about a document (does it match, where, how well) is decided by the embedded engine.
"""

import base64
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from skep.engines.index.base import Size, Standing
from skep.engines.index.opensearch.documents import LIGHT, PLACE_BITS, Light, light
from skep.engines.index.opensearch.narrow import Filter, among, narrow
from skep.engines.index.opensearch.node import Node, Slow
from skep.engines.index.opensearch.tables import ALL
from skep.engines.index.trigram.build import TrigramBuilder
from skep.engines.index.trigram.hits import Asked
from skep.engines.index.trigram.search import OutOfTime
from skep.engines.index.trigram.shard import Shard
from skep.engines.index.trigram.snapshot import Part, Snapshot
from skep.errors import Unavailable
from skep.model.search import Document

#: candidates asked for at once: few at first, for an early first hit
_FIRST_PAGE, _PAGE = 100, 1000
#: bytes of content in one shard of candidates
_FIRST_BYTES, _BYTES = 500_000, 4_000_000
#: bytes of content out of which the best are chosen, and how many when they are also counted; and the share of the
#: time that is spent on fetching them
_RANKED_BYTES, _COUNTED_BYTES, _RANKED_SHARE = 32_000_000, 64_000_000, 0.5
#: shards that live for milliseconds are best kept in memory
_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108  # a folder of its own is made there

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
    """Reads documents of one state, in the order of their places; `likely_first`: tests, copies and the like last."""

    def __init__(self, node: Node, state: State, until: float | None = None, likely_first: bool = False) -> None:
        self._node = node
        self._state = state
        self._until = until
        self._order = [{"marked": "asc"}] if likely_first else []

    def lights(self, filters: list[Filter]) -> Iterator[list[Light]]:
        asked: dict[str, Any] = {
            "size": _FIRST_PAGE,
            "query": {"bool": {"filter": filters}},
            "sort": [*self._order, {"place": "asc"}],
            "docvalue_fields": list(LIGHT),
            "stored_fields": "_none_",
            "track_total_hits": False,
        }
        while True:
            answer = self._call(f"{self._node.prefix}/_search", asked, allow_partial_search_results="false")
            hits = answer["hits"]["hits"]
            yield [one for one in map(light, hits) if self._state.is_live(one)]
            if len(hits) < asked["size"]:
                return
            asked |= {"size": _PAGE, "search_after": hits[-1]["sort"]}

    def bodies(self, wanted: list[Light]) -> list[tuple[Light, Document]]:
        asked = {"ids": [str(one.place) for one in wanted]}
        answer = self._call(f"{self._node.prefix}/_mget", asked, stored_fields="body")
        documents = [_document(found) for found in answer["docs"]]
        return list(zip(wanted, documents, strict=True))

    def groups(self, filters: list[Filter]) -> Iterator[list[tuple[Light, Document]]]:
        """Documents with their bodies, some megabytes at a time."""
        most, size = _FIRST_BYTES, 0
        group: list[Light] = []
        for page in self.lights(filters):
            for one in page:
                group.append(one)
                size += one.size
                if size >= most:
                    yield self.bodies(group)
                    group, size, most = [], 0, _BYTES
            if group:
                yield self.bodies(group)
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
        self._query, self._visible, self._limits, self._shelf = asked
        #: there were more
        self.cut = False

    def __iter__(self) -> Iterator[Part]:
        ranked, left = self._limits.rank, _COUNTED_BYTES if self._limits.count else _RANKED_BYTES
        until = time.monotonic() + self._limits.seconds * (_RANKED_SHARE if ranked else 1)
        filters = self._filters()
        if filters is None:
            return
        try:
            for group in Reader(self._node, self._state, until, likely_first=ranked).groups(filters):
                if ranked and left <= 0:
                    self.cut = True
                    return
                left -= sum(one.size for one, _ in group)
                yield from _shards(group)
        except OutOfTime:
            if not ranked:
                raise
            self.cut = True

    def _filters(self) -> list[Filter] | None:
        """None: there is nothing the caller may see."""
        standings, visible = self._state.standings, self._visible
        allowed = [number for number in standings if number < len(visible) and visible[number]]
        if not allowed:
            return None
        query = narrow(self._query, self._shelf)
        filters = [{"range": {"place": {"lt": (self._state.generation + 1) << PLACE_BITS}}}]
        filters += [among(allowed)] if len(allowed) < len(standings) else []
        return filters if query is None else [*filters, query]


class View(Snapshot):
    """A snapshot whose parts come from the server."""

    @cached_property
    def _size(self) -> int:
        return 1 + max(self.standings, default=0)


def _shards(group: list[tuple[Light, Document]]) -> Iterator[Part]:
    """Open files outlive their names, so the folder can go at once."""
    with tempfile.TemporaryDirectory(prefix="skep-", dir=_MEMORY) as folder:
        documents = ((one.source, document) for one, document in group)
        made = TrigramBuilder().build_mixed(documents, Path(folder), lambda _: None)
        shards = [Shard(Path(info.folder)) for info in made]
    for shard in shards:
        yield Part(shard, np.zeros(shard.documents, bool))
