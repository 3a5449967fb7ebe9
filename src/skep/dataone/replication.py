"""Copies at other nodes: who is asked for them, what they say, and whether it is so."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from skep.clock import Clock
from skep.dataone.asks import Errand, Ran
from skep.dataone.nodes import Nodes
from skep.dataone.pids import encode
from skep.dataone.replicas import OVER, Replicas
from skep.dataone.settle import pause
from skep.dataone.store import Store
from skep.dataone.tables import AUDIT, Stored, alone, holders
from skep.dataone.targets import Load, plan, wanted
from skep.dataone.types import Checksum, Node
from skep.dataone.xml import parse, render
from skep.engines.db.base import Database, Row, Tx, among
from skep.errors import BadInput

#: seconds until a target is asked again for what it said nothing of, or failed to copy; then once a week
AGAIN = (0.0, 1_200.0, 7_200.0, 28_800.0, 86_400.0, 86_400.0, 86_400.0, 604_800.0)
#: who said nothing so many times has failed
SILENT = 4
_AT_ONCE = 100
#: copies up to this size are read to check them; of larger ones the node's own word is taken
_READ = 10_000_000
_ERRAND_TRIES = 6
#: what lacks copies waits here: for so long if somebody is busy, for so much longer if nobody can take it
_UNMET, _BUSY, _NOBODY = "unmet", 60.0, 3_600.0
#: how full and how reliable nodes are is looked up so often, by what happened so lately
_WEIGH, _LATELY = 60.0, 86_400.0
_WEIGHTS = """
    SELECT replica.node,
        SUM(CASE WHEN status IN ('requested', 'completed') THEN size ELSE 0 END) AS bytes,
        SUM(CASE WHEN status = 'completed' AND verified >= :late THEN 1 ELSE 0 END) AS made,
        SUM(CASE WHEN status IN ('failed', 'invalidated') AND verified >= :late THEN 1 ELSE 0 END) AS failed
    FROM replica JOIN sysmeta ON sysmeta.pid = replica.pid AND sysmeta.node <> replica.node GROUP BY replica.node
"""
_OPEN = "SELECT node, count(*) AS n FROM replica WHERE status = 'requested' GROUP BY node"
OVERDUE = "SELECT DISTINCT pid FROM replica WHERE due <= :now LIMIT :limit"


class Replication(Replicas):
    def __init__(self, db: Database, clock: Clock, store: Store, nodes: Nodes) -> None:
        super().__init__(db, clock, store, nodes)
        self._weights: dict[str, Load] = {}
        self._weighed = float("-inf")

    async def step(self) -> int:
        """What waits is looked at: whoever is to have a copy is asked, and copies are checked. How much was done."""
        now = self._clock.now()
        waiting = await self._store.backlog("replicate", _AT_ONCE)
        unmet = await self._store.backlog(_UNMET, _AT_ONCE, until=now)
        overdue = await self._db.read(OVERDUE, now=now, limit=_AT_ONCE)
        pids = dict.fromkeys([*(pid for pid, _ in waiting + unmet), *(row["pid"] for row in overdue)])
        if not pids:
            return 0
        nodes, found = await self._targets(), await self._store.get_many(pids)
        loads = await self._loads(now)
        done, loads, later = await self._db.write(partial(self._look, pids, found, nodes, loads, now))
        self._weights |= loads
        for work, looked in (("replicate", waiting), (_UNMET, unmet)):
            await self._store.worked(work, looked)
        for after in set(later.values()):
            await self._store.again(_UNMET, [pid for pid in later if later[pid] == after], after=after)
        return done

    async def welcome(self, tx: Tx) -> None:
        """There is somebody who may take what nobody could."""
        sql = "UPDATE backlog SET at = :now WHERE work = :work"
        await tx.rows(sql, now=self._clock.now(), work=_UNMET)

    async def _targets(self) -> list[Node]:
        """All Member Nodes; those that an operator has paused are as good as down."""
        paused = {row["urn"] for row in await self._db.read("SELECT urn FROM member_node WHERE paused = 1")}
        nodes = [node for node in await self._nodes.all() if node.type == "mn"]
        return [replace(node, state="down") if node.identifier in paused else node for node in nodes]

    async def _loads(self, now: float) -> dict[str, Load]:
        """Sums over all copies are kept for a while, as they cost; what is asked meanwhile is added to them."""
        if self._weighed + _WEIGH <= now:
            rows = await self._db.read(_WEIGHTS, late=int((now - _LATELY) * 1000))
            kept = {row["node"]: Load(0, *(int(row[name]) for name in ("bytes", "made", "failed"))) for row in rows}
            self._weights, self._weighed = kept, now
        counts = {row["node"]: int(row["n"]) for row in await self._db.read(_OPEN)}
        nodes = {*self._weights, *counts}
        return {urn: replace(self._weights.get(urn, Load()), open=counts.get(urn, 0)) for urn in nodes}

    async def _look(
        self,
        pids: Collection[str],
        found: Mapping[str, Stored],
        nodes: Sequence[Node],
        before: Mapping[str, Load],
        now: float,
        tx: Tx,
    ) -> tuple[int, dict[str, Load], dict[str, float]]:
        """How much was done, what nodes have to do then, and when to look again at what lacks copies."""
        await alone(tx)
        places, names = among(pids)
        rows: dict[str, list[Row]] = {}
        for row in await tx.rows(f"SELECT * FROM replica WHERE pid IN ({places})", **names):  # noqa: S608
            rows.setdefault(row["pid"], []).append(row)
        done, loads, later = 0, dict(before), dict[str, float]()
        members = {node.identifier for node in nodes}
        for pid in pids:
            mine, one = rows.get(pid, []), found.get(pid)
            if one is None:
                done += await self._forget(tx, mine, now)
                continue
            # another process may have asked for copies since it was read
            one = replace(one, meta=replace(one.meta, replica=holders(mine)))
            done += await self._follow_up(tx, one, mine, now)
            if not members & {row["node"] for row in mine if row["status"] == "completed"}:
                continue  # whoever is to copy it has to find it at a node that we list; a sibling may
            held = {row["node"] for row in mine if row["status"] not in OVER or _rests(row, now)}
            ahead = plan(one.meta, nodes, held, loads)
            tries = {row["node"]: int(row["tries"]) for row in mine}
            for urn in ahead.ask:
                await self._request(tx, one, urn, tries.get(urn, 0), now)
                loads[urn] = loads.get(urn, Load()).asked(one.meta.size)
            done += len(ahead.ask)
            if ahead.lacking:
                later[pid] = _BUSY if ahead.busy else _NOBODY
        return done, loads, later

    async def _forget(self, tx: Tx, rows: Sequence[Row], now: float) -> int:
        """The object is gone: nobody is asked for copies of it any more."""
        rows = [row for row in rows if row["node"] != self._store.cn and row["status"] != "invalidated"]
        await tx.many(
            "UPDATE replica SET status = 'invalidated', verified = :verified, due = NULL "
            "WHERE pid = :pid AND node = :node",
            [{"pid": row["pid"], "node": row["node"], "verified": int(now * 1000)} for row in rows],
        )
        ids = [_errand_id(kind, row["node"], row["pid"]) for kind in ("replicate", "audit") for row in rows]
        await tx.many("UPDATE errand SET done = 1 WHERE id = :id", [{"id": id} for id in ids])
        return len(rows)

    async def _follow_up(self, tx: Tx, one: Stored, rows: Sequence[Row], now: float) -> int:
        """Copies are checked from time to time; whoever says nothing is asked again, and given up after a while."""
        due = [row for row in rows if row["due"] is not None and row["due"] <= now]
        for row in due:
            if row["status"] == "completed":
                await self._audit(tx, one, row["node"], now)
            elif row["tries"] >= SILENT or not wanted(one.meta):
                await self.set(tx, one.meta.identifier, row["node"], "failed", now)
            else:
                await self._request(tx, one, row["node"], int(row["tries"]), now)
        return len(due)

    async def _request(self, tx: Tx, one: Stored, urn: str, tries: int, now: float) -> None:
        pid = one.meta.identifier
        await tx.rows(
            "INSERT INTO replica (pid, node, status, verified, tries, due) "
            "VALUES (:pid, :node, 'requested', :verified, :tries, :due) ON CONFLICT (pid, node) DO UPDATE SET "
            "status = 'requested', verified = excluded.verified, tries = excluded.tries, due = excluded.due",
            pid=pid,
            node=urn,
            verified=int(now * 1000),
            tries=tries + 1,
            due=now + AGAIN[min(tries + 1, len(AGAIN) - 1)],
        )
        parts = {"sysmeta": render(one.meta), "sourceNode": self._source(one).encode()}
        await _errand(tx, Errand(_errand_id("replicate", urn, pid), "/replicate", parts), urn, pid, now)

    def _source(self, one: Stored) -> str:
        """Its own node, unless only others have it any more."""
        has = [r.replica_member_node for r in one.meta.replica if r.replication_status == "completed"]
        own = one.meta.authoritative_member_node or ""
        return own if own in has else next((urn for urn in has if urn != self._store.cn), own)

    async def _audit(self, tx: Tx, one: Stored, urn: str, now: float) -> None:
        """By reading it, as a node may repeat the checksum it was given; by asking for that where it is large."""
        pid, algorithm = one.meta.identifier, one.meta.checksum.name
        small = one.meta.size <= _READ
        path = f"/object/{encode(pid)}" if small else f"/checksum/{encode(pid)}?checksumAlgorithm={algorithm}"
        errand = Errand(_errand_id("audit", urn, pid), path, hash=algorithm if small else "", most=one.meta.size)
        await _errand(tx, errand, urn, pid, now)
        sql = "UPDATE replica SET due = :due WHERE pid = :pid AND node = :node"
        await tx.rows(sql, due=now + AUDIT, pid=pid, node=urn)

    async def ran(self, tx: Tx, ran: Ran, now: float) -> None:
        """A node was told something, or could not be."""
        await alone(tx)
        rows = await tx.rows("SELECT * FROM errand WHERE id = :id AND done = 0", id=ran.id)
        if not rows:
            return
        row = rows[0]
        well, tries = 200 <= ran.status < 300, int(row["tries"]) + 1
        refused = 400 <= ran.status < 500 and ran.status not in (401, 408, 429)
        over = well or refused or tries >= _ERRAND_TRIES
        sql = "UPDATE errand SET done = :done, tries = :tries, due = :due WHERE id = :id"
        due = now + pause(tries, self._clock.random())
        await tx.rows(sql, done=int(over), tries=tries, due=due, id=ran.id)
        if row["kind"] == "audit" and (well or ran.status == 404):
            await self._audited(tx, row, ran, now)
        elif row["kind"] == "replicate" and over and not well and await self._is_asked(tx, row):
            await self.set(tx, row["pid"], row["urn"], "failed", now)

    async def _is_asked(self, tx: Tx, errand: Row) -> bool:
        """It may have told us before we heard its answer."""
        sql = "SELECT 1 AS x FROM replica WHERE pid = :pid AND node = :node AND status = 'requested'"
        return bool(await tx.rows(sql, pid=errand["pid"], node=errand["urn"]))

    async def _audited(self, tx: Tx, row: Row, ran: Ran, now: float) -> None:
        known = (await tx.rows("SELECT algorithm, checksum FROM sysmeta WHERE pid = :pid", pid=row["pid"]))[0]
        try:
            sound = ran.status == 200 and Checksum(known["checksum"], known["algorithm"]).agrees(
                parse(Checksum, ran.body)
            )
        except BadInput:
            sound = None
        if sound is not None:
            await self.set(
                *(tx, row["pid"], row["urn"], "completed" if sound else "invalidated", now),
                due=now + AUDIT if sound else None,
            )


def _rests(row: Row, now: float) -> bool:
    """It failed not long ago, and not for the first time the longer."""
    return now < int(row["verified"]) / 1000 + AGAIN[min(max(1, int(row["tries"])), len(AGAIN) - 1)]


def _errand_id(kind: str, urn: str, pid: str) -> str:
    return f"{kind}:{urn}:{pid}"


async def _errand(tx: Tx, errand: Errand, urn: str, pid: str, now: float) -> None:
    """One that waits still, or was run before, is this one from now on."""
    await tx.rows(
        "INSERT INTO errand (id, urn, kind, pid, body, due, tries, done) "
        "VALUES (:id, :urn, :kind, :pid, :body, :now, 0, 0) "
        "ON CONFLICT (id) DO UPDATE SET body = excluded.body, due = excluded.due, tries = 0, done = 0",
        id=errand.id,
        urn=urn,
        kind=errand.id.partition(":")[0],
        pid=pid,
        body=msgspec.msgpack.encode(errand),
        now=now,
    )
