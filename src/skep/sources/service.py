"""The catalogue: sources people asked for, where their entries stand, and every change that was ever told."""

import json
from collections.abc import Mapping, Sequence

from skep.access.audit import note
from skep.clock import Clock
from skep.engines.db.base import Database, Row, Tx
from skep.errors import BadInput, Conflict, NotFound
from skep.fleet.service import Fleet
from skep.model.answers import Added, Page
from skep.model.caller import Caller, Visibility
from skep.model.ids import new_id
from skep.model.source import Change, Held, Source
from skep.sources.base import Addresses
from skep.sources.tables import STEPS, change_of, source_of

#: rung when anything a waiting person might look at moved
MOVED = "sources"
#: rung when the set of sources, their names or their visibility changed
CATALOGUE = "catalogue"


class Sources:
    def __init__(self, db: Database, clock: Clock, fleet: Fleet, kinds: Mapping[str, Addresses]) -> None:
        self._db = db
        self._clock = clock
        self._fleet = fleet
        self._kinds = kinds

    async def start(self) -> None:
        await self._db.migrate("sources", STEPS)

    async def add(
        self,
        caller: Caller,
        url: str,
        *,
        kind: str = "git",
        visibility: Visibility = "public",
        labels: Sequence[str] = (),
    ) -> Added:
        caller.need("write")
        addresses = self._addresses(kind)
        addresses.check(url, local=caller.may("admin"))
        canonical, clean = addresses.canonical(url), addresses.clean(url)
        name = addresses.name(canonical)
        tags = json.dumps(_labels(labels))
        now = self._clock.now()
        id = new_id("src", now)

        async def work(tx: Tx) -> str | None:
            known = await tx.rows("SELECT source FROM url WHERE canonical = :canonical", canonical=canonical)
            if known:
                return str(known[0]["source"])
            count = await tx.rows("UPDATE source_count SET number = number + 1 WHERE id = 0 RETURNING number")
            await tx.rows(
                "INSERT INTO source (id, number, kind, name, url, state, visibility, labels, epoch, default_branch, "
                "added_at, failures) VALUES (:id, :number, :kind, :name, :url, 'new', :visibility, :labels, 1, '', "
                ":now, 0)",
                id=id,
                number=count[0]["number"],
                kind=kind,
                name=name,
                url=clean,
                visibility=visibility,
                labels=tags,
                now=now,
            )
            await tx.rows("INSERT INTO url (canonical, source) VALUES (:canonical, :id)", canonical=canonical, id=id)
            await self._fleet.assign(tx, id)
            await note(tx, now, caller, "source.add", canonical)
            tx.ring(CATALOGUE)
            return None

        known = await self._db.write(work)
        row = await self._row(known or id)
        if not caller.sees(row["visibility"]):
            raise Conflict(
                f"{canonical} is already mirrored as a private source", hint="ask an admin for the scope 'private'"
            )
        return Added(source_of(row), created=known is None)

    async def list(self, caller: Caller, *, page: str = "", limit: int = 100, state: str | None = None) -> Page[Source]:
        caller.need("read")
        rows = await self._db.read(
            "SELECT * FROM source WHERE id > :page AND state <> 'removed' AND (:state = '' OR state = :state) "
            "AND (:private = 1 OR visibility = 'public') ORDER BY id LIMIT :limit",
            page=page,
            state=state or "",
            private=int(caller.sees("private")),
            limit=limit + 1,
        )
        items = [source_of(row, self._fleet.progress(row["id"])) for row in rows[:limit]]
        return Page(items, items[-1].id if len(rows) > limit else "")

    async def show(self, caller: Caller, ref: str) -> Source:
        caller.need("read")
        row = await self._find(ref)
        if row is None or not caller.sees(row["visibility"]):
            raise NotFound(f"there is no source {ref!r}", hint="`skep source list` shows those there are")
        return source_of(row, self._fleet.progress(row["id"]))

    async def update(
        self,
        caller: Caller,
        ref: str,
        *,
        url: str | None = None,
        visibility: Visibility | None = None,
        labels: Sequence[str] | None = None,
    ) -> Source:
        """Change what is given. A new URL keeps the mirror: the next look compares it with the new upstream."""
        caller.need("write")
        source = await self.show(caller, ref)
        tags = None if labels is None else json.dumps(_labels(labels))

        async def work(tx: Tx) -> None:
            if url is not None:
                await self._readdress(tx, caller, source, url)
            await tx.rows(
                "UPDATE source SET visibility = COALESCE(:visibility, visibility), labels = COALESCE(:labels, labels) "
                "WHERE id = :id",
                visibility=visibility,
                labels=tags,
                id=source.id,
            )
            await self._fleet.ask(tx, "hold", source.id)
            await note(tx, self._clock.now(), caller, "source.update", source.id)
            tx.ring(CATALOGUE)

        await self._db.write(work)
        return await self.show(caller, source.id)

    async def _readdress(self, tx: Tx, caller: Caller, source: Source, url: str) -> None:
        addresses = self._addresses(source.kind)
        addresses.check(url, local=caller.may("admin"))
        canonical = addresses.canonical(url)
        taken = await tx.rows("SELECT source FROM url WHERE canonical = :canonical", canonical=canonical)
        if taken and taken[0]["source"] != source.id:
            raise Conflict(f"{canonical} is another source already", hint="remove one of the two")
        await tx.rows("DELETE FROM url WHERE source = :id", id=source.id)
        await tx.rows("INSERT INTO url (canonical, source) VALUES (:canonical, :id)", canonical=canonical, id=source.id)
        name = addresses.name(canonical)
        await tx.rows(
            "UPDATE source SET url = :url, name = :name WHERE id = :id",
            url=addresses.clean(url),
            name=name,
            id=source.id,
        )
        if name != source.name:
            await tx.rows(
                "INSERT INTO former_name (name, source) VALUES (:name, :id) "
                "ON CONFLICT (name) DO UPDATE SET source = excluded.source",
                name=source.name,
                id=source.id,
            )

    async def fetch(self, caller: Caller, ref: str) -> Source:
        """Look at the upstream now, whatever the schedule says."""
        caller.need("write")
        source = await self.show(caller, ref)

        async def work(tx: Tx) -> None:
            await self._fleet.ask(tx, "fetch", source.id)
            await note(tx, self._clock.now(), caller, "source.fetch", source.id)

        await self._db.write(work)
        return source

    async def remove(self, caller: Caller, ref: str) -> Source:
        """Gone from the catalogue at once; the holder deletes the mirror. Added again it is another source."""
        caller.need("write")
        source = await self.show(caller, ref)

        async def work(tx: Tx) -> None:
            await self._fleet.release(tx, source.id)
            for table in ("url", "former_name", "entry"):
                await tx.rows(f"DELETE FROM {table} WHERE source = :id", id=source.id)  # noqa: S608
            await tx.rows("UPDATE source SET state = 'removed', epoch = epoch + 1 WHERE id = :id", id=source.id)
            await note(tx, self._clock.now(), caller, "source.remove", source.url)
            tx.ring(CATALOGUE)
            tx.ring(MOVED)

        await self._db.write(work)
        return source

    async def wait(
        self, caller: Caller, ref: str, *, looked_after: float = 0.0, timeout: float = 30.0
    ) -> tuple[Source, bool]:
        """Until the source is searchable at its newest known commit, or failing; False when `timeout` passed first."""
        id = (await self.show(caller, ref)).id
        until = self._clock.now() + timeout
        async with self._db.listen(MOVED) as bell:
            while True:
                source = await self.show(caller, id)
                if await self._settled(source, looked_after):
                    return source, True
                left = until - self._clock.now()
                if left <= 0:
                    return source, False
                await bell.wait(min(left, 5.0))

    async def _settled(self, source: Source, looked_after: float) -> bool:
        if source.state in ("new", "cloning") or (source.last_looked or 0.0) < looked_after:
            return False
        if source.state != "current":
            return True
        return source.indexed_commit == await self.newest(source)

    async def newest(self, source: Source) -> str | None:
        """The commit of the default branch as last told; None while it has none."""
        rows = await self._db.read(
            "SELECT version FROM entry WHERE source = :id AND name = :branch",
            id=source.id,
            branch=f"refs/heads/{source.default_branch}",
        )
        return rows[0]["version"] if rows else None

    async def changes(self, caller: Caller, ref: str, *, page: str = "", limit: int = 100) -> Page[Change]:
        source = await self.show(caller, ref)
        if page and not page.isdecimal():
            raise BadInput(f"{page!r} is not a page token of this list", hint="use `next_page` of the answer before")
        skip = int(page) if page else 0
        rows = await self._db.read(
            "SELECT * FROM change WHERE source = :id ORDER BY at DESC, id LIMIT :limit OFFSET :skip",
            id=source.id,
            limit=limit + 1,
            skip=skip,
        )
        return Page([change_of(row) for row in rows[:limit]], str(skip + limit) if len(rows) > limit else "")

    async def held(self, id: str) -> Held | None:
        """What its holder needs to know of a source: the body of a Hold order."""
        rows = await self._db.read("SELECT * FROM source WHERE id = :id AND state <> 'removed'", id=id)
        if not rows:
            return None
        row = rows[0]
        entries = await self._db.read("SELECT name, version FROM entry WHERE source = :id", id=id)
        told = {entry["name"]: entry["version"] for entry in entries if entry["version"] is not None}
        return Held(id, row["number"], row["kind"], row["url"], row["epoch"], row["visibility"], told)

    async def is_former(self, name: str) -> bool:
        """A source had this name before, and none has it now."""
        rows = await self._db.read(
            "SELECT name FROM former_name WHERE name = :name AND NOT EXISTS "
            "(SELECT 1 FROM source WHERE source.name = former_name.name AND state <> 'removed')",
            name=name,
        )
        return bool(rows)

    def _addresses(self, kind: str) -> Addresses:
        if kind not in self._kinds:
            raise BadInput(f"{kind!r} is not a kind of source", hint=f"known kinds: {', '.join(sorted(self._kinds))}")
        return self._kinds[kind]

    async def _row(self, id: str) -> Row:
        return (await self._db.read("SELECT * FROM source WHERE id = :id", id=id))[0]

    async def _find(self, ref: str) -> Row | None:
        """By id, then by name, then by any spelling of its URL, then by a name it had before."""
        rows = await self._db.read(
            "SELECT * FROM source WHERE (id = :ref OR name = :ref) AND state <> 'removed' ORDER BY id LIMIT 1", ref=ref
        )
        if rows:
            return rows[0]
        formerly = ref
        for addresses in self._kinds.values():
            try:
                canonical = addresses.canonical(ref)
            except BadInput:
                continue
            rows = await self._db.read(
                "SELECT source.* FROM source JOIN url ON url.source = source.id WHERE url.canonical = :canonical",
                canonical=canonical,
            )
            if rows:
                return rows[0]
            formerly = addresses.name(canonical)
        rows = await self._db.read(
            "SELECT source.* FROM source JOIN former_name ON former_name.source = source.id "
            "WHERE former_name.name = :name",
            name=formerly,
        )
        return rows[0] if rows else None


def _labels(labels: Sequence[str]) -> list[str]:
    for label in labels:
        if not label or len(label) > 100 or not label.isprintable():
            raise BadInput(f"{label[:40]!r} is not a label", hint="1 to 100 printable characters")
    return sorted(set(labels))
