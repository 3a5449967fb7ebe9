"""What we know of all objects: system metadata with history, where the bytes are, and the story of each decision."""

import asyncio
import hashlib
import math
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from skep.base.caller import Caller
from skep.base.clock import Clock
from skep.base.errors import Conflict, NotFound
from skep.base.ids import new_id
from skep.dataone.api import Aside, Chapter, Standing, Story
from skep.dataone.apply_batch import Settling
from skep.dataone.decision import Version, chain, head, in_order, members
from skep.dataone.formats import FormatList, Formats
from skep.dataone.tables import BACKLOG, VERSION, WAIT, WORKED, Stored, confided, stored, version
from skep.dataone.tables import STEPS as TABLES_STEPS
from skep.dataone.types import AUTHENTICATED, PUBLIC, Checksum, ObjectInfo, ObjectList, SystemMetadata
from skep.storage.blobs import Blobs
from skep.storage.database import Database, Row, Tx, Value, among
from skep.topics.service import Topics

# Bytes of objects: those that are brought together are one blob, and what nobody refers to is swept.
#
# Every pack ends with a mark of its own, so that no two are the same blob: what is swept cannot be coming in just now.

STEPS = [
    """
    CREATE TABLE pack (blob TEXT PRIMARY KEY, at DOUBLE PRECISION NOT NULL);
    CREATE TABLE quarantine (
        pid TEXT NOT NULL, node TEXT NOT NULL, blob TEXT NOT NULL, start BIGINT NOT NULL, size BIGINT NOT NULL,
        reason TEXT NOT NULL, at DOUBLE PRECISION NOT NULL, PRIMARY KEY (pid, node)
    );
    CREATE INDEX quarantine_at ON quarantine (at);
    CREATE INDEX quarantine_blob ON quarantine (blob)
    """
]
#: seconds that whoever brings a pack has to refer to it
_GRACE = 3_600.0
#: wrong bytes of so many objects are kept, those that came last
MOST_ASIDE = 1_000
_AT_ONCE = 1_000
_CHUNK = 1 << 20
_UNUSED = """
    SELECT blob FROM pack WHERE at < :old AND NOT EXISTS (SELECT 1 FROM sysmeta WHERE sysmeta.blob = pack.blob)
        AND NOT EXISTS (SELECT 1 FROM quarantine WHERE quarantine.blob = pack.blob)
        AND NOT EXISTS (SELECT 1 FROM dataone_copy WHERE dataone_copy.blob = pack.blob) LIMIT :limit
"""
_TRIM = """
    DELETE FROM quarantine WHERE at < (SELECT at FROM quarantine ORDER BY at DESC LIMIT 1 OFFSET :most)
"""


class Packs:
    def __init__(self, db: Database, clock: Clock, blobs: Blobs) -> None:
        self._db = db
        self._clock = clock
        self._blobs = blobs

    async def start(self) -> None:
        await self._db.migrate("packs", STEPS)

    async def put(self, file: Path) -> str:
        """The blob. It is known of before it is there, so that a kill leaves nothing that nobody knows of."""
        now = self._clock.now()
        mark = new_id("pck", now).encode()
        id = await asyncio.to_thread(_digest, file, mark)
        await self._note(id)
        async with aclosing(_sent(file, mark)) as chunks:
            await self._blobs.put(chunks)
        if self._clock.now() > now + _GRACE / 4:
            await self._note(id)
        return id

    async def _note(self, id: str) -> None:
        sql = "INSERT INTO pack (blob, at) VALUES (:id, :now) ON CONFLICT (blob) DO UPDATE SET at = excluded.at"
        await self._db.write(lambda tx: tx.rows(sql, id=id, now=self._clock.now()))

    async def sweep(self) -> int:
        """How many packs are gone."""
        await self._db.write(lambda tx: tx.rows(_TRIM, most=MOST_ASIDE - 1))
        rows = await self._db.read(_UNUSED, old=self._clock.now() - _GRACE, limit=_AT_ONCE)
        for row in rows:
            await self._blobs.delete(row["blob"])
        gone = [{"blob": row["blob"]} for row in rows]
        await self._db.write(lambda tx: tx.many("DELETE FROM pack WHERE blob = :blob", gone))
        return len(gone)


def _chunks(file: Path, mark: bytes) -> Iterator[bytes]:
    with file.open("rb") as open_file:
        while chunk := open_file.read(_CHUNK):
            yield chunk
    yield mark


def _digest(file: Path, mark: bytes) -> str:
    hash = hashlib.sha256()
    for chunk in _chunks(file, mark):
        hash.update(chunk)
    return hash.hexdigest()


async def _sent(file: Path, mark: bytes) -> AsyncGenerator[bytes, None]:
    for chunk in _chunks(file, mark):
        yield chunk


#: versions of an object that are followed in each direction
_LONGEST_CHAIN = 1_000


class Store:
    def __init__(self, db: Database, clock: Clock, blobs: Blobs, topics: Topics, formats: Formats, cn: str) -> None:
        """`cn`: the identifier of this node, such as urn:node:cnSkep."""
        self.db = db
        self.clock = clock
        self.blobs = blobs
        self.formats = formats
        self.cn = cn
        self.packs = Packs(db, clock, blobs)
        self.format_list = FormatList(db, clock, formats)
        self.settling = Settling(topics, formats, cn, clock.random)

    async def start(self) -> None:
        await self.db.migrate("dataone", TABLES_STEPS)
        await self.packs.start()
        await self.format_list.start()

    async def get(self, id: str, *, deleted: bool = False) -> Stored | None:
        """By identifier, or by the series it is the newest of. Who may see it is the asker's business."""
        return (await self.get_many([id], deleted=deleted)).get(id) or await self._newest(id)

    async def get_many(
        self, pids: Collection[str], *, deleted: bool = False, tx: Tx | None = None
    ) -> dict[str, Stored]:
        """`tx`: for whoever writes what follows from it."""
        read = tx.rows if tx else self.db.read
        places, names = among(pids)
        gone = int(deleted)
        sql = f"SELECT * FROM sysmeta WHERE deleted <= :gone AND pid IN ({places})"  # noqa: S608
        rows = await read(sql, gone=gone, **names)
        replicas: dict[str, list[Row]] = {}
        sql = f"SELECT * FROM replica WHERE pid IN ({places}) ORDER BY node"  # noqa: S608
        for one in await read(sql, **names) if rows else ():
            replicas.setdefault(one["pid"], []).append(one)
        return {row["pid"]: stored(row, replicas.get(row["pid"], ())) for row in rows}

    async def _newest(self, series: str) -> Stored | None:
        pid = await self.head(series)
        return (await self.get_many([pid])).get(pid) if pid else None

    async def head(self, series: str) -> str | None:
        found = (await self._members([series])).get(series, [])
        after = [one.obsoleted_by for one in found if one.obsoleted_by]
        places, names = among(after)
        sql = f"SELECT pid FROM sysmeta WHERE deleted = 0 AND pid IN ({places})"  # noqa: S608
        known = {row["pid"] for row in await self.db.read(sql, **names)} if after else set()
        return head(found, known - {one.pid for one in found})

    async def _members(self, series: Collection[str]) -> dict[str, list[Version]]:
        places, names = among(series)
        claims: dict[str, list[Version]] = {}
        sql = f"SELECT {VERSION} FROM sysmeta WHERE deleted = 0 AND series IN ({places})"  # noqa: S608
        for row in await self.db.read(sql, **names):
            claims.setdefault(row["series"], []).append(version(row))
        return {name: members(found) for name, found in claims.items()}

    async def versions(self, pid: str) -> list[str]:
        """From the oldest to the newest, as far as either side of a link is known."""
        links: dict[str, Version] = {}
        fresh = {pid}
        while fresh and len(links) < _LONGEST_CHAIN:
            places, names = among(fresh)
            conditions = (f"{column} IN ({places})" for column in ("pid", "obsoletes", "obsoleted_by"))
            found = {one.pid: one for one in await self._versions(f"({' OR '.join(conditions)})", **names)}
            ends = {end for one in found.values() for end in (one.pid, one.obsoletes, one.obsoleted_by) if end}
            fresh = {end for end in ends if end not in links and end not in fresh}
            links |= found
        return chain(pid, list(links.values()))

    async def versions_for(self, caller: Caller, pid: str) -> list[str]:
        """Those that the caller may read, and those that these name."""
        pids = await self.versions(pid)
        seen = {pid: one.meta for pid, one in (await self.get_many(pids)).items() if _shows(one, caller)}
        named = {name for meta in seen.values() for name in (meta.obsoletes, meta.obsoleted_by)}
        return [pid for pid in pids if pid in seen or pid in named]

    async def linked(self, objects: Mapping[str, Stored]) -> dict[str, Stored]:
        """With what came before and after each, where only the other one says so, and without a series that it only
        claims. Another node's word on that counts for nothing, nor does what not all who read the one may read."""
        places, names = among(objects)
        found = dict(objects)
        condition = f"(obsoletes IN ({places}) OR obsoleted_by IN ({places})) ORDER BY uploaded, pid"
        others = await self._versions(condition, **names)
        told = await self.get_many([one.pid for one in others]) if others else {}
        metas = {pid: one.meta for pid, one in told.items()}
        for other in (one for one in others if one.pid in metas):
            for there, here in (("obsoletes", "obsoleted_by"), ("obsoleted_by", "obsoletes")):
                pid = getattr(other, there) or ""
                one = found.get(pid)
                if not one or getattr(one.meta, here) or not other.speaks_for(_version(one)):
                    continue
                if confided(metas[other.pid], one.meta):
                    found[pid] = replace(one, meta=replace(one.meta, **{here: other.pid}))
        if series := {one.meta.series_id for one in objects.values() if one.meta.series_id}:
            real = {one.pid for some in (await self._members(series)).values() for one in some}
            for pid in objects.keys() - real:
                found[pid] = replace(found[pid], meta=replace(found[pid].meta, series_id=None))
        return found

    async def _versions(self, condition: str, **names: Value) -> list[Version]:
        sql = f"SELECT {VERSION} FROM sysmeta WHERE deleted = 0 AND {condition}"  # noqa: S608
        return [version(row) for row in await self.db.read(sql, **names)]

    async def content(self, one: Stored) -> AsyncIterator[bytes]:
        """Its bytes; only if it has a `blob`."""
        left = one.meta.size
        async for chunk in self.blobs.open(one.blob or "", one.start):
            yield chunk[:left]
            left -= len(chunk[:left])
            if left <= 0:
                break

    async def contents(self, objects: Iterable[Stored]) -> AsyncIterator[tuple[Stored, bytes]]:
        """Bytes of several that have a `blob`, as they lie there: what was brought together is read together. What is
        lost is left out."""
        blob, begin, kept = "", 0, b""
        for one in sorted(objects, key=lambda one: (one.blob or "", one.start)):
            size = one.meta.size
            if one.blob != blob or one.start + size > begin + len(kept):
                blob, begin, kept = one.blob or "", one.start, b""
                try:
                    async for chunk in self.blobs.open(blob, begin):
                        kept += chunk
                        if len(kept) >= size:
                            break
                except NotFound:
                    continue
            yield one, kept[one.start - begin : one.start - begin + size]

    async def keeps(self, blob: str) -> bool:
        sql = "SELECT pid FROM sysmeta WHERE blob = :blob UNION SELECT pid FROM dataone_copy WHERE blob = :blob LIMIT 1"
        return bool(await self.db.read(sql, blob=blob))

    async def listing(
        self,
        subjects: Collection[str] | None,
        *,
        by: Literal["modified", "stamp"] = "modified",
        since: int | None = None,
        until: int | None = None,
        format: str = "",
        node: str = "",
        id: str = "",
        start: int = 0,
        count: int = 1_000,
    ) -> ObjectList:
        """Modified in [since, until), oldest first; only what one of `subjects` may read. None: everything.

        `by` the stamp it is what we changed then, whatever its node says, and what is deleted as well."""
        conditions: dict[str, tuple[str, Value]] = {
            f"{by} >= :since": ("since", since),
            f"{by} < :until": ("until", until),
            "format = :format": ("format", format or None),
            "node = :node": ("node", node or None),
            "(pid = :id OR series = :id)": ("id", id or None),
        }
        given = {condition: pair for condition, pair in conditions.items() if pair[1] is not None}
        where = " AND ".join([f"deleted <= {int(by == 'stamp')}", *given])
        names = dict(given.values())
        if subjects is not None:
            places, more = among(subjects)
            seen = f"SELECT 1 FROM reader WHERE reader.pid = sysmeta.pid AND subject IN ({places})"  # noqa: S608
            where += f" AND (public = 1 OR EXISTS ({seen}))"
            names |= more
        total = (await self.db.read(f"SELECT count(*) AS n FROM sysmeta WHERE {where}", **names))[0]["n"]  # noqa: S608
        columns = f"pid, format, algorithm, checksum, {by} AS at, size"
        sql = f"SELECT {columns} FROM sysmeta WHERE {where} ORDER BY {by}, pid LIMIT :count OFFSET :start"  # noqa: S608
        rows = await self.db.read(sql, count=count, start=start, **names) if count else []
        found = tuple(
            ObjectInfo(row["pid"], row["format"], Checksum(row["checksum"], row["algorithm"]), row["at"], row["size"])
            for row in rows
        )
        return ObjectList(found, len(found), start, total)

    async def story(self, pid: str) -> list[Chapter]:
        """What was decided of it, newest last."""
        rows = await self.db.read("SELECT * FROM story WHERE pid = :pid ORDER BY at, first_at", pid=pid)
        return [Chapter(*(row[name] for name in Chapter.__struct_fields__)) for row in rows]

    async def explain(self, caller: Caller, pid: str) -> Story:
        """Everything that was done with it, or with the head of this series, for whoever may know of it."""
        caller.need("read")
        one = (await self.get_many([pid], deleted=True)).get(pid)
        if one is None and (found := (await self._members([pid])).get(pid)):
            return await self._explain_series(caller, pid, found)
        if one is None or not _shows(one, caller):
            caller.need("private")
        rows = await self.db.read(
            "SELECT urn AS node, state, reason, tries, due FROM offer "
            "JOIN member_node ON member_node.source = offer.source WHERE pid = :pid ORDER BY urn",
            pid=pid,
        )
        offers = [Standing(*(row[name] for name in Standing.__struct_fields__)) for row in rows]
        chapters = await self.story(pid)
        rows = await self.db.read("SELECT * FROM quarantine WHERE pid = :pid ORDER BY node", pid=pid)
        aside = [Aside(*(row[name] for name in Aside.__struct_fields__)) for row in rows]
        if one is None:
            if not offers and not chapters:
                raise NotFound(
                    f"nobody has offered {pid[:100]!r}", hint="an identifier is written exactly as its node has it"
                )
            return Story(pid, "unknown", offers=offers, chapters=chapters, aside=aside)
        return Story(
            *(pid, "deleted" if one.deleted else "stored", one.meta.format_id, one.blob is not None),
            versions=await self.versions(pid),
            replicas={replica.replica_member_node: replica.replication_status for replica in one.meta.replica},
            offers=offers,
            chapters=chapters,
            aside=aside,
        )

    async def _explain_series(self, caller: Caller, series: str, members: Sequence[Version]) -> Story:
        objects = await self.get_many([one.pid for one in members])
        seen = {pid for pid, one in objects.items() if _shows(one, caller)}
        if not seen:
            caller.need("private")
        newest = await self.head(series) or ""
        story = await self.explain(caller, newest) if newest in seen else Story(series, "series")
        return replace(story, series=series, members=[pid for pid in in_order(members, newest) if pid in seen])

    async def history(self, pid: str) -> list[tuple[float, str, SystemMetadata]]:
        """When, from which node, and what; newest last."""
        rows = await self.db.read("SELECT * FROM sysmeta_history WHERE pid = :pid ORDER BY serial", pid=pid)
        return [(row["at"], row["node"], msgspec.msgpack.decode(row["body"], type=SystemMetadata)) for row in rows]

    # reservations

    async def reserve(self, id: str, subject: str) -> None:
        """Conflict when it is taken or somebody else's."""

        async def work(tx: Tx) -> None:
            taken = await tx.rows("SELECT pid FROM sysmeta WHERE pid = :id OR series = :id LIMIT 1", id=id)
            if taken or not await tx.rows(
                "INSERT INTO reservation (id, subject, at) VALUES (:id, :subject, :now) "
                "ON CONFLICT (id) DO UPDATE SET at = excluded.at WHERE reservation.subject = excluded.subject "
                "RETURNING id",
                id=id,
                subject=subject,
                now=self.clock.now(),
            ):
                raise Conflict(f"{id[:80]!r} is taken already")

        await self.db.write(work)

    async def reserved_for(self, id: str) -> str | None:
        rows = await self.db.read("SELECT subject FROM reservation WHERE id = :id", id=id)
        return rows[0]["subject"] if rows else None

    # what follows from changes

    async def backlog(self, work: str, limit: int, *, until: float = math.inf) -> list[tuple[str, float]]:
        """Identifiers that wait for `index` or `replicate`, and since when; the oldest first."""
        sql = "SELECT pid, at FROM backlog WHERE work = :work AND at <= :until ORDER BY at LIMIT :limit"
        return [(row["pid"], row["at"]) for row in await self.db.read(sql, work=work, until=until, limit=limit)]

    async def worked(self, work: str, done: Sequence[tuple[str, float]]) -> None:
        """These are done, as they were read; what changed again meanwhile stays."""

        async def remove(tx: Tx) -> None:
            await tx.many(WORKED, [{"work": work, "pid": pid, "at": at} for pid, at in done])

        await self.db.write(remove)

    async def again(self, work: str, pids: Collection[str], *, after: float = 0.0) -> None:
        """They wait (again), from now on or so many seconds later."""

        async def add(tx: Tx) -> None:
            await tx.many(WAIT, [{"work": work, "pid": pid, "now": self.clock.now() + after} for pid in pids])
            tx.ring(BACKLOG)

        await self.db.write(add)


def _version(one: Stored) -> Version:
    return Version(one.meta.identifier, node=one.meta.authoritative_member_node or "", said_by=one.said_by)


def _shows(one: Stored, caller: Caller) -> bool:
    who = frozenset((PUBLIC, caller.subject, AUTHENTICATED) if caller.known else (PUBLIC,))
    return caller.may("private") or one.meta.may("read", who)
