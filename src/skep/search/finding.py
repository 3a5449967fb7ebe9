"""Finds files, or sources, for a page or a stream of them."""

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from skep.engines.index.base import Hits, Searcher, Standing
from skep.model.caller import Caller
from skep.model.search import Counted, FileHit, Limits
from skep.search.catalogue import Catalogue
from skep.search.paging import Shown, size
from skep.search.query import Asked

#: lines a page is made from at most, those of earlier pages included
_DEEPEST = 50_000


class Standings(Protocol):
    def standing(self, number: int) -> Standing | None: ...


class Found(msgspec.Struct, frozen=True):
    page: list[FileHit]
    #: what has been shown after it
    then: Shown
    #: all that were looked at, best first
    hits: list[FileHit]
    #: there is another page
    more: bool
    partial: bool
    counted: Counted
    #: of the snapshot that was searched
    standings: Standings


class Finder:
    def __init__(self, searcher: Searcher, catalogue: Catalogue) -> None:
        self._searcher = searcher
        self._catalogue = catalogue

    async def files(self, caller: Caller, asked: Asked, limits: Limits) -> Hits:
        query = await self._catalogue.resolve(asked.query)
        if asked.kind != "line":
            limits = msgspec.structs.replace(limits, lines_per_file=1, context=0)
        return self._searcher.search(query, self._catalogue.visible(caller), limits, self._catalogue.gains)

    async def page(self, caller: Caller, asked: Asked, limits: Limits, shown: Shown, look_at: int) -> Found:
        """`limits.lines` lines of files that were not shown; at least `look_at` lines are looked at."""
        wanted = max(shown.lines + limits.lines + 1, look_at)
        while True:
            deep = msgspec.structs.replace(limits, lines=wanted, look=max(limits.look, wanted))
            hits = await self.files(caller, asked, deep)
            found = [hit async for hit in hits]
            rest, full = shown.rest(found), size(found) >= wanted
            if rest or not full or wanted >= _DEEPEST:
                break
            wanted *= 4  # what was shown has come to stand before what was not
        page, then = shown.page(rest, limits.lines)
        more = full or size(rest) > size(page)
        return Found(page, then, found, more, hits.partial, hits.counted, hits)

    async def sources(self, caller: Caller, asked: Asked, limits: Limits) -> AsyncIterator[FileHit]:
        """`type:repo`, as files without a path: by name where only names are asked for, else as files are found."""
        numbers = await self._catalogue.named(caller, asked.query)
        if numbers is not None:
            for number in numbers:
                yield FileHit(number, "", "", ())
            return
        seen: set[int] = set()
        deep = msgspec.structs.replace(limits, lines=_DEEPEST, rank=False)
        async for hit in await self.files(caller, asked, deep):
            if hit.source not in seen:
                seen.add(hit.source)
                yield FileHit(hit.source, "", "", ())

    async def page_of_sources(self, caller: Caller, asked: Asked, limits: Limits, shown: Shown) -> Found:
        found: list[FileHit] = []
        wanted = shown.lines + limits.lines + 1
        async for hit in self.sources(caller, asked, limits):
            found.append(hit)
            if len(found) >= wanted:
                break
        rest = shown.rest(found)
        page, then = shown.page(rest, limits.lines)
        more = len(rest) > len(page)
        return Found(page, then, found, more, more, Counted(0, 0, not more), self._searcher)
