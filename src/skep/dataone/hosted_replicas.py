"""Copies that a Coordinating Node asked us to hold, as it and everybody else may ask for them.

A request is a row of `dataone_copy` before it is answered; `pulls` does what is left to do.
"""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from skep.base.caller import Caller
from skep.base.errors import BadInput, Conflict, NoSpace, NotAllowed, NotFound, SkepError, TooLarge, Unavailable
from skep.base.ids import new_id
from skep.dataone.apply_batch import pause
from skep.dataone.client import NodeClient, Refused
from skep.dataone.encoding import render
from skep.dataone.harvest import Catch
from skep.dataone.index import subjects
from skep.dataone.store import Store
from skep.dataone.tables import Stored, alone, decode_meta
from skep.dataone.types import (
    D1Error,
    Node,
    NodeList,
    NodeReplicationPolicy,
    ObjectList,
    Service,
    Services,
    SystemMetadata,
)
from skep.storage.database import Row, Tx, Value

_SERVICES = ("MNCore", "MNRead", "MNReplication")
#: seconds for which the list of nodes is taken for known
_KNOWN = 300.0
#: a request says what the object is by then; one that was on its way for longer takes nothing back
_NEWER = ", ".join(
    f"{name} = CASE WHEN excluded.modified > dataone_copy.modified THEN excluded.{name} ELSE dataone_copy.{name} END"
    for name in ("format", "public", "body", "modified")
)
_REQUEST = f"""
    INSERT INTO dataone_copy (pid, source, state, reason, told, dirty, due, tries, size, format, modified, public, body)
    VALUES (:pid, :source, 'wanted', '', 0, 0, :now, 0, :size, :format, :modified, :public, :body)
    ON CONFLICT (pid) DO UPDATE SET source = excluded.source, told = 0,
        due = CASE WHEN dataone_copy.state = 'wanted' THEN dataone_copy.due ELSE excluded.due END,
        state = CASE WHEN dataone_copy.state = 'held' THEN 'held' ELSE 'wanted' END, {_NEWER}
"""  # noqa: S608
#: what is yet to come is asked for after it came
_CHANGED = """
    UPDATE dataone_copy SET dirty = dirty + 1, due = CASE WHEN state = 'wanted' THEN due ELSE :now END
    WHERE pid = :pid RETURNING pid
"""


class Copies:
    def __init__(
        self, store: Store, client: Callable[[str], Awaitable[NodeClient]], *, cn: str, urn: str, base: str, room: int
    ) -> None:
        """`client` speaks to a node by its base URL. `cn`: that of who may ask for copies; `urn` and `base`: what we
        are to it; `room`: bytes for all copies."""
        self.store = store
        self.client = client
        self.cn = cn
        self.urn = urn
        self.base = base
        self._db = store.db
        self._clock = store.clock
        self._room = room
        self._nodes = NodeList()
        self._known_until = 0.0

    def node(self) -> Node:
        """What we are to Coordinating Nodes."""
        subject = (f"CN={self.urn},DC=dataone,DC=org",)
        return Node(
            identifier=self.urn,
            name="Skep",
            description="holds copies of objects",
            base_url=self.base,
            services=Services(tuple(Service(name, version) for name in _SERVICES for version in ("v1", "v2"))),
            node_replication_policy=NodeReplicationPolicy(self._room, self._room),
            subject=subject,
            contact_subject=subject,
            replicate=True,
            synchronize=True,
        )

    # asked by the Coordinating Node

    async def request(self, caller: Caller, meta: SystemMetadata, source: str) -> None:
        """It is to be held; `source` has it. Durable when this returns."""
        await self.need_cn(caller)
        if source == self.urn or not await self.member(source):
            raise BadInput(f"{source[:80]!r} is no other Member Node of {self.cn}")
        if not meta.checksum.known:
            raise BadInput(f"{meta.checksum.algorithm[:40]!r} is no checksum algorithm that we know")

        async def work(tx: Tx) -> None:
            await alone(tx)  # what others are promised at this moment takes room as well
            pid = meta.identifier
            rows = await tx.rows("SELECT body FROM dataone_copy WHERE pid = :pid", pid=pid)
            if rows and not decode_meta(rows[0]["body"]).checksum.agrees(meta.checksum):
                raise Conflict(f"other bytes are held here as {pid[:100]!r}")
            (used,) = await tx.rows("SELECT COALESCE(SUM(size), 0) AS n FROM dataone_copy WHERE pid <> :pid", pid=pid)
            if int(used["n"]) + meta.size > self._room:
                hint = "`dataone_copies_bytes` bounds all copies together"
                raise TooLarge(f"there is no room for {meta.size} bytes", hint=hint)
            values: dict[str, Value] = {"pid": pid, "source": source, "size": meta.size, "now": self._clock.now()}
            await tx.rows(_REQUEST, **values, **columns(meta))

        await self._db.write(work)

    async def changed(self, caller: Caller, pid: str) -> None:
        """Its system metadata is another: it may have become private."""
        await self.need_cn(caller)
        if not await self._db.write(lambda tx: tx.rows(_CHANGED, now=self._clock.now(), pid=pid)):
            raise NotFound(f"there is no copy of {pid[:800]!r} here")

    async def need_cn(self, caller: Caller) -> None:
        if not await self._is_cn(caller):
            raise NotAllowed(f"'{caller.subject}' is not the Coordinating Node {self.cn}")

    async def _is_cn(self, caller: Caller) -> bool:
        """By the subjects that it lists as its own; who shows none is nobody."""
        if not caller.known:
            return False
        return any(caller.subject in one.subject for one in (await self._listed()).node if one.type == "cn")

    async def member(self, urn: str) -> Node | None:
        """A Member Node that the Coordinating Node lists: no other is ever asked for bytes."""
        return next((one for one in (await self._listed()).node if one.identifier == urn and one.type == "mn"), None)

    async def _listed(self) -> NodeList:
        """What was known before is better than nothing."""
        if self._known_until <= self._clock.now():
            try:
                self._nodes = await (await self.client(self.cn)).nodes()
                self._known_until = self._clock.now() + _KNOWN
            except Refused as error:
                if not self._nodes.node:
                    raise Unavailable(f"{self.cn} does not say who its nodes are: {error}") from None
        return self._nodes

    # asked by everybody

    async def get(self, caller: Caller, id: str) -> Stored:
        caller.need("read")
        rows = await self._db.read("SELECT body, blob FROM dataone_copy WHERE pid = :id AND state = 'held'", id=id)
        if not rows:
            raise NotFound(f"there is no copy of {id[:800]!r} here")
        meta, who = decode_meta(rows[0]["body"]), subjects(caller)
        if who and not meta.may("read", who) and not await self._is_cn(caller):
            raise NotAllowed(f"'{caller.subject}' may not read {id[:800]!r}")
        return Stored(meta, self.store.formats.type_of(meta.format_id), False, rows[0]["blob"], 0)

    async def replica(self, caller: Caller, pid: str) -> Stored:
        """For another holder: it may not read everything that it is to have."""
        try:
            return await self.get(caller, pid)
        except NotAllowed:
            if not caller.known or not await (await self.client(self.cn)).permits(pid, caller.subject):
                raise
        return await self.get(Caller(caller.subject, caller.scopes | {"private"}), pid)

    async def listing(
        self,
        caller: Caller,
        *,
        since: int | None = None,
        until: int | None = None,
        format: str = "",
        node: str = "",
        id: str = "",
        start: int = 0,
        count: int = 1_000,
    ) -> ObjectList:
        """Modified in [since, until), oldest first: what is public, and everything for the Coordinating Node."""
        caller.need("read")
        hidden = bool(subjects(caller)) and not await self._is_cn(caller)
        conditions: dict[str, tuple[str, Value]] = {
            "modified >= :since": ("since", since),
            "modified < :until": ("until", until),
            "format = :format": ("format", format or None),
            "pid = :id": ("id", id or None),
            "public = :public": ("public", 1 if hidden else None),
        }
        given = {condition: pair for condition, pair in conditions.items() if pair[1] is not None}
        where, names = " AND ".join(["state = 'held'", *given]), dict(given.values())
        (counted,) = await self._db.read(f"SELECT count(*) AS n FROM dataone_copy WHERE {where}", **names)  # noqa: S608
        sql = f"SELECT body FROM dataone_copy WHERE {where} ORDER BY modified, pid LIMIT :count OFFSET :start"  # noqa: S608
        found = tuple(
            decode_meta(row["body"]).info for row in await self._db.read(sql, count=count, start=start, **names)
        )
        return ObjectList(found, len(found), start, int(counted["n"]))


def columns(meta: SystemMetadata) -> dict[str, Value]:
    """What may change."""
    return {
        "format": meta.format_id,
        "modified": meta.date_sys_metadata_modified or 0,
        "public": int(meta.public),
        "body": msgspec.msgpack.encode(meta),
    }


# What is left to do for copies that we hold: pull the bytes, tell the Coordinating Node, read what changed.
#
# A row of `dataone_copy` is taken for a while; who is killed loses nothing but what was in hand.

log = logging.getLogger(__name__)

#: seconds for which a row is taken, again and again while it is in hand; and between two looks
_LEASE, _PACE = 60.0, 1.0
#: rows in hand, and tries of a pull
_HANDS, _TRIES = 4, 4
_TAKE = """
    UPDATE dataone_copy SET due = :until, tries = tries + 1 WHERE due <= :now AND pid = (
        SELECT pid FROM dataone_copy WHERE due <= :now ORDER BY due LIMIT 1) RETURNING *
"""
#: nothing more to do, unless something came meanwhile
_REST = """
    UPDATE dataone_copy SET tries = 0, due = CASE WHEN told = 0 OR dirty > 0 THEN CAST(:now AS DOUBLE PRECISION) END
    WHERE pid = :pid
"""
_META = """
    UPDATE dataone_copy SET body = :body, format = :format, modified = :modified, public = :public,
        dirty = CASE WHEN dirty = :seen THEN 0 ELSE dirty END WHERE pid = :pid
"""


class Pulls:
    def __init__(self, copies: Copies, folder: Path) -> None:
        self._copies = copies
        self._packs = copies.store.packs
        self._db = copies.store.db
        self._clock = copies.store.clock
        self._folder = folder

    async def follow(self) -> None:
        """For ever, several at a time: one that is large keeps no other waiting."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        if not self._db.shared:
            # whoever had one in hand is no more
            sql = "UPDATE dataone_copy SET due = :now WHERE due > :now AND tries > 0"
            await self._db.write(lambda tx: tx.rows(sql, now=self._clock.now()))
        async with asyncio.TaskGroup() as hands:
            for _ in range(_HANDS):
                hands.create_task(self._work())

    async def _work(self) -> None:
        while True:
            if not await self.step():
                await asyncio.sleep(_PACE)

    async def step(self) -> bool:
        """One thing is done for one object; False: there was nothing to do."""
        now = self._clock.now()
        rows = await self._db.write(lambda tx: tx.rows(_TAKE, now=now, until=now + _LEASE))
        if not rows:
            return False
        row = rows[0]
        try:
            async with self._in_hand(row):
                await self._do(row)
            await self._set(row, _REST, now=self._clock.now())
        except (Refused, SkepError, OSError) as error:
            await self._later(row, error)
        return True

    @asynccontextmanager
    async def _in_hand(self, row: Row) -> AsyncIterator[None]:
        """Nobody else takes it, however large it is."""

        async def keep() -> None:
            while True:
                await asyncio.sleep(_LEASE / 3)
                sql = "UPDATE dataone_copy SET due = :until WHERE pid = :pid AND due IS NOT NULL"
                await self._set(row, sql, until=self._clock.now() + _LEASE)

        keeping = asyncio.create_task(keep())
        try:
            yield
        finally:
            keeping.cancel()

    async def _do(self, row: Row) -> None:
        if row["state"] == "wanted":
            await self._pull(row)
        elif not row["told"]:
            await self._tell(row)
        elif row["dirty"]:
            await self._refresh(row)

    async def _pull(self, row: Row) -> None:
        source = await self._copies.member(row["source"])
        if source is None:
            raise BadInput(f"{row['source']} is no Member Node any more")
        client = await self._copies.client(source.base_url)
        client.version = source.version
        file = self._folder / new_id("pck", self._clock.now())
        catch = Catch(decode_meta(row["body"]), file)
        try:
            if row["size"]:  # of nothing, the checksum says enough
                await client.replica(row["pid"], catch)
            if wrong := catch.wrong():
                raise BadInput(f"what {row['source']} gave is not it: {wrong}")
            blob = await self._packs.put(file)
        finally:
            file.unlink(missing_ok=True)
        await self._set(row, "UPDATE dataone_copy SET state = 'held', blob = :blob WHERE pid = :pid", blob=blob)

    async def _tell(self, row: Row) -> None:
        """Of what failed nothing is kept then."""
        failed = row["state"] == "failed"
        said: dict[str, str | bytes] = {"nodeRef": self._copies.urn, "status": "failed" if failed else "completed"}
        if failed:
            said["failure"] = render(D1Error("ServiceFailure", 500, "0", row["reason"], identifier=row["pid"]))
        status = await (await self._copies.client(self._copies.cn)).notify(row["pid"], said)
        if not (200 <= status < 300 or status in (400, 404)):  # (nobody asks for it any more)
            raise Refused(status, f"{self._copies.cn} does not want to hear of it")
        if failed:
            await self._set(row, "DELETE FROM dataone_copy WHERE pid = :pid AND state = 'failed'")
        else:
            await self._set(row, "UPDATE dataone_copy SET told = 1 WHERE pid = :pid")

    async def _refresh(self, row: Row) -> None:
        """Who is refused it here must not give it to others either."""
        try:
            meta = await (await self._copies.client(self._copies.cn)).meta(row["pid"])
        except Refused as error:
            if error.status in (401, 403):
                hidden = msgspec.structs.replace(decode_meta(row["body"]), access_policy=None)
                await self._set(row, _META, seen=-1, **columns(hidden))
            raise
        if meta.identifier != row["pid"] or not decode_meta(row["body"]).checksum.agrees(meta.checksum):
            raise BadInput(f"to {self._copies.cn} it is another object now")
        await self._set(row, _META, seen=row["dirty"], **columns(meta))

    async def _later(self, row: Row, error: Exception) -> None:
        """What cannot be pulled is told of; after some tries, if it may be passing."""
        log.warning("a copy has to wait", extra={"pid": row["pid"], "state": row["state"], "reason": str(error)})
        away = isinstance(error, Refused) and (not 0 < error.status < 500 or error.status in (408, 429))
        passing = away or isinstance(error, (OSError, Unavailable, NoSpace))
        if row["state"] == "wanted" and (not passing or row["tries"] >= _TRIES):
            sql = "UPDATE dataone_copy SET state = 'failed', reason = :why, due = :now, tries = 0 WHERE pid = :pid"
            await self._set(row, sql, why=str(error)[:500], now=self._clock.now())
            return
        due = self._clock.now() + pause(row["tries"] - 1, self._clock.random())
        await self._set(row, "UPDATE dataone_copy SET due = :due WHERE pid = :pid", due=due)

    async def _set(self, row: Row, sql: str, **values: Value) -> None:
        await self._db.write(lambda tx: tx.rows(sql, pid=row["pid"], **values))
