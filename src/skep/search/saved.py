"""Saved searches: which there are. What makes them speak is in `watching`."""

import re

from skep.access.audit import note
from skep.clock import Clock
from skep.engines.db.base import Database, Row, Tx
from skep.errors import BadInput, BadQuery, Conflict, NotAllowed, NotFound
from skep.model.caller import Caller
from skep.model.saved import SavedSearch, SearchSpec
from skep.search.query import ask
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
