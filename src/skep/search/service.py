"""Search over everything mirrored: parse, see what the caller may see, ask the index, say how fresh each hit is."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from skep.access.audit import note
from skep.base.caller import Caller
from skep.base.clock import Clock
from skep.base.errors import BadQuery
from skep.fleet.members import Interest
from skep.indexing.updates import request
from skep.languages.languages import languages
from skep.search.api import Completion, Hit, RecordPage, SearchAnswer, SearchSummary, SourceHit
from skep.search.catalogue import Catalogue
from skep.search.commits import Commits, Past
from skep.search.completion import complete, writing
from skep.search.hits import Shown, answer, facets, head, pieces, place, size, source_answer
from skep.search.query import Asked, Kind, ask
from skep.sources.catalogue import CATALOGUE, Newest, newest
from skep.sources.git.documents import Rules
from skep.sources.model import SourceSettings
from skep.storage.code_index.base import Hits, Searcher, Standing
from skep.storage.code_index.model import Counted, FileHit, Limits
from skep.storage.database import Database, Tx

# Finds files, or sources, for a page or a stream of them.

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


#: lines looked at, at least, where the answer says what else there is
_FACET_LINES = 500
#: sources whose names, or whose branches, are offered for completion
_OFFERED = 200
#: seconds that the newest commit of a source is remembered, and of how many sources
_REMEMBER, _MOST_REMEMBERED = 1.0, 10_000


class Records(Protocol):
    """What else can be searched: reports, or records of science. It shows callers only what they may see."""

    async def __call__(self, caller: Caller, words: str, limit: int, page: str) -> RecordPage: ...


class Freshness:
    """What is newest of each source, remembered for a moment: what was so then is true for as long as it says so."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock
        self._known: dict[int, tuple[Newest | None, float]] = {}

    async def of(self, numbers: Iterable[int]) -> dict[int, Newest | None]:
        wanted, now = set(numbers), self._clock.now()
        old = {number for number in wanted if not now - _REMEMBER < self._known.get(number, (None, 0.0))[1] <= now}
        if old:
            found = await newest(self._db, old)
            if len(self._known) > _MOST_REMEMBERED:
                self._known.clear()
            self._known |= {number: (found.get(number), now) for number in old}
        return {number: self._known.get(number, (None, 0.0))[0] for number in wanted}


class Search:
    def __init__(
        self,
        db: Database,
        clock: Clock,
        searcher: Searcher,
        interest: Interest,
        by_label: Mapping[str, SourceSettings] | None = None,
    ) -> None:
        """`by_label`: what sources with a label have in common."""
        self._db = db
        self._clock = clock
        self._searcher = searcher
        self._interest = interest
        self.catalogue = Catalogue(by_label or {})
        self._finder = Finder(searcher, self.catalogue)
        self._freshness = Freshness(db, clock)
        #: who answers `type:report` and `type:record`
        self.records: dict[Kind, Records] = {}
        #: of these, with what they are about
        self.fields: dict[Kind, Mapping[str, str]] = {}
        self._commits: Commits | None = None
        #: has the indexes that other processes have of a source compared
        self.compare: Callable[[Tx, str], Awaitable[None]] | None = None

    def read_mirrors(self, mirror: Callable[[str], Path], folder: Path, rules: Rules) -> None:
        """Answer `type:commit` and `commit:` from the mirrors there. `folder`: for indexes made on the way."""
        self._commits = Commits(self.catalogue, self._searcher, mirror, self._clock)
        self._finder.past = Past(self.catalogue, self._searcher, mirror, folder, rules)

    async def start(self) -> None:
        await self.catalogue.refresh(self._db)

    async def follow(self) -> None:
        """Keep the catalogue current, and drop the index of what is no longer in it."""
        for source, number in self._searcher.indexed():
            if self.catalogue.find(number) is None:
                await self._searcher.drop(source, number)
        await self._forget_past()
        async with self._db.listen(CATALOGUE) as bell:
            while True:
                gone = await self.catalogue.refresh(self._db)
                for removed in gone:
                    if self._searcher.standing(removed.number):
                        await self._searcher.drop(removed.id, removed.number)
                if gone:
                    await self._forget_past()
                await bell.wait(60.0)

    async def _forget_past(self) -> None:
        if self._finder.past is not None:
            await self._finder.past.forget()

    async def reindex(self, caller: Caller, source: str) -> None:
        """Build the index of a source anew, aside; until it is swapped in the old one answers."""
        caller.need("write")

        async def work(tx: Tx) -> None:
            await request(tx, source, "whole")
            if self.compare is not None:
                await self.compare(tx, source)
            await note(tx, self._clock.now(), caller, "source.reindex", source)

        await self._db.write(work)

    async def search(
        self, caller: Caller, text: str, limits: Limits, *, page: str = "", with_facets: bool = False
    ) -> SearchAnswer:
        """One page, best first. Facets say what the files of this page are, and those that would follow."""
        caller.need("read")
        began = time.monotonic()
        asked = ask(text)
        if asked.kind in ("report", "record"):
            return await self._records(caller, asked, limits, page)
        if asked.kind == "commit":
            return await self._logged(caller, asked, _counted(asked, limits), page)
        shown, limits = Shown.read(page), _counted(asked, limits)
        if asked.kind == "repo":
            found = await self._finder.page_of_sources(caller, asked, limits, shown)
            hits, sources = [], await self._source_answers(found.page, found.standings)
        else:
            least = _FACET_LINES if with_facets else 0
            found = await self._finder.page(caller, asked, limits, shown, least)
            hits, sources = await self._answers(found.page, found.standings, asked), []
        goes_on = found.more and found.page and not found.then.is_full
        return SearchAnswer(
            hits,
            sum(len(hit.lines) for hit in hits),
            found.partial or found.more,
            round(time.monotonic() - began, 6),
            found.counted,
            found.then.token() if goes_on else "",
            sources,
            facets=facets(found.hits, not found.partial, self.catalogue.find) if with_facets else None,
        )

    async def _records(self, caller: Caller, asked: Asked, limits: Limits, page: str) -> SearchAnswer:
        began = time.monotonic()
        if asked.kind not in self.records:
            raise _unanswered(asked, f"there are no {asked.kind}s here", "leave `type:` out to search files")
        found = await self.records[asked.kind](caller, asked.words, limits.lines, page)
        counted = Counted(found.total, 0)
        seconds = round(time.monotonic() - began, 6)
        goes_on = bool(found.next_page)
        return SearchAnswer([], 0, goes_on, seconds, counted, found.next_page, records=found.records)

    async def _logged(self, caller: Caller, asked: Asked, limits: Limits, page: str) -> SearchAnswer:
        began = time.monotonic()
        if self._commits is None:
            raise _unanswered(asked, "there are no commits here", "leave `type:` out to search files")
        found = await self._commits.page(caller, asked, limits, page)
        partial, seconds = bool(found.next_page) or not found.exact, round(time.monotonic() - began, 6)
        counted = Counted(found.total, 0, found.exact)
        return SearchAnswer([], 0, partial, seconds, counted, found.next_page, commits=found.commits)

    async def stream(
        self, caller: Caller, text: str, limits: Limits
    ) -> AsyncGenerator[Hit | SourceHit | SearchSummary, None]:
        """As they are found, and at the end a summary. What is wrong with the query is said at once."""
        caller.need("read")
        asked = ask(text)
        if asked.kind in ("commit", "report", "record"):
            raise _unanswered(asked, f"{asked.kind}s come in pages, not as a stream", "accept application/json")
        limits = msgspec.structs.replace(_counted(asked, limits), rank=False)
        return self._stream(caller, asked, limits)

    async def _stream(
        self, caller: Caller, asked: Asked, limits: Limits
    ) -> AsyncGenerator[Hit | SourceHit | SearchSummary, None]:
        began, files, lines, more = time.monotonic(), 0, 0, False
        if asked.kind == "repo":
            sources = await self._finder.sources(caller, asked, limits)
            async for found in sources:
                if more := files >= limits.lines:
                    break
                for source in await self._source_answers([found], self._searcher):
                    files += 1
                    yield source
            counted = Counted(files + more, 0, not more and sources.whole)
            yield SearchSummary(files, 0, not counted.exact, round(time.monotonic() - began, 6), counted)
            return
        hits = await self._finder.files(caller, asked, limits)
        async for found in hits:
            for hit in await self._answers([found], hits, asked):
                files, lines = files + 1, lines + len(hit.lines)
                yield hit
        yield SearchSummary(files, lines, hits.partial, round(time.monotonic() - began, 6), hits.counted)

    async def complete(self, caller: Caller, text: str, cursor: int) -> list[Completion]:
        """What may stand at the cursor; only of what the caller may see."""
        caller.need("read")
        at = writing(text, cursor)
        sources, branches = [], set[str]()
        if at.field == "repo":
            sources = [source.name for source in await self.catalogue.like(caller, at.value, _OFFERED)]
        if at.field == "branch":
            for source in await self.catalogue.like(caller, "", _OFFERED):
                if standing := self._searcher.standing(source.number):
                    branches.update(tip.name for tip in standing.tips)
        return complete(text, cursor, sources, languages(), sorted(branches), self.fields)

    async def _answers(self, found: Iterable[FileHit], standings: Standings, asked: Asked) -> list[Hit]:
        """Without those of sources that were removed meanwhile."""
        found = list(found)
        fresh = await self._freshness.of(hit.source for hit in found)
        places = {
            (number, branches): place(source, standing, branches, fresh.get(number), asked.query)
            for number, branches in {(hit.source, hit.branches) for hit in found}
            if (source := self.catalogue.find(number)) and (standing := standings.standing(number))
        }
        self._interest.note({at.id for at in places.values()})
        return [answer(hit, at, asked.kind) for hit in found if (at := places.get((hit.source, hit.branches)))]

    async def _source_answers(self, found: Iterable[FileHit], standings: Standings) -> list[SourceHit]:
        numbers = [hit.source for hit in found]
        fresh = await self._freshness.of(numbers)
        return [
            source_answer(source, standings.standing(number), fresh.get(number))
            for number in numbers
            if (source := self.catalogue.find(number))
        ]


def _unanswered(asked: Asked, message: str, hint: str) -> BadQuery:
    """What it asks for cannot be had; `type:` says what that is."""
    return BadQuery(message, hint=hint, column=asked.columns["type"])


def _counted(asked: Asked, limits: Limits) -> Limits:
    """`count:` is what the person who wrote the query wants, whoever carried it here."""
    return limits if asked.count is None else msgspec.structs.replace(limits, lines=asked.count)
