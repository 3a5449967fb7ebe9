"""What was brought from a node is decided and stored, with everything that follows from it, in one transaction."""

import hashlib
from collections.abc import Callable, Sequence

import msgspec

from skep.base.caller import Visibility
from skep.base.ids import batch_id, change_id
from skep.dataone.decision import REFUSED, Circumstances, Decision, Version, agree, decide, head, members
from skep.dataone.encoding import render, show_time
from skep.dataone.formats import Formats
from skep.dataone.nodes import kinds
from skep.dataone.rpc import Brought, Errand
from skep.dataone.tables import (
    AUDIT,
    BACKLOG,
    ELSEWHERE,
    HISTORY,
    OPEN,
    PUT_META,
    TOUCH,
    VERSION,
    WAIT,
    alone,
    decode_meta,
    meta_row,
    narrow,
    narrows,
    readers,
    replica,
    version,
)
from skep.dataone.types import D1Error, Replica, SystemMetadata
from skep.sources.model import Change
from skep.sources.report_handler import tell_changes
from skep.storage.database import Row, Tx, Value, among
from skep.topics.service import Topics

# What is known around the objects of one batch when they are decided.


class Batch:
    """Kept up to date while they are decided one after the other."""

    def __init__(self, cn: str) -> None:
        """`cn`: what we are called among nodes."""
        self.known: dict[str, Row] = {}
        self.metas: dict[str, SystemMetadata] = {}
        #: whose word they are
        self.said_by: dict[str, str] = {}
        #: identifier -> node -> its copy
        self.copies: dict[str, dict[str, Replica]] = {}
        #: Member Nodes that we harvest, and Coordinating Nodes
        self.members: set[str] = set()
        self.coordinators = {cn}
        #: series -> identifier -> what says that it belongs there
        self.series: dict[str, dict[str, Version]] = {}
        self.heads: dict[str, SystemMetadata] = {}
        self.reserved: dict[str, str] = {}
        self.offers: dict[str, Row] = {}
        #: those of which others say that they came after them
        self.later: set[str] = set()

    async def read(self, tx: Tx, source: str, brought: Sequence[Brought]) -> None:
        pids = [one.pid for one in brought]
        series = [one.meta.series_id for one in brought if one.meta and one.meta.series_id]
        places, names = among(pids + series)
        for row in await tx.rows(f"SELECT * FROM sysmeta WHERE pid IN ({places})", **names):  # noqa: S608
            self.known[row["pid"]] = row
            self.said_by[row["pid"]] = row["said_by"]
            self.metas[row["pid"]] = msgspec.structs.replace(decode_meta(row["body"]), serial_version=row["serial"])
        for row in await tx.rows(f"SELECT id, subject FROM reservation WHERE id IN ({places})", **names):  # noqa: S608
            self.reserved[row["id"]] = row["subject"]
        await self._read_series(tx, places, names)
        places, names = among(pids)
        for row in await tx.rows(f"SELECT * FROM replica WHERE pid IN ({places})", **names):  # noqa: S608
            self.copies.setdefault(row["pid"], {})[row["node"]] = replica(row)
        sql = f"SELECT obsoleted_by FROM sysmeta WHERE obsoleted_by IN ({places})"  # noqa: S608
        self.later = {row["obsoleted_by"] for row in await tx.rows(sql, **names)}
        for urn, kind in (await kinds(tx)).items():
            (self.coordinators if kind == "cn" else self.members).add(urn)
        self.offers = {
            row["pid"]: row
            for row in await tx.rows(
                f"SELECT * FROM offer WHERE source = :source AND pid IN ({places})",  # noqa: S608
                source=source,
                **names,
            )
        }

    async def _read_series(self, tx: Tx, places: str, names: dict[str, Value]) -> None:
        sql = f"SELECT {VERSION} FROM sysmeta WHERE deleted = 0 AND series IN ({places})"  # noqa: S608
        for row in await tx.rows(sql, **names):
            self.series.setdefault(row["series"], {})[row["pid"]] = version(row)
        heads = {name: head(members(claims.values())) or "" for name, claims in self.series.items()}
        if heads:
            places, names = among(list(heads.values()))
            rows = await tx.rows(f"SELECT pid, body FROM sysmeta WHERE pid IN ({places})", **names)  # noqa: S608
            bodies = {row["pid"]: decode_meta(row["body"]) for row in rows}
            self.heads = {name: bodies[pid] for name, pid in heads.items() if pid in bodies}

    def around(self, one: Brought, meta: SystemMetadata, urn: str, version: str) -> Circumstances:
        series, row = meta.series_id or "", self.known.get(one.pid)
        return Circumstances(
            node=urn,
            version="v1" if version == "v1" else "v2",
            known=self.metas.get(one.pid),
            deleted=bool(row and row["deleted"]),
            copies=self.copies.get(one.pid, {}),
            coordinators=self.coordinators,
            reserved_for=self.reserved.get(one.pid) or (None if series in self.heads else self.reserved.get(series)),
            head=self.heads.get(series),
            confused=series == one.pid or one.pid in self.series or series in self.metas,
            proof=one.proof,
        )

    def unproved(self, one: Brought, meta: SystemMetadata) -> bool:
        """It was not known when it was taken: nobody asked its node for the checksum in our algorithm."""
        known = self.metas.get(one.pid)
        if known is None or one.proof is not None or not (known.checksum.known and meta.checksum.known):
            return False
        return known.checksum.agrees(meta.checksum) is None

    def holds(self, pid: str, urn: str) -> bool:
        return (copy := self.copies.get(pid, {}).get(urn)) is not None and copy.replication_status == "completed"

    def learn(self, meta: SystemMetadata, said_by: str, stamp: int) -> set[str]:
        """It is this from now on; others that belong to its series only now or no longer, or were or are its newest."""
        pid, row = meta.identifier, self.known.get(meta.identifier)
        self.metas[pid] = meta
        self.said_by[pid] = said_by
        self.later |= {meta.obsoleted_by or ""}
        if not meta.series_id:
            return set()
        since = row["series_since"] if row and row["series"] == meta.series_id else stamp
        claims = self.series.setdefault(meta.series_id, {})
        before = members(claims.values())
        claims[pid] = Version(
            *(pid, meta.obsoletes, meta.obsoleted_by, meta.date_uploaded or 0),
            node=meta.authoritative_member_node or "",
            said_by=said_by,
            since=since,
        )
        after = members(claims.values())
        if (newest := head(after)) in self.metas:
            self.heads[meta.series_id] = self.metas[newest]
        changed = {one.pid for one in before} ^ {one.pid for one in after} | {head(before) or pid} ^ {newest or pid}
        return changed - {pid}


#: seconds until an object that could not be brought is tried again; the last for ever
_LADDER = (10.0, 60.0, 300.0, 1_800.0, 7_200.0, 28_800.0, 86_400.0, 86_400.0, 86_400.0, 604_800.0)
_UNPROVED = "another node brought it meanwhile, and knows it by another kind of checksum"
#: tries of what may be a passing mistake of the node
_SOON = 3
_DONE = """
    UPDATE offer SET state = CASE WHEN again = 1 THEN 'queued' ELSE :state END, reason = :reason, tries = :tries,
        due = CASE WHEN again = 1 THEN due ELSE :due END, again = 0, ticket = '', until = 0, seq = :seq,
        version = :version WHERE source = :source AND pid = :pid
"""
_STORY = """
    INSERT INTO story (pid, node, verdict, reason, first_at, at, times)
    VALUES (:pid, :node, :verdict, :reason, :now, :now, 1)
    ON CONFLICT (pid, node, verdict, reason) DO UPDATE SET at = excluded.at, times = story.times + 1
"""
_REPLICA = """
    INSERT INTO replica (pid, node, status, verified, tries, due)
    VALUES (:pid, :node, :status, :verified, 0, CAST(:due AS DOUBLE PRECISION))
    ON CONFLICT (pid, node) DO UPDATE SET status = excluded.status, verified = excluded.verified, tries = 0,
        due = excluded.due
"""
_ASIDE = """
    INSERT INTO quarantine (pid, node, blob, start, size, reason, at)
    VALUES (:pid, :node, :blob, :start, :size, :reason, :now) ON CONFLICT (pid, node) DO UPDATE SET
        blob = excluded.blob, start = excluded.start, size = excluded.size, reason = excluded.reason, at = excluded.at
"""
_ERRAND = """
    INSERT INTO errand (id, urn, kind, pid, body, due, tries, done) VALUES (:id, :urn, :kind, :pid, :body, :now, 0, 0)
    ON CONFLICT (id) DO NOTHING
"""
#: another object says that it came before this one, which says nothing of that. Some nodes link it back and give it no
#: other date, so that no list tells of it
_LINK = """
    UPDATE offer SET state = 'queued', due = 0, again = CASE WHEN ticket <> '' THEN 1 ELSE again END
    WHERE source = :source AND pid = :pid AND (state = 'held' OR ticket <> '') AND EXISTS
        (SELECT 1 FROM sysmeta WHERE sysmeta.pid = offer.pid AND obsoletes IS NULL AND deleted = 0)
"""
_PLACE = "UPDATE sysmeta SET blob = :blob, start = :start, kind = :kind WHERE pid = :pid AND blob IS NULL"
_UNREAD = "DELETE FROM reader WHERE pid = :pid"
Rows = list[dict[str, Value]]


class Settling:
    def __init__(self, topics: Topics, formats: Formats, cn: str, chance: Callable[[], float]) -> None:
        """`cn`: what we are called among nodes; `chance`: a number in [0, 1), another each time."""
        self._topics = topics
        self._formats = formats
        self._cn = cn
        self._chance = chance

    async def settle(
        self, tx: Tx, node: Row, brought: Sequence[Brought], blob: str | None, now: float, *, sibling: bool = False
    ) -> dict[str, Decision]:
        """`node` is a row of `member_node` beside the name, url, kind and epoch of its source; `sibling`: it is a
        Coordinating Node, and knows of objects what we may not have heard yet."""
        await alone(tx)
        batch = Batch(self._cn)
        await batch.read(tx, node["source"], brought)
        made = _Made(node, now, self._cn, sibling, self._chance)
        found: dict[str, Decision] = {}
        for given in brought:
            unproved = given.meta is not None and batch.unproved(given, given.meta)
            one = Brought(pid=given.pid, trouble=_UNPROVED, kind="soon") if unproved else given
            if one.meta is None:
                found[one.pid] = made.trouble(one, batch)
                made.set_aside(one, blob)
                continue
            around = batch.around(one, one.meta, node["urn"], made.version)
            decision = agree(one.meta, around) if sibling else decide(one.meta, around)
            kind = self._formats.type_of((decision.meta or one.meta).format_id)
            made.decided(one, one.meta, decision, batch, kind, blob)
            found[one.pid] = decision
        await made.write(tx)
        await tell_changes(tx, self._topics, {**node, "id": node["source"]}, made.changes)
        return found


class _Made:
    """What is to be written for one batch."""

    def __init__(self, node: Row, now: float, cn: str, sibling: bool, chance: Callable[[], float]) -> None:
        self._node = node
        self._chance = chance
        self._now = now
        self._cn = cn
        self._sibling = sibling
        self.version = node["version"]
        self._batch = batch_id(node["source"], node["epoch"], node["batches"])
        self.changes: list[Change] = []
        #: by statement, in the order in which they are done
        self._rows: dict[str, Rows] = {_UNREAD: [], PUT_META: []}
        #: objects of which others say that they came after them
        self._later: set[str] = set()
        #: fewer than before may find them
        self._narrowed: dict[str, None] = {}

    def _add(self, sql: str, **values: Value) -> None:
        self._rows.setdefault(sql, []).append(values)

    def decided(
        self, one: Brought, offered: SystemMetadata, decision: Decision, batch: Batch, kind: str, blob: str | None
    ) -> None:
        pid, verdict = one.pid, decision.verdict
        self._tell_story(pid, decision)
        if verdict in REFUSED:
            self._park(pid, decision, batch)
            return
        place: dict[str, Value] = {"blob": blob if one.start is not None else None, "start": one.start}
        if one.start is not None:
            self._add("DELETE FROM quarantine WHERE pid = :pid", pid=pid)
        meta = decision.meta or batch.metas[pid]
        if pid in batch.metas and narrows(batch.metas[pid], meta):
            self._narrowed[pid] = None
        news = self._learn(offered, meta, batch)
        if decision.meta is not None:
            self._store(meta, kind, place, verdict, batch)
        elif one.start is not None:
            self._add(_PLACE, pid=pid, kind=kind, **place)
        news = self._copies(one, decision, batch) or news
        told = verdict in ("new", "update") or (verdict == "replica" and not self._sibling)
        self._end(pid, batch, "held", decision.reason, digest(meta) if told else "")
        if verdict != "unchanged" or news:
            self._follow(meta)

    def _learn(self, offered: SystemMetadata, meta: SystemMetadata, batch: Batch) -> bool:
        """`meta` holds from now on. True: it is somebody else's word now, which may count where it did not."""
        pid, said_by, before = meta.identifier, self._said_by(offered, meta, batch), batch.said_by.get(meta.identifier)
        changed = said_by != before
        if changed and before is not None:
            self._add("UPDATE sysmeta SET said_by = :said_by WHERE pid = :pid", pid=pid, said_by=said_by)
        for other in sorted(batch.learn(meta, said_by, int(self._now * 1000))):
            self._add(WAIT, work="index", pid=other, now=self._now)
        return changed

    def _said_by(self, offered: SystemMetadata, meta: SystemMetadata, batch: Batch) -> str:
        """Whose word it is: its own node's, once that says the same of versions and series; until then that of whoever
        said so first. A sibling tells what its nodes said, and so of the object's own if that has it."""
        own, known = meta.authoritative_member_node or "", batch.metas.get(meta.identifier)
        holders = {one.replica_member_node for one in offered.replica} if self._sibling else {self._node["urn"]}
        if own in holders and _links(offered) == _links(meta):
            return own
        if known is not None and _links(known) == _links(meta):
            return batch.said_by[meta.identifier]
        return str(self._node["urn"])

    def _copies(self, one: Brought, decision: Decision, batch: Batch) -> bool:
        """Who has it, as this node lets us know, and we. False: as before."""
        pid, urn, now = one.pid, self._node["urn"], int(self._now * 1000)
        found = list(decision.copies)
        if not self._sibling and not batch.holds(pid, urn):
            found.append(Replica(urn, "completed", now))
        if one.start is not None:
            found.append(Replica(self._cn, "completed", now))
        for copy in found:
            self._copy(pid, copy, batch, first=decision.verdict == "new")
        serial = (one.meta.serial_version or 0) if self._sibling and one.meta else 0
        if found and (decision.meta is None or (self._sibling and one.start is not None)):
            self._add(TOUCH, pid=pid, serial=serial, stamp=now)
        elif decision.meta is None and serial > (batch.metas[pid].serial_version or 0):
            # the same by another number: nobody needs to hear of it
            self._add("UPDATE sysmeta SET serial = :serial WHERE pid = :pid", pid=pid, serial=serial)
            return True
        return bool(found)

    def _copy(self, pid: str, copy: Replica, batch: Batch, *, first: bool) -> None:
        """Copies at our own nodes are checked by and by; what was wrong before, or not there, at once."""
        urn, mine, status = copy.replica_member_node, batch.copies.setdefault(pid, {}), copy.replication_status
        due = None
        if urn in batch.members and status == "completed" and not first:
            due = self._now + (0 if urn in mine and mine[urn].replication_status != "completed" else AUDIT)
        elif urn in batch.members and status in OPEN:
            due = self._now + ELSEWHERE
        self._add(_REPLICA, pid=pid, node=urn, due=due, status=status, verified=copy.replica_verified)
        mine[urn] = copy

    def _store(self, meta: SystemMetadata, kind: str, place: dict[str, Value], verdict: str, batch: Batch) -> None:
        pid, before = meta.identifier, batch.known.get(meta.identifier)
        batch.metas[pid] = meta
        row = meta_row(meta, kind, batch.said_by[pid], self._now)  # type: ignore[arg-type]  # from the list of formats
        self._add(PUT_META, **row, **place)
        same = {name: row[name] for name in ("pid", "serial", "body")}
        self._add(HISTORY, **same, now=self._now, urn=self._node["urn"])
        if before is not None:
            self._add(_UNREAD, pid=pid)
        if not row["public"]:
            for subject in sorted(readers(meta)):
                self._add("INSERT INTO reader (pid, subject) VALUES (:pid, :subject)", pid=pid, subject=subject)
        if self.version == "v2" and not self._sibling:
            self._later |= {meta.obsoleted_by or "", pid if pid in batch.later and not meta.obsoletes else ""}
        if verdict == "update":
            for holder in sorted(batch.members & batch.copies.get(pid, {}).keys() - {self._node["urn"]}):
                parts = {"pid": pid, "serialVersion": str(meta.serial_version)}
                parts["dateSysMetaLastModified"] = show_time(meta.date_sys_metadata_modified or 0)
                self._errand(holder, "dirty", pid, str(meta.serial_version), "/dirtySystemMetadata", parts)

    def trouble(self, one: Brought, batch: Batch) -> Decision:
        """It could not be brought."""
        offer = batch.offers.get(one.pid)
        tries = int(offer["tries"]) if offer else 0
        if one.kind == "absent" and offer is not None and offer["state"] == "missing":
            return self._gone(one.pid, batch)
        if one.kind == "absent" and self._sibling:
            return self._deleted(one.pid, batch)
        known = one.kind == "absent" and one.pid in batch.metas
        version = self._hide(one.pid, batch) if one.kind == "denied" else ""
        if one.kind == "never" or (one.kind in ("soon", "absent") and tries + 1 >= _SOON and not known):
            decision = Decision("poison", one.trouble)
            self._tell_story(one.pid, decision)
            self._park(one.pid, decision, batch)
            return decision
        decision = Decision("unauthorised" if one.kind == "denied" else "poison", one.trouble)
        self._tell_story(one.pid, decision, later=True)
        due = self._now + pause(tries, self._chance())
        state = offer["state"] if offer else "queued"
        self._end(one.pid, batch, state, one.trouble, version, due=due, tries=tries + 1)
        return decision

    def _hide(self, pid: str, batch: Batch) -> str:
        """What its own node refuses us is not for everybody any more, whatever we knew. Its version then, if so."""
        meta, row = batch.metas.get(pid), batch.known.get(pid)
        if meta is None or row is None or row["deleted"] or not row["public"]:
            return ""
        if row["node"] != self._node["urn"] or self.version == "v1":  # which could not give it back to everybody
            return ""
        meta = msgspec.structs.replace(meta, access_policy=None, serial_version=row["serial"] + 1)
        self._narrowed[pid] = None
        self._store(meta, row["kind"], {"blob": None, "start": None}, "update", batch)
        self._follow(meta)
        return digest(meta)

    def set_aside(self, one: Brought, blob: str | None) -> None:
        """Wrong bytes, for whoever wants to know what came."""
        if one.start is not None and blob is not None:
            place: dict[str, Value] = {"blob": blob, "start": one.start, "size": one.size}
            self._add(_ASIDE, pid=one.pid, node=self._node["urn"], reason=one.trouble[:500], now=self._now, **place)

    def _gone(self, pid: str, batch: Batch) -> Decision:
        """Not listed any more, and not there when it was asked for."""
        decision = Decision("gone", f"{self._node['urn']} neither lists nor has it")
        self._tell_story(pid, decision)
        self._end(pid, batch, "gone", decision.reason, None)
        if not self._sibling:
            self._lose(pid, batch, {self._node["urn"]})
        return decision

    def _deleted(self, pid: str, batch: Batch) -> Decision:
        """A sibling lists it as changed, and has it no more. Of our own nodes we know more than it does."""
        decision = Decision("gone", f"for {self._node['urn']} it is deleted")
        self._tell_story(pid, decision)
        self._end(pid, batch, "held", decision.reason, None)
        self._lose(pid, batch, set(batch.copies.get(pid, {})) - batch.members - {self._cn})
        return decision

    def _lose(self, pid: str, batch: Batch, nodes: set[str]) -> None:
        """These have it no longer. When only Coordinating Nodes have it, it is deleted."""
        known, copies, now = batch.known.get(pid), batch.copies.get(pid, {}), int(self._now * 1000)
        if known is None or known["deleted"]:
            return
        for node in nodes & copies.keys():
            self._add(_REPLICA, pid=pid, node=node, status="invalidated", verified=now, due=None)
        left = {node for node, one in copies.items() if one.replication_status == "completed"} - nodes
        deleted = int(not left - batch.coordinators)
        self._add("UPDATE sysmeta SET deleted = :deleted WHERE pid = :pid", pid=pid, deleted=deleted)
        if deleted:
            self._narrowed[pid] = None
        self._add(TOUCH, pid=pid, serial=0, stamp=now)
        self._follow(batch.metas[pid])
        if deleted and (series := batch.metas[pid].series_id):
            # what is said of it is said of another version now
            self._add(WAIT, work="index", pid=series, now=self._now)

    def _park(self, pid: str, decision: Decision, batch: Batch) -> None:
        """Not tried again before the node says that it changed, or a person does. The node is told, once."""
        self._end(pid, batch, "parked", decision.reason)
        if not self._node["registered"]:
            return
        text = f"Synchronization task of [PID::] {pid} [::PID] failed. Cause: {decision.reason}"
        error = D1Error("SynchronizationFailed", 0, "6001", text, identifier=pid, node_id=self._cn)
        cause = hashlib.blake2b(decision.reason.encode(), digest_size=8).hexdigest()
        self._errand(self._node["urn"], "error", pid, cause, "/error", {"message": render(error).decode()})

    def _errand(self, urn: str, kind: str, pid: str, cause: str, path: str, parts: dict[str, str]) -> None:
        id = f"{kind}:{urn}:{pid}:{cause}"
        errand = Errand(id, path, {name: value.encode() for name, value in parts.items()})
        body = msgspec.msgpack.encode(errand)
        self._add(_ERRAND, id=id, urn=urn, kind=kind, pid=pid, body=body, now=self._now)

    def _tell_story(self, pid: str, decision: Decision, *, later: bool = False) -> None:
        verdict = "later" if later else decision.verdict
        self._add(_STORY, pid=pid, node=self._node["urn"], verdict=verdict, reason=decision.reason[:500], now=self._now)

    def _end(
        self,
        pid: str,
        batch: Batch,
        state: str,
        reason: str,
        version: str | None = "",
        due: float = 0.0,
        tries: int = 0,
    ) -> None:
        """`version`: what it is at from now on; empty: what it was."""
        offer = batch.offers.get(pid)
        old, seq = (offer["version"], int(offer["seq"])) if offer else (None, 0)
        if version in ("", old):
            version = old
        else:
            seq += 1
            id, source = change_id(self._node["source"], pid, seq), self._node["source"]
            first = not self._node["full_at"]
            visibility: Visibility = "public" if batch.metas[pid].public else "private"
            change = Change(id, source, pid, seq, old, version, self._batch, first, self._now, visibility)
            self.changes.append(change)
        values: dict[str, Value] = {"due": due, "tries": tries, "seq": seq, "version": version}
        self._add(_DONE, source=self._node["source"], pid=pid, state=state, reason=reason[:500], **values)

    def _follow(self, meta: SystemMetadata) -> None:
        """Its versions are found differently from now on, too."""
        for pid in filter(None, (meta.identifier, meta.obsoletes, meta.obsoleted_by)):
            self._add(WAIT, work="index", pid=pid, now=self._now)
        self._add(WAIT, work="replicate", pid=meta.identifier, now=self._now)

    async def write(self, tx: Tx) -> None:
        for sql, rows in self._rows.items():
            await tx.many(sql, rows)
        if self._narrowed:
            await narrow(tx, self._narrowed)
        source = self._node["source"]
        await tx.many(_LINK, [{"source": source, "pid": pid} for pid in sorted(self._later - {""})])
        if WAIT in self._rows:
            tx.ring(BACKLOG)


def pause(tries: int, chance: float) -> float:
    """Seconds, a quarter more or less: what failed together is not tried again together."""
    return _LADDER[min(tries, len(_LADDER) - 1)] * (0.75 + chance / 2)


def _links(meta: SystemMetadata) -> tuple[str | None, ...]:
    return meta.authoritative_member_node, meta.obsoletes, meta.obsoleted_by, meta.series_id


def digest(meta: SystemMetadata) -> str:
    """Stands for what the node says of an object."""
    body = msgspec.msgpack.encode(msgspec.structs.replace(meta, serial_version=None, replica=()))
    return hashlib.blake2b(body, digest_size=16).hexdigest()
