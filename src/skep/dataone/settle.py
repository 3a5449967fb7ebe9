"""What was brought from a node is decided and stored, with everything that follows from it, in one transaction."""

import hashlib
from collections.abc import Sequence

import msgspec

from skep.dataone.asks import Brought, Errand
from skep.dataone.decide import REFUSED, Circumstances, Decision, decide
from skep.dataone.formats import Formats
from skep.dataone.series import Version, head
from skep.dataone.tables import AUDIT, BACKLOG, PUT_META, WAIT, alone, among, decode_meta, meta_row, readers
from skep.dataone.types import D1Error, SystemMetadata
from skep.dataone.xml import render, show_time
from skep.engines.db.base import Row, Tx, Value
from skep.model.ids import batch_id, change_id
from skep.model.source import Change
from skep.sources.intake import tell_changes
from skep.topics.service import Topics

#: seconds until an object that could not be brought is tried again; the last for ever
LADDER = (10.0, 60.0, 300.0, 1_800.0, 7_200.0, 28_800.0, 86_400.0, 86_400.0, 86_400.0, 604_800.0)
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
    VALUES (:pid, :node, 'completed', :verified, 0, CAST(:due AS DOUBLE PRECISION))
    ON CONFLICT (pid, node) DO UPDATE SET status = 'completed', verified = excluded.verified, tries = 0,
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
_UNREAD = "DELETE FROM reader WHERE pid = :pid"
Rows = list[dict[str, Value]]


class _Batch:
    """What is known around the objects of one batch, kept up to date while they are decided one after the other."""

    def __init__(self) -> None:
        self.known: dict[str, Row] = {}
        self.metas: dict[str, SystemMetadata] = {}
        self.holders: dict[str, set[str]] = {}
        self.series: dict[str, dict[str, Version]] = {}
        self.heads: dict[str, SystemMetadata] = {}
        self.reserved: dict[str, str] = {}
        self.offers: dict[str, Row] = {}

    async def read(self, tx: Tx, source: str, brought: Sequence[Brought]) -> None:
        pids = [one.pid for one in brought]
        series = [one.meta.series_id for one in brought if one.meta and one.meta.series_id]
        places, names = among(pids + series)
        for row in await tx.rows(f"SELECT * FROM sysmeta WHERE pid IN ({places})", **names):  # noqa: S608
            self.known[row["pid"]] = row
            self.metas[row["pid"]] = decode_meta(row["body"])
        for row in await tx.rows(f"SELECT id, subject FROM reservation WHERE id IN ({places})", **names):  # noqa: S608
            self.reserved[row["id"]] = row["subject"]
        await self._read_series(tx, places, names)
        places, names = among(pids)
        for row in await tx.rows(f"SELECT pid, node FROM replica WHERE pid IN ({places})", **names):  # noqa: S608
            self.holders.setdefault(row["pid"], set()).add(row["node"])
        self.offers = {
            row["pid"]: row
            for row in await tx.rows(
                f"SELECT * FROM offer WHERE source = :source AND pid IN ({places})",  # noqa: S608
                source=source,
                **names,
            )
        }

    async def _read_series(self, tx: Tx, places: str, names: dict[str, Value]) -> None:
        for row in await tx.rows(
            f"SELECT pid, series, obsoletes, obsoleted_by, uploaded FROM sysmeta "  # noqa: S608
            f"WHERE deleted = 0 AND series IN ({places})",
            **names,
        ):
            one = Version(row["pid"], row["obsoletes"], row["obsoleted_by"], row["uploaded"])
            self.series.setdefault(row["series"], {})[one.pid] = one
        heads = {name: head(list(members.values())) or "" for name, members in self.series.items()}
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
            holders=self.holders.get(one.pid, ()),
            reserved_for=self.reserved.get(one.pid) or (None if series in self.heads else self.reserved.get(series)),
            head=self.heads.get(series),
            confused=series == one.pid or one.pid in self.series or series in self.metas,
            proof=one.proof,
        )

    def learn(self, meta: SystemMetadata) -> None:
        self.metas[meta.identifier] = meta
        if meta.series_id:
            self.heads[meta.series_id] = meta
            self.series.setdefault(meta.series_id, {})


class Settling:
    def __init__(self, topics: Topics, formats: Formats, cn: str) -> None:
        """`cn`: what we are called among nodes."""
        self._topics = topics
        self._formats = formats
        self._cn = cn

    async def settle(
        self, tx: Tx, node: Row, brought: Sequence[Brought], blob: str | None, now: float
    ) -> dict[str, Decision]:
        """`node` is a row of `member_node` beside the name, url, kind and epoch of its source."""
        await alone(tx)
        batch = _Batch()
        await batch.read(tx, node["source"], brought)
        made = _Made(node, now, self._cn)
        found: dict[str, Decision] = {}
        for one in brought:
            if one.meta is None:
                found[one.pid] = made.trouble(one, batch)
                made.set_aside(one, blob)
                continue
            decision = decide(one.meta, batch.around(one, one.meta, node["urn"], made.version))
            kind = self._formats.type_of(one.meta.format_id)
            made.decided(one, decision, batch, kind, blob)
            if decision.meta is not None:
                batch.learn(decision.meta)
            found[one.pid] = decision
        await made.write(tx)
        await tell_changes(tx, self._topics, {**node, "id": node["source"]}, made.changes)
        return found


class _Made:
    """What is to be written for one batch."""

    def __init__(self, node: Row, now: float, cn: str) -> None:
        self._node = node
        self._now = now
        self._cn = cn
        self._doc = msgspec.json.decode(node["doc"])
        self.version = node["version"]
        self._batch = batch_id(node["source"], node["epoch"], node["batches"])
        self.changes: list[Change] = []
        #: by statement, in the order in which they are done
        self._rows: dict[str, Rows] = {_UNREAD: []}

    def _add(self, sql: str, **values: Value) -> None:
        self._rows.setdefault(sql, []).append(values)

    def decided(self, one: Brought, decision: Decision, batch: _Batch, kind: str, blob: str | None) -> None:
        pid, urn, verdict = one.pid, self._node["urn"], decision.verdict
        self._tell_story(pid, decision)
        if verdict in REFUSED:
            self._park(pid, decision, batch)
            return
        place: dict[str, Value] = {"blob": blob if one.start is not None else None, "start": one.start}
        if one.start is not None:
            self._add("DELETE FROM quarantine WHERE pid = :pid", pid=pid)
        if decision.meta is not None:
            self._store(decision.meta, kind, place, verdict, batch)
        elif one.start is not None:
            sql = "UPDATE sysmeta SET blob = :blob, start = :start, kind = :kind WHERE pid = :pid AND blob IS NULL"
            self._add(sql, pid=pid, kind=kind, **place)
        if verdict in ("new", "replica"):
            due = self._now + AUDIT if verdict == "replica" else None
            self._add(_REPLICA, pid=pid, node=urn, verified=int(self._now * 1000), due=due)
            batch.holders.setdefault(pid, set()).add(urn)
        if verdict == "replica":
            self._add("UPDATE sysmeta SET serial = serial + 1 WHERE pid = :pid", pid=pid)
        if verdict == "new" and one.start is not None:
            self._add(_REPLICA, pid=pid, node=self._cn, verified=int(self._now * 1000), due=None)
        meta = decision.meta or batch.metas[pid]
        self._end(pid, batch, "held", decision.reason, "" if verdict == "unchanged" else digest(meta))
        if verdict != "unchanged" or one.start is not None:
            self._follow(meta)

    def _store(self, meta: SystemMetadata, kind: str, place: dict[str, Value], verdict: str, batch: _Batch) -> None:
        pid, before = meta.identifier, batch.known.get(meta.identifier)
        row = meta_row(meta, kind, self._now)  # type: ignore[arg-type]  # from the list of formats
        self._add(PUT_META, **row, **place)
        self._add(
            "INSERT INTO sysmeta_history (pid, serial, at, node, body) VALUES (:pid, :serial, :now, :urn, :body) "
            "ON CONFLICT (pid, serial) DO NOTHING",
            **{name: row[name] for name in ("pid", "serial", "now", "body")},
            urn=self._node["urn"],
        )
        if before is not None:
            self._add(_UNREAD, pid=pid)
        if not row["public"]:
            for subject in sorted(readers(meta)):
                self._add("INSERT INTO reader (pid, subject) VALUES (:pid, :subject)", pid=pid, subject=subject)
        if verdict == "update":
            for holder in sorted(batch.holders.get(pid, set()) - {self._node["urn"], self._cn}):
                parts = {"pid": pid, "serialVersion": str(meta.serial_version)}
                parts["dateSysMetaLastModified"] = show_time(meta.date_sys_metadata_modified or 0)
                self._errand(holder, "dirty", pid, str(meta.serial_version), "/dirtySystemMetadata", parts)

    def trouble(self, one: Brought, batch: _Batch) -> Decision:
        """It could not be brought."""
        offer = batch.offers.get(one.pid)
        tries = int(offer["tries"]) if offer else 0
        absent = one.kind == "absent" and offer is not None and offer["state"] == "missing"
        if absent:
            return self._gone(one.pid, batch)
        known = one.kind == "absent" and one.pid in batch.metas
        if one.kind == "never" or (one.kind in ("soon", "absent") and tries + 1 >= _SOON and not known):
            decision = Decision("poison", one.trouble)
            self._tell_story(one.pid, decision)
            self._park(one.pid, decision, batch)
            return decision
        decision = Decision("unauthorised" if one.kind == "later" and "401" in one.trouble else "poison", one.trouble)
        self._tell_story(one.pid, decision, later=True)
        pause = LADDER[min(tries, len(LADDER) - 1)]
        state = offer["state"] if offer else "queued"
        self._end(one.pid, batch, state, one.trouble, due=self._now + pause, tries=tries + 1)
        return decision

    def set_aside(self, one: Brought, blob: str | None) -> None:
        """Wrong bytes, for whoever wants to know what came."""
        if one.start is not None and blob is not None:
            place: dict[str, Value] = {"blob": blob, "start": one.start, "size": one.size}
            self._add(_ASIDE, pid=one.pid, node=self._node["urn"], reason=one.trouble[:500], now=self._now, **place)

    def _gone(self, pid: str, batch: _Batch) -> Decision:
        """Not listed any more, and not there when it was asked for."""
        decision = Decision("gone", f"{self._node['urn']} neither lists nor has it")
        self._tell_story(pid, decision)
        self._add("DELETE FROM replica WHERE pid = :pid AND node = :node", pid=pid, node=self._node["urn"])
        self._add(
            "UPDATE sysmeta SET serial = serial + 1, changed = :now, deleted = CASE WHEN EXISTS "
            "(SELECT 1 FROM replica WHERE replica.pid = sysmeta.pid AND node <> :cn AND status = 'completed') "
            "THEN 0 ELSE 1 END WHERE pid = :pid",
            pid=pid,
            now=self._now,
            cn=self._cn,
        )
        self._end(pid, batch, "gone", decision.reason, None)
        if pid in batch.metas:
            self._follow(batch.metas[pid])
        return decision

    def _park(self, pid: str, decision: Decision, batch: _Batch) -> None:
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
        batch: _Batch,
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
            self.changes.append(Change(id, source, pid, seq, old, version, self._batch, first, self._now))
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
        if WAIT in self._rows:
            tx.ring(BACKLOG)


def digest(meta: SystemMetadata) -> str:
    """Stands for what the node says of an object."""
    body = msgspec.msgpack.encode(msgspec.structs.replace(meta, serial_version=None, replica=()))
    return hashlib.blake2b(body, digest_size=16).hexdigest()
