"""The Index face: workers make immutable deltas, a Searcher on aggregators adopts them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from skep.engines.db.base import Database, Tx
from skep.model.search import BookInfo, Counted, Damage, Delta, Fence, FileHit, Limits, Query, Tip

#: by source number: may the caller see it? Numbers beyond the end are hidden.
Visible = NDArray[np.bool_]
#: by source number: points that its files gain by the priority of their source. Beyond the end: none.
Gains = NDArray[np.int16]


class Standing(msgspec.Struct, frozen=True):
    """Where the index of a source stands."""

    source: str
    number: int
    #: the default branch first
    tips: tuple[Tip, ...]
    fetched_at: float
    #: by which it was made
    rules: str = ""

    @property
    def commit(self) -> str:
        """Of the default branch."""
        return self.tips[0].commit


class Hits(Protocol):
    """A running search: iterate for the files; then `partial` and `counted` are settled."""

    def __aiter__(self) -> AsyncIterator[FileHit]: ...

    #: the deadline or a limit ended it before every candidate was read
    partial: bool
    #: of what the caller may see
    counted: Counted

    def standing(self, number: int) -> Standing:
        """Of a source with hits, in the very snapshot that was searched."""
        ...


#: searches the files of one source that a delta takes away, or those it brings
Side = Callable[[Query, Limits], Hits]
#: is shown both sides of a delta; what it returns is done in the transaction that adopts it
Watcher = Callable[[Delta, Fence, Side, Side], Awaitable[Callable[[Tx], Awaitable[None]] | None]]


class Size(msgspec.Struct, frozen=True):
    shards: int
    documents: int
    bytes: int


class Searcher(Protocol):
    #: whose transactions adopt
    db: Database

    async def start(self) -> None:
        """Open what the database names, set damaged shards aside, remove folders nobody names."""
        ...

    async def adopt(self, delta: Delta, fence: Fence, watcher: Watcher | None = None) -> bool:
        """Swap in a delta, in one transaction; doing it twice is harmless. False when fence or base are stale."""
        ...

    async def annotate(self, info: BookInfo) -> bool:
        """Take in a book; doing it twice is harmless. False when it is lost or damaged."""
        ...

    def annotated(self, blobs: Sequence[str]) -> bool:
        """Are all of these in a book?"""
        ...

    async def drop(self, source: str, number: int) -> None: ...

    def search(self, query: Query, visible: Visible, limits: Limits, gains: Gains | None = None) -> Hits:
        """`source` terms were resolved into Within by the caller of this; here they are not allowed."""
        ...

    def search_beside(
        self,
        shards: Sequence[Path],
        books: Sequence[Path],
        standings: dict[int, Standing],
        query: Query,
        visible: Visible,
        limits: Limits,
    ) -> Hits:
        """In shards and books that are not part of the index; reads their heads. Damaged when one cannot be opened."""
        ...

    def standing(self, number: int) -> Standing | None: ...

    def indexed(self) -> list[tuple[str, int]]:
        """Id and number of every source in the index."""
        ...

    async def lost(self) -> list[str]:
        """Ids of sources whose shards were damaged and set aside: to be built anew."""
        ...

    def size(self) -> Size: ...

    async def merge_once(self) -> bool:
        """Merge small or half-dead shards; False when there is nothing to merge."""
        ...

    async def check(self) -> list[Damage]: ...

    async def digest(self, number: int) -> str:
        """Of the documents of a source; see model.search.digest."""
        ...

    async def close(self) -> None: ...
