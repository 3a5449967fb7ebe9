"""Lists: which there are, what they say, and what people decide about them."""

import json

from skep.access.audit import note
from skep.base.answers import Page
from skep.base.caller import Caller, Visibility
from skep.base.clock import Clock
from skep.base.errors import Conflict, NotFound
from skep.base.ids import new_id
from skep.sources.catalogue import MOVED
from skep.sources.lists.hosts import manifest_of, place_of
from skep.sources.model import ListedSource, ListKind, ListProblem, SourceList
from skep.sources.service import Sources
from skep.storage.database import Database, Row, Tx, Value, insert, struct_of

# The tables of lists and how their rows become nouns.

STEPS = [
    """
    CREATE TABLE list (
        id TEXT PRIMARY KEY, kind TEXT NOT NULL, url TEXT NOT NULL UNIQUE, source TEXT, forks BIGINT NOT NULL,
        archived BIGINT NOT NULL, visibility TEXT NOT NULL, state TEXT NOT NULL, version TEXT NOT NULL,
        confirmed TEXT NOT NULL, waiting BIGINT NOT NULL, failure TEXT NOT NULL, added_at DOUBLE PRECISION NOT NULL,
        read_at DOUBLE PRECISION, next_read DOUBLE PRECISION NOT NULL
    );
    CREATE TABLE list_file (
        list TEXT NOT NULL, file TEXT NOT NULL, stamp TEXT NOT NULL, entries BIGINT NOT NULL, PRIMARY KEY (list, file)
    );
    CREATE TABLE list_problem (
        list TEXT NOT NULL, file TEXT NOT NULL, n BIGINT NOT NULL, line BIGINT NOT NULL, message TEXT NOT NULL,
        PRIMARY KEY (list, file, n)
    );
    CREATE TABLE listed (
        list TEXT NOT NULL, file TEXT NOT NULL, name TEXT NOT NULL, line BIGINT NOT NULL, canonical TEXT NOT NULL,
        url TEXT NOT NULL, labels TEXT NOT NULL, settings TEXT NOT NULL, workers TEXT NOT NULL,
        visibility TEXT NOT NULL, fingerprint TEXT NOT NULL, source TEXT NOT NULL, gone BIGINT NOT NULL,
        PRIMARY KEY (list, file, name)
    );
    CREATE INDEX listed_source ON listed (source);
    CREATE INDEX listed_gone ON listed (list) WHERE gone = 1
    """
]

#: sources that only entries which are gone still name, of those that lists have added
LOST = """
    SELECT count(DISTINCT former.source) AS n FROM listed former JOIN source ON source.id = former.source
    WHERE former.list = :list AND former.gone = 1 AND source.by_list = 1 AND source.state <> 'removed'
    AND NOT EXISTS (SELECT 1 FROM listed living WHERE living.source = former.source AND living.gone = 0)
"""


def list_of(row: Row) -> SourceList:
    counts = {name: int(row[name] or 0) for name in ("entries", "problems")}
    return struct_of(SourceList, row, forks=bool(row["forks"]), archived=bool(row["archived"]), **counts)


def listed_of(row: Row) -> ListedSource:
    lists = {name: tuple(json.loads(row[name])) for name in ("labels", "workers")}
    return struct_of(ListedSource, row, settings=json.loads(row["settings"]), gone=bool(row["gone"]), **lists)


def problem_of(row: Row) -> ListProblem:
    return ListProblem(row["file"], row["line"], row["message"])


#: the label of a list's own repository
LABEL = "list"
_SUMS = """
    SELECT list.*, (SELECT sum(entries) FROM list_file WHERE list_file.list = list.id) AS entries,
        (SELECT count(*) FROM list_problem WHERE list_problem.list = list.id) AS problems FROM list
"""


#: how long a first start waits for its lists
FIRST_SECONDS = 300.0
#: lists that nobody has read yet, where nothing but lists was ever mirrored
_FIRST = """
    SELECT list.source FROM list LEFT JOIN source ON source.id = list.source
    WHERE list.state = 'new' AND list.added_at > :since AND COALESCE(source.failures, 0) = 0
    AND NOT EXISTS (SELECT 1 FROM list AS other WHERE other.read_at IS NOT NULL)
    AND NOT EXISTS (SELECT 1 FROM source AS other WHERE other.state = 'current'
        AND NOT EXISTS (SELECT 1 FROM list AS its WHERE its.source = other.id))
"""


class Lists:
    def __init__(self, db: Database, clock: Clock, sources: Sources) -> None:
        self._db = db
        self._clock = clock
        self._sources = sources

    async def start(self) -> None:
        await self._db.migrate("lists", STEPS)

    async def add(
        self, caller: Caller, url: str, *, visibility: Visibility = "public", forks: bool = True, archived: bool = True
    ) -> SourceList:
        """A list in a git repository, `github:org`, `gitlab:group/sub`, `gitee:org`, `gitea:https://host/org`, or
        `manifest:https://host/manifest.js.gz`."""
        caller.need("write")
        kind, source = kind_of(url), None
        if kind == "git":
            added = await self._sources.add(caller, url, visibility=visibility, labels=(LABEL,))
            url, source, visibility = added.source.url, added.source.id, added.source.visibility
        now = self._clock.now()
        id = new_id("lst", now)

        async def work(tx: Tx) -> None:
            made: dict[str, Value] = {"id": id, "kind": kind, "url": url, "source": source, "visibility": visibility}
            made |= {"state": "new", "forks": int(forks), "archived": int(archived), "added_at": now, "next_read": 0}
            made |= {"version": "", "confirmed": "", "waiting": 0, "failure": ""}
            if await insert(tx, "list", "ON CONFLICT (url) DO NOTHING RETURNING id", **made):
                await note(tx, now, caller, "list.add", url)
                tx.ring(MOVED)

        await self._db.write(work)
        return await self.show(caller, url)

    async def first(self) -> set[str] | None:
        """At a first start, the lists' own repositories: nothing else goes to a worker before they were read, for they
        say whose it is and how it is set. None: no more."""
        rows = await self._db.read(_FIRST, since=self._clock.now() - FIRST_SECONDS)
        return {row["source"] for row in rows} if rows else None

    async def show(self, caller: Caller, ref: str) -> SourceList:
        """By id or URL."""
        caller.need("read")
        rows = await self._db.read(f"{_SUMS} WHERE (id = :ref OR url = :ref) AND state <> 'removed'", ref=ref)
        if not rows or not caller.sees(rows[0]["visibility"]):
            raise NotFound(f"there is no list {ref!r}", hint="`skep list list` shows those there are")
        return list_of(rows[0])

    async def entries(
        self, caller: Caller, ref: str, *, page: str = "", limit: int = 100, gone: bool = False
    ) -> Page[ListedSource]:
        """By file and name; `gone`: only what is no longer in the list."""
        found = await self.show(caller, ref)
        file, _, name = page.partition("\n")
        rows = await self._db.read(
            "SELECT * FROM listed WHERE list = :list AND gone = :gone AND (:private = 1 OR visibility = 'public') "
            "AND (file > :file OR (file = :file AND name > :name)) ORDER BY file, name LIMIT :limit",
            list=found.id,
            gone=int(gone),
            private=int(caller.sees("private")),
            file=file,
            name=name,
            limit=limit + 1,
        )
        items = [listed_of(row) for row in rows[:limit]]
        return Page(items, f"{items[-1].file}\n{items[-1].name}" if len(rows) > limit else "")

    async def problems(self, caller: Caller, ref: str, *, limit: int = 1_000) -> list[ListProblem]:
        found = await self.show(caller, ref)
        rows = await self._db.read(
            "SELECT * FROM list_problem WHERE list = :list ORDER BY file, n LIMIT :limit", list=found.id, limit=limit
        )
        return [problem_of(row) for row in rows]

    async def confirm(self, caller: Caller, ref: str, version: str) -> SourceList:
        """A person has seen what this version of the list removes, and agrees."""
        caller.need("write")
        found = await self.show(caller, ref)
        if found.state != "waiting" or found.version != version:
            raise Conflict(
                f"{found.url} does not wait with this version", hint="look again: `skep list show` says what waits"
            )

        async def work(tx: Tx) -> None:
            await tx.rows("UPDATE list SET confirmed = :version WHERE id = :id", version=version, id=found.id)
            await note(tx, self._clock.now(), caller, "list.confirm", f"{found.url} {version}")
            tx.ring(MOVED)

        await self._db.write(work)
        return found

    async def read(self, caller: Caller, ref: str) -> SourceList:
        """Now, whatever the clock says."""
        caller.need("write")
        found = await self.show(caller, ref)
        if found.source:
            await self._sources.fetch(caller, found.source)

        async def work(tx: Tx) -> None:
            await tx.rows("UPDATE list SET next_read = 0 WHERE id = :id", id=found.id)
            tx.ring(MOVED)

        await self._db.write(work)
        return found

    async def remove(self, caller: Caller, ref: str) -> None:
        """And, in the background, every source that only this list has named. Its own repository stays a source."""
        caller.need("write")
        found = await self.show(caller, ref)

        async def work(tx: Tx) -> None:
            await tx.rows("UPDATE list SET state = 'removed', url = id WHERE id = :id", id=found.id)
            await note(tx, self._clock.now(), caller, "list.remove", found.url)
            tx.ring(MOVED)

        await self._db.write(work)

    async def list(self, caller: Caller) -> list[SourceList]:
        caller.need("read")
        rows = await self._db.read(f"{_SUMS} WHERE state <> 'removed' ORDER BY id")
        return [list_of(row) for row in rows if caller.sees(row["visibility"])]


def kind_of(url: str) -> ListKind:
    """BadInput when it names a kind, and nothing of that kind."""
    if (place := place_of(url)) is not None:
        return place.kind
    return "manifest" if manifest_of(url) else "git"
