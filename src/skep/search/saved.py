"""Saved searches: which there are. What makes them speak is in `watching`."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from skep.access.audit import note
from skep.base.caller import Caller
from skep.base.clock import Clock
from skep.base.errors import BadInput, BadQuery, Conflict, NotAllowed, NotFound
from skep.base.ids import match_id
from skep.search.api import NewMatches, SavedSearch, SearchSpec
from skep.search.catalogue import Catalogue
from skep.search.hits import answer, place
from skep.search.query import Asked, ask
from skep.sources.catalogue import Named
from skep.storage.code_index.base import Searcher, Side, Standing
from skep.storage.code_index.model import Delta, Fence, FileHit, Limits
from skep.storage.database import Database, Row, Tx
from skep.topics import service
from skep.topics.api import Draft
from skep.topics.service import OWN, SEARCHES, Topics

MOST_SEARCHES = 1_000
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")

STEPS = [
    """
    CREATE TABLE saved_search (
        name TEXT PRIMARY KEY, query TEXT NOT NULL, topic TEXT NOT NULL, owner TEXT NOT NULL, private BIGINT NOT NULL,
        first BIGINT NOT NULL, created_at DOUBLE PRECISION NOT NULL
    )
    """
]


class Saved:
    def __init__(self, db: Database, clock: Clock, topics: Topics) -> None:
        self._db = db
        self._clock = clock
        self._topics = topics

    async def start(self) -> None:
        await self._db.migrate("searches", STEPS)

    async def save(self, caller: Caller, name: str, spec: SearchSpec) -> SavedSearch:
        """A name that is there already gets another query, if it is the caller's own."""
        caller.need("write")
        if not _NAME.fullmatch(name):
            raise BadInput(f"{name[:80]!r} is no name for a search", hint="small letters, digits, and . _ - inside")
        asked = ask(spec.query)
        if asked.kind not in ("line", "file", "path") or asked.commit:
            column = asked.columns["commit" if asked.commit else "type"]
            hint = "leave `type:` and `commit:` out"
            raise BadQuery("only files that change can be watched", hint=hint, column=column)
        topic = spec.topic or SEARCHES
        if topic in OWN and topic != SEARCHES:
            raise NotAllowed(f"{topic!r} tells something else", hint=f"choose {SEARCHES}, or a topic of your own")
        await self._topics.find(topic)
        saved = SavedSearch(name, spec.query, topic, caller.subject, spec.first, self._clock.now())

        async def work(tx: Tx) -> None:
            rows = await tx.rows("SELECT name, owner FROM saved_search FOR UPDATE")
            owners = {row["name"]: row["owner"] for row in rows}
            if not _may(caller, owners.get(name, caller.subject)):
                raise Conflict(f"there is a saved search {name!r} of somebody else", hint="choose another name")
            if name not in owners and len(owners) >= MOST_SEARCHES:
                raise Conflict(f"there are {MOST_SEARCHES:,} saved searches already", hint="remove some")
            await tx.rows(
                "INSERT INTO saved_search (name, query, topic, owner, private, first, created_at) "
                "VALUES (:name, :query, :topic, :owner, :private, :first, :now) ON CONFLICT (name) DO UPDATE SET "
                "query = excluded.query, topic = excluded.topic, private = excluded.private, first = excluded.first",
                name=name,
                query=spec.query,
                topic=topic,
                owner=caller.subject,
                private=int(caller.sees("private")),
                first=int(spec.first),
                now=saved.created_at,
            )
            await note(tx, saved.created_at, caller, "search.save", name)

        await self._db.write(work)
        return saved

    async def remove(self, caller: Caller, name: str) -> None:
        caller.need("write")

        async def work(tx: Tx) -> None:
            rows = await tx.rows("SELECT owner FROM saved_search WHERE name = :name FOR UPDATE", name=name)
            if not rows or not _may(caller, rows[0]["owner"]):
                raise NotFound(f"there is no saved search {name!r}", hint="`skep searches list` shows yours")
            await tx.rows("DELETE FROM saved_search WHERE name = :name", name=name)
            await note(tx, self._clock.now(), caller, "search.remove", name)

        await self._db.write(work)

    async def rows(self) -> list[Row]:
        return await self._db.read("SELECT * FROM saved_search ORDER BY name")

    async def list(self, caller: Caller) -> list[SavedSearch]:
        """The caller's own; all of them for an admin."""
        caller.need("read")
        return [_saved(row) for row in await self.rows() if _may(caller, row["owner"])]


def _saved(row: Row) -> SavedSearch:
    return SavedSearch(
        row["name"], row["query"], row["topic"], row["owner"], bool(row["first"]), float(row["created_at"])
    )


def _may(caller: Caller, owner: str) -> bool:
    return owner == caller.subject or caller.may("admin")


# What a delta brings that saved searches did not match before.
#
# Its two sides are searched before it is adopted: the files it takes away and those it brings, and no others. What is
# new
# is told in the transaction that adopts it, so it is told once, whatever is killed when.

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
            await self._searcher.db.migrate("relay", service.RELAY_STEPS)

    async def carry(self) -> None:
        """For ever. What an index with a database of its own has to tell waits there, until it is in the log."""
        if self._is_here:
            await asyncio.Event().wait()
        await service.carry(self._searcher.db, self._topics.log)

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
                    await service.put(tx, topic, drafts)

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
