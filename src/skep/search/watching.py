"""What a delta brings that saved searches did not match before.

Its two sides are searched before it is adopted: the files it takes away and those it brings, and no others. What is new
is told in the transaction that adopts it, so it is told once, whatever is killed when.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from skep.clock import Clock
from skep.engines.db.base import Row, Tx
from skep.engines.index.base import Searcher, Side, Standing
from skep.model.ids import match_id
from skep.model.saved import NewMatches
from skep.model.search import Delta, Fence, FileHit, Limits
from skep.model.topic import Draft
from skep.search.answering import answer, place
from skep.search.catalogue import Catalogue
from skep.search.query import Asked, ask
from skep.search.saved import Saved
from skep.sources.views import Named
from skep.topics import relay
from skep.topics.service import OWN, Topics

log = logging.getLogger(__name__)

#: files that one search tells of one change, and lines of each
_MOST_FILES, _MOST_LINES = 100, 50
_LOOK = Limits(lines=100_000, seconds=30.0, rank=False)


class Watching:
    def __init__(self, saved: Saved, topics: Topics, clock: Clock, searcher: Searcher, catalogue: Catalogue) -> None:
        self._saved = saved
        self._topics = topics
        self._clock = clock
        self._searcher = searcher
        self._catalogue = catalogue

    async def start(self) -> None:
        if not self._is_here:
            await self._searcher.db.migrate("relay", relay.STEPS)

    async def carry(self) -> None:
        """For ever. What an index with a database of its own has to tell waits there, until it is in the log."""
        if self._is_here:
            await asyncio.Event().wait()
        await relay.carry(self._searcher.db, self._topics.log)

    @property
    def _is_here(self) -> bool:
        """Is the index in the database of the topics?"""
        return self._searcher.db is self._topics.db

    async def watch(
        self, delta: Delta, fence: Fence, before: Side, after: Side
    ) -> Callable[[Tx], Awaitable[None]] | None:
        """The Watcher of the index."""
        source = self._catalogue.find(delta.number)
        if source is None:
            return None
        is_first = self._searcher.standing(delta.number) is None
        standing = Standing(delta.source, delta.number, delta.tips, fence.fetched_at)
        told: dict[str, list[Draft]] = {}
        for row in await self._saved.rows():
            if _sees(row, source) and (row["first"] or not is_first):
                asked = ask(row["query"])
                found = await self._new(row["name"], asked, before, after)
                drafts = self._drafts(row, asked, found, source, standing)
                told.setdefault(row["topic"], []).extend(drafts)

        async def also(tx: Tx) -> None:
            for topic, drafts in sorted(told.items()):
                if self._is_here:
                    await self._topics.tell(tx, topic, drafts, self._clock.now())
                else:
                    await relay.put(tx, topic, drafts)

        return also if any(told.values()) else None

    async def _new(self, name: str, asked: Asked, before: Side, after: Side) -> list[FileHit]:
        """Files of `after` with the lines that `before` has not in the same file."""
        query = await self._catalogue.resolve(asked.query)
        new = [hit async for hit in after(query, _LOOK)]
        if not new:
            return []
        sought = before(query, _LOOK)
        old = {key async for hit in sought for key in _keys(hit)}
        if sought.partial:
            log.warning("a change is too large for a saved search: nothing is told", extra={"search": name})
            return []
        return [rest for hit in new if (rest := _without(hit, old))]

    def _drafts(
        self, row: Row, asked: Asked, found: list[FileHit], source: Named, standing: Standing
    ) -> Iterable[Draft]:
        for hit in found[:_MOST_FILES]:
            id = match_id(row["name"], source.id, standing.commit, standing.fetched_at, hit.path)
            shown = answer(hit, place(source, standing, hit.branches, None, asked.query), asked.kind)
            more = len(found) > _MOST_FILES
            matches = NewMatches(id, row["name"], row["query"], shown, self._clock.now(), more)
            yield Draft(msgspec.json.encode(matches), id, source.id)


def _keys(hit: FileHit) -> set[tuple[str, str]]:
    """A file is known by its name too, for queries that ask for no more."""
    return {(hit.path, ""), *((hit.path, line.text) for line in hit.lines)}


def _without(hit: FileHit, old: set[tuple[str, str]]) -> FileHit | None:
    lines = tuple(line for line in hit.lines if (hit.path, line.text) not in old)
    if not lines and (hit.lines or (hit.path, "") in old):
        return None
    return msgspec.structs.replace(hit, lines=lines[:_MOST_LINES], more=hit.more or len(lines) > _MOST_LINES)


def _sees(row: Row, source: Named) -> bool:
    """May this be told of the source? What is private goes to Skep's own topics only: reading them needs that scope."""
    return source.visibility == "public" or (bool(row["private"]) and row["topic"] in OWN)
