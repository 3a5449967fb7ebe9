"""Finds files, or sources, for a page or a stream of them."""

from collections.abc import AsyncIterator, Iterable
from typing import Protocol

import msgspec

from skep.engines.index.base import Hits, Searcher, Standing
from skep.errors import BadQuery
from skep.model.caller import Caller
from skep.model.search import Counted, FileHit, Limits
from skep.search.catalogue import Catalogue
from skep.search.paging import Shown, head, pieces, size
from skep.search.past import Past
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
        #: None: there are no mirrors here
        self.past: Past | None = None

    async def files(self, caller: Caller, asked: Asked, limits: Limits) -> Hits:
        query = await self._catalogue.resolve(asked.query)
        if asked.kind != "line":
            limits = msgspec.structs.replace(limits, lines_per_file=0, context=0)
        visible = self._catalogue.visible(caller)
        if not asked.commit:
            return self._searcher.search(query, visible, limits, self._catalogue.gains)
        if self.past is None:
            raise BadQuery("there are no commits here", hint="leave `commit:` out", column=asked.columns["commit"])
        return await self.past.search(query, visible, limits, asked)

    async def page(self, caller: Caller, asked: Asked, limits: Limits, shown: Shown, look_at: int) -> Found:
        """`limits.lines` lines of files that were not shown; at least `look_at` lines are looked at."""
        wanted = max(shown.lines + limits.lines + 1, look_at)
        divided = asked.kind == "line" and not shown.files
        per_file = limits.lines_per_file if asked.kind == "line" else 0
        while True:
            whole = msgspec.structs.replace(limits, lines=wanted, look=max(limits.look, wanted))
            share, most = limits.lines if divided else 0, shown.head or per_file
            hits = await self.files(caller, asked, msgspec.structs.replace(whole, lines_per_file=most, share=share))
            found = [hit async for hit in hits]
            known, full = shown.heads(found, most), size(found) >= wanted
            if shown.head and not full:  # all heads are known
                hits = await self.files(caller, asked, whole)
                every = [hit async for hit in hits]
                known, full = known + shown.tails(found, every), size(every) >= wanted
            rest = shown.rest(known)
            if (rest and not shown.misses(known)) or not full or wanted >= _DEEPEST:
                break
            wanted *= 4  # what was shown has come to stand before what was not, or others before what was begun
        page, then = shown.page(rest, limits.lines, head(found) if divided else shown.head)
        more = full or size(hit for _, hit in rest) > size(page) or (then.head > 0 and any(hit.more for hit in page))
        return Found(page, then, found, more, hits.partial, hits.counted, hits)

    async def sources(self, caller: Caller, asked: Asked, limits: Limits) -> "Sources":
        """`type:repo`: by name where only names are asked for, else as files are found."""
        numbers = await self._catalogue.named(caller, asked.query)
        if numbers is not None:
            return Sources(numbers, None)
        return Sources((), await self.files(caller, asked, msgspec.structs.replace(limits, lines=_DEEPEST, rank=False)))

    async def page_of_sources(self, caller: Caller, asked: Asked, limits: Limits, shown: Shown) -> Found:
        found: list[FileHit] = []
        wanted = max(shown.lines + limits.lines + 1, limits.count)
        sources = await self.sources(caller, asked, limits)
        async for hit in sources:
            found.append(hit)
            if len(found) >= wanted:
                break
        rest = shown.rest(pieces(found))
        page, then = shown.page(rest, limits.lines)
        more = len(rest) > len(page)
        counted = Counted(len(found), 0, len(found) < wanted and sources.whole)
        return Found(page, then, found, more, more or not counted.exact, counted, self._searcher)


class Sources:
    """As files without a path, each once."""

    def __init__(self, numbers: Iterable[int], hits: Hits | None) -> None:
        self._numbers = numbers
        self._hits = hits

    @property
    def whole(self) -> bool:
        """When all were given: time was not over before every file was looked at."""
        return self._hits is None or self._hits.counted.exact

    async def __aiter__(self) -> AsyncIterator[FileHit]:
        for number in self._numbers:
            yield FileHit(number, "", "", ())
        if self._hits is None:
            return
        seen: set[int] = set()
        async for hit in self._hits:
            if hit.source not in seen:
                seen.add(hit.source)
                yield FileHit(hit.source, "", "", ())
