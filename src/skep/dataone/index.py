"""Keeps the index of records: what waits in the backlog becomes records, after so many entries or so long a time."""

import asyncio
import logging
from collections.abc import Collection, Sequence

import msgspec

from skep.access.audit import note
from skep.base.answers import shown_before
from skep.base.caller import Caller
from skep.base.clock import Clock
from skep.base.errors import NotFound, TooLarge
from skep.dataone.api import Indexing
from skep.dataone.record import record
from skep.dataone.resource_maps import Maps, resource_map
from skep.dataone.science_formats import science
from skep.dataone.science_reader import HIDDEN, KIND, MOST_BYTES, PLACES, Read
from skep.dataone.store import Store
from skep.dataone.tables import BACKLOG, WAIT, Stored, readers
from skep.dataone.types import AUTHENTICATED, PUBLIC
from skep.search.api import RecordHit, RecordPage
from skep.storage.database import Database, Tx, among, upsert
from skep.storage.records.base import MOST_RECORDS, Ask, Found, OneOf, Page, Records

# Compares store and index of records, both ways.

log = logging.getLogger(__name__)

_OBJECTS = """
    SELECT pid, serial, archived, deleted, (SELECT count(*) FROM backlog
        WHERE backlog.pid = sysmeta.pid AND work IN ('index', :work)) AS waits
    FROM sysmeta WHERE pid > :last ORDER BY pid LIMIT :limit
"""


class Findings(msgspec.Struct):
    """What nobody waited for, by what was wrong with it."""

    #: objects without a record
    missing: int = 0
    #: records of what an object was before
    old: int = 0
    #: records of what is archived or deleted, or was never there
    surplus: int = 0

    @property
    def total(self) -> int:
        return self.missing + self.old + self.surplus


async def audit(store: Store, records: Records, work: str) -> Findings:
    """Objects that have no record, or an old one, wait for `work` then; records of nothing go."""
    found, most = Findings(), 0
    last = ""
    while rows := await store.db.read(_OBJECTS, last=last, work=work, limit=MOST_RECORDS):
        last = rows[-1]["pid"]
        right = {row["pid"]: None if row["archived"] or row["deleted"] else str(row["serial"]) for row in rows}
        page = await records.search(KIND.name, Ask(only=(OneOf("id", list(right)),), limit=len(right)))
        have = {one.id: one.values.get("state") for one in page.records}
        waiting = {row["pid"] for row in rows if row["waits"]}
        wrong = [pid for pid, state in right.items() if have.get(pid) != state and pid not in waiting]
        if wrong:
            await store.again(work, wrong)
        found.missing += sum(pid not in have for pid in wrong)
        found.surplus += sum(right[pid] is None for pid in wrong)
        found.old += sum(pid in have and right[pid] is not None for pid in wrong)
        most += sum(state is not None or pid in have for pid, state in right.items())
    if (await records.search(KIND.name, Ask(limit=0))).total > most:
        found.surplus += await _disown(store, records)
    if found.total:
        log.warning("records were missing, old or of nothing", extra=msgspec.structs.asdict(found))
    return found


async def _disown(store: Store, records: Records) -> int:
    """Remove the records of objects that the store has never heard of, as after it was restored."""
    removed, parts = 0, [(0, PLACES)]
    while parts:
        low, end = parts.pop()
        page = await records.search(KIND.name, Ask(f"place:[{low} TO {end - 1}]", limit=MOST_RECORDS))
        if page.total > MOST_RECORDS and end - low > 1:
            parts += [(low, (low + end) // 2), ((low + end) // 2, end)]
            continue
        known = await store.get_many([one.id for one in page.records], deleted=True)
        if gone := [one.id for one in page.records if one.id not in known]:
            await records.delete(KIND.name, OneOf("id", gone))
        removed += len(gone)
    return removed


# What fewer may find than before leaves an index before the next answer, whenever it is indexed again.

#: numbers that are gone through at a time
_WITHDRAWALS_AT_ONCE = 1_000
#: what is narrowed once more has another number: whoever looks for all that was narrowed up to now looks up to here
_ANY = (1 << 63) - 1
_NEWEST = "SELECT narrowed FROM sysmeta WHERE narrowed > :since ORDER BY narrowed DESC LIMIT 1"
#: the objects themselves; and whatever a map that is private now says something of, and the versions before and after
#: an object that is: their records tell of it
_NARROWED = """
    WITH fewer AS (SELECT pid, public, obsoletes, obsoleted_by FROM sysmeta
        WHERE narrowed > :since AND narrowed <= :upto),
    said AS (SELECT one, other FROM relation JOIN fewer ON fewer.pid = relation.map WHERE fewer.public = 0),
    named AS (SELECT one AS id FROM said UNION SELECT other FROM said UNION SELECT obsoletes FROM fewer WHERE public = 0
        UNION SELECT obsoleted_by FROM fewer WHERE public = 0)
    SELECT pid FROM fewer UNION SELECT pid FROM sysmeta WHERE pid IN (SELECT id FROM named)
    UNION SELECT pid FROM sysmeta WHERE series IN (SELECT id FROM named)
"""


class Withdrawals:
    def __init__(self, db: Database, clock: Clock, records: Records, work: str) -> None:
        """`work`: by which objects wait for this index."""
        self._db = db
        self._clock = clock
        self._records = records
        self._work = work
        #: everything up to this number has left the index
        self._done = 0
        #: whoever puts records holds it: what was read before something was withdrawn must not come after that
        self.lock = asyncio.Lock()

    async def start(self) -> None:
        """An index that is not known yet begins with the first of all."""
        rows = await self._db.read("SELECT upto FROM withdrawn WHERE work = :work", work=self._work)
        self._done = rows[0]["upto"] if rows else 0

    async def catch_up(self) -> int:
        """Withdraw what was narrowed since the last time; the number of the last."""
        newest = await self._newest(self._done)
        while self._done < newest:
            async with self.lock:
                upto = min(newest, self._done + _WITHDRAWALS_AT_ONCE)
                if self._done < upto:
                    pids = await self._between(self._done, upto if upto < newest else _ANY)
                    await self._withdraw(pids, upto)
        return self._done

    async def take(self, pids: Collection[str]) -> None:
        """These, whose records tell more than they should."""
        async with self.lock:
            await self._withdraw(pids, self._done)

    async def since(self, number: int) -> set[str]:
        """Objects that must not have a record made of what was known at this number."""
        return await self._between(number, _ANY) if await self._newest(number) > number else set()

    async def _newest(self, since: int) -> int:
        rows = await self._db.read(_NEWEST, since=since)
        return int(rows[0]["narrowed"]) if rows else since

    async def _between(self, since: int, upto: int) -> set[str]:
        return {row["pid"] for row in await self._db.read(_NARROWED, since=since, upto=upto)}

    async def _withdraw(self, pids: Collection[str], upto: int) -> None:
        """They wait for those who may still find them."""
        await self._records.delete(KIND.name, OneOf("id", sorted(pids)))

        async def work(tx: Tx) -> None:
            now = self._clock.now()
            await tx.many(WAIT, [{"work": self._work, "pid": pid, "now": now} for pid in sorted(pids)])
            await upsert(tx, "withdrawn", "work", work=self._work, upto=upto)

        await self._db.write(work)
        self._done = upto


WORK = "index"
STEPS = [
    """
    CREATE TABLE indexing (id BIGINT PRIMARY KEY, bulk BIGINT NOT NULL);
    INSERT INTO indexing VALUES (0, 0);
    CREATE TABLE indexer (name TEXT PRIMARY KEY, seen DOUBLE PRECISION NOT NULL)
    """,
    "CREATE TABLE withdrawn (work TEXT PRIMARY KEY, upto BIGINT NOT NULL)",
    """
    CREATE TABLE index_audit (
        work TEXT PRIMARY KEY, at DOUBLE PRECISION NOT NULL, missing BIGINT NOT NULL, old BIGINT NOT NULL,
        surplus BIGINT NOT NULL
    )
    """,
]
_AT_ONCE = 1_000
#: of documents that are in memory at a time
_BYTES_AT_ONCE = 8_000_000
_AUDIT_EVERY = 600.0
#: the engine reads all it has, and says whether that is whole
_CHECK_EVERY = 86_400.0
#: an indexer that is silent for so long is forgotten; if it comes back, it makes all its records anew
_FORGET = 86_400.0


class RecordIndex:
    def __init__(
        self,
        db: Database,
        clock: Clock,
        store: Store,
        records: Records,
        *,
        after: int,
        within: float,
        base: str,
        name: str = "",
    ) -> None:
        """It begins when `after` entries wait, or the oldest for `within` seconds. `base`: where we are reached.

        Where several processes share the database each has an index, and by its `name` a backlog, of its own.
        """
        self._db = db
        self._clock = clock
        self._store = store
        self._records = records
        self._after = after
        self._within = within
        self._base = base
        self.maps = Maps(db, store)
        self._name = name
        self._work = f"{WORK}:{name}" if name else WORK
        self._withdrawals = Withdrawals(db, clock, records, self._work)
        self._anew = False
        self._checked = 0.0

    async def start(self) -> None:
        await self._db.migrate("indexing", STEPS)
        await self.maps.start()
        await self._withdrawals.start()
        self._anew = await self._records.declare(KIND)
        self._checked = self._clock.now()

    async def follow(self) -> None:
        """For ever. What the engine lost, or never had, is found by the audit, which is also repeated."""
        audited = float("-inf") if self._anew else self._clock.now()
        async with self._db.listen(BACKLOG) as bell:
            while True:
                now = self._clock.now()
                await self._withdrawals.catch_up()
                if await self._enlist():
                    audited = float("-inf")
                while self._name and await self.spread():
                    pass
                standing = await self.standing()
                if now - audited >= _AUDIT_EVERY and not standing.bulk:
                    await self.audit()
                    audited = now
                elif standing.oldest is None or standing.bulk:
                    if self._anew and not standing.bulk:
                        await self._records.filled(KIND.name)
                        self._anew = False
                    await bell.wait(self._within)
                elif standing.waiting < self._after and (left := standing.oldest + self._within - now) > 0:
                    await bell.wait(min(left, self._within))
                else:
                    await self.drain()

    async def _enlist(self) -> bool:
        """True: nobody has kept a backlog for us so far, or not for a while. Then everything waits: a record whose
        state is right may lack what resource maps and other versions said of the object since."""
        known = "SELECT name FROM indexer WHERE name = :name"
        if not self._name or await self._db.read(known, name=self._name):
            return False

        async def work(tx: Tx) -> None:
            now = self._clock.now()
            await upsert(tx, "indexer", "name", name=self._name, seen=now)
            await tx.rows(
                "INSERT INTO backlog (work, pid, at) SELECT CAST(:work AS TEXT), pid, CAST(:now AS DOUBLE PRECISION)"
                " FROM sysmeta WHERE deleted = 0 AND archived = 0 ON CONFLICT (work, pid) DO NOTHING",
                work=self._work,
                now=now,
            )

        await self._db.write(work)
        return True

    async def spread(self) -> int:
        """What waits for indexing waits for each indexer, from now on; how much that was."""
        now = self._clock.now()

        async def work(tx: Tx) -> int:
            await tx.rows("UPDATE indexer SET seen = :now WHERE name = :name", now=now, name=self._name)
            for row in await tx.rows("DELETE FROM indexer WHERE seen < :old RETURNING name", old=now - _FORGET):
                for table in ("backlog", "index_audit"):
                    await tx.rows(f"DELETE FROM {table} WHERE work = :work", work=f"{WORK}:{row['name']}")  # noqa: S608
            sql = "SELECT pid, at FROM backlog WHERE work = :work ORDER BY at LIMIT :limit FOR UPDATE"
            rows = [{"pid": row["pid"], "now": row["at"]} for row in await tx.rows(sql, work=WORK, limit=MOST_RECORDS)]
            for row in await tx.rows("SELECT name FROM indexer ORDER BY name"):
                await tx.many(WAIT, [{"work": f"{WORK}:{row['name']}", **one} for one in rows])
            await tx.many("DELETE FROM backlog WHERE work = 'index' AND pid = :pid AND at = :now", rows)
            return len(rows)

        return await self._db.write(work)

    async def standing(self) -> Indexing:
        rows = await self._db.read(
            "SELECT bulk, (SELECT count(*) FROM backlog WHERE work = :work) AS waiting,"
            " (SELECT min(at) FROM backlog WHERE work = :work) AS oldest FROM indexing",
            work=self._work,
        )
        return Indexing(rows[0]["waiting"], rows[0]["oldest"], bool(rows[0]["bulk"]))

    async def show(self, caller: Caller) -> Indexing:
        caller.need("read")
        return await self.standing()

    async def bulk(self, caller: Caller, on: bool) -> Indexing:
        """Bulk-load mode: nothing is indexed until it is over, then all of it."""
        caller.need("admin")

        async def work(tx: Tx) -> None:
            await tx.rows("UPDATE indexing SET bulk = :bulk", bulk=int(on))
            await note(tx, self._clock.now(), caller, "dataone.bulk", "on" if on else "off")
            tx.ring(BACKLOG)

        await self._db.write(work)
        return await self.standing()

    async def check(self, caller: Caller) -> Indexing:
        """An audit now; what it finds waits then."""
        caller.need("admin")
        self._checked = 0.0
        await self.audit()
        return await self.standing()

    async def drain(self) -> None:
        """Index everything that waits, unless bulk-load mode begins."""
        while (waiting := await self._store.backlog(self._work, _AT_ONCE)) and not (await self.standing()).bulk:
            await self._index([pid for pid, _ in waiting])
            await self._store.worked(self._work, waiting)

    async def audit(self) -> int:
        """Compare store and index; how many records were wrong. They are repaired, or wait for it."""
        if self._checked + _CHECK_EVERY <= self._clock.now():
            self._anew = await self._records.check(KIND.name) or self._anew
            self._checked = self._clock.now()
        found = await audit(self._store, self._records, self._work)
        row = {"work": self._work, "at": self._clock.now(), **msgspec.structs.asdict(found)}
        await self._db.write(lambda tx: upsert(tx, "index_audit", "work", **row))
        return found.total

    # from objects to records

    async def _index(self, pids: Sequence[str]) -> None:
        number = await self._withdrawals.catch_up()
        stored = await self._store.get_many(pids)
        live = {pid: one for pid, one in stored.items() if not one.meta.archived}
        await self._map(pids, live)
        again = await self._named_as_series([pid for pid in pids if pid not in stored])
        related = await self.maps.relations(live.values())
        reads = await self._read(live.values())
        linked = await self._store.linked(live) if live else {}
        made = [record(one, reads.get(pid, Read()), related[pid], self._base) for pid, one in linked.items()]
        if gone := [pid for pid in pids if pid not in live]:
            await self._records.delete(KIND.name, OneOf("id", gone))
        async with self._withdrawals.lock:
            late = await self._withdrawals.since(number)
            await self._records.put(KIND.name, [one for one in made if one.id not in late])
        if again := again - set(pids):
            await self._store.again(self._work, again)

    async def _map(self, pids: Sequence[str], live: dict[str, Stored]) -> None:
        """Take in what resource maps say."""
        known = await self.maps.states(pids)
        for pid in pids:
            one = live.get(pid)
            if one is None or one.kind != "RESOURCE" or not one.blob:
                if pid in known:
                    await self.maps.put(pid, "", None, self._clock.now())
                continue
            who = PUBLIC if one.meta.public else " ".join(sorted(readers(one.meta)))
            now = f"{one.blob} {one.start} {one.meta.obsoletes} {one.meta.obsoleted_by} {one.said_by} {who}"
            if known.get(pid) == now:
                continue
            try:
                body = [chunk async for chunk in self._store.content(one)]
                found = await asyncio.to_thread(resource_map, body)
                await self.maps.put(pid, now, found, self._clock.now())
            except (ValueError, NotFound, TooLarge) as error:
                log.warning("a resource map says nothing", extra={"pid": pid, "reason": str(error)[:500]})
                await self.maps.put(pid, now, None, self._clock.now())

    async def _named_as_series(self, ids: Sequence[str]) -> set[str]:
        """Maps may name a series: then it is about whatever belongs to it."""
        if not ids:
            return set()
        places, names = among(ids)
        sql = f"SELECT pid FROM sysmeta WHERE deleted = 0 AND series IN ({places})"  # noqa: S608
        return {row["pid"] for row in await self._db.read(sql, **names)}

    async def _read(self, objects: Collection[Stored]) -> dict[str, Read]:
        """What their documents say, in a thread; only so many bytes of them are in memory at a time."""
        reads: dict[str, Read] = {}
        bodies: dict[str, tuple[str, bytes]] = {}
        size = 0
        wanted = [one for one in objects if one.kind == "METADATA" and one.blob and one.meta.size <= MOST_BYTES]
        lost = {one.meta.identifier: Read({}, ["the bytes of the document are lost"]) for one in wanted}
        async for one, body in self._store.contents(wanted):
            bodies[one.meta.identifier] = one.meta.format_id, body
            size += len(body)
            if size > _BYTES_AT_ONCE:
                reads |= await asyncio.to_thread(_read_all, bodies)
                bodies, size = {}, 0
        return lost | reads | await asyncio.to_thread(_read_all, bodies)

    # asked by callers

    async def search(self, caller: Caller, ask: Ask) -> Page:
        """Only what the caller may read, as things stand now: the index may lag, the answer does not, nor do counts."""
        caller.need("read")
        if who := subjects(caller):
            ask = msgspec.structs.replace(ask, only=(*ask.only, OneOf("readers", sorted(who))))
        while True:
            await self._withdrawals.catch_up()
            page = await self._records.search(KIND.name, ask)
            found = [one.id for one in page.records]
            stored = await self._store.get_many(found) if found else {}
            hidden = [pid for pid in found if pid not in stored or not _shows(stored[pid], who)]
            if not hidden:
                return Page([_shown(one) for one in page.records], page.total, page.facets)
            await self._withdrawals.take(hidden)

    async def find(self, caller: Caller, words: str, limit: int, page: str) -> RecordPage:
        """What `type:record` asks for."""
        start = shown_before(page)
        found = await self.search(caller, Ask(words, start=start, limit=limit))
        hits = [
            RecordHit(one.id, str(one.values.get("title", one.id)), _brief(one), score=one.score)
            for one in found.records
        ]
        goes_on = found.total > start + limit
        return RecordPage(hits, found.total, str(start + limit) if goes_on else "")


def subjects(caller: Caller) -> frozenset[str]:
    """Whom the caller stands for among DataONE's subjects; none: who sees everything."""
    if caller.may("private"):
        return frozenset()
    return frozenset((PUBLIC, caller.subject, AUTHENTICATED) if caller.known else (PUBLIC,))


def _shows(one: Stored, who: frozenset[str]) -> bool:
    return not one.meta.archived and (not who or one.meta.may("read", who))


def _shown(one: Found) -> Found:
    return Found(one.id, {name: value for name, value in one.values.items() if name not in HIDDEN}, one.score)


def _brief(one: Found) -> dict[str, object]:
    return {name: one.values[name] for name in ("origin", "formatId", "datasource") if name in one.values}


def _read_all(bodies: dict[str, tuple[str, bytes]]) -> dict[str, Read]:
    return {pid: science(*given) for pid, given in bodies.items()}
