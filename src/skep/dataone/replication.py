"""Copies at other nodes: how many the policy wants, who is asked for them, what they say, and whether it is so."""

from collections.abc import Collection, Sequence

import msgspec

from skep.clock import Clock
from skep.dataone.asks import Errand, Ran
from skep.dataone.nodes import Nodes
from skep.dataone.pids import encode
from skep.dataone.settle import LADDER
from skep.dataone.store import Store
from skep.dataone.tables import BACKLOG, Stored, alone, decode_meta
from skep.dataone.types import Checksum, Node, Replica, ReplicaStatus, ReplicationPolicy
from skep.dataone.xml import parse, render
from skep.engines.db.base import Database, Row, Tx
from skep.errors import BadInput, Conflict, NotAllowed, NotFound
from skep.model.caller import Caller

#: seconds until a target that has not said anything is asked again, and again; then once a week
AGAIN = (0.0, 1_200.0, 7_200.0, 28_800.0, 86_400.0, 86_400.0, 86_400.0, 604_800.0)
#: requests that one target has open
_OPEN = 10
_AT_ONCE = 100
#: a replica is compared with its checksum so often
AUDIT = 30 * 86_400.0
_ERRAND_TRIES = 6
_COUNTED = ("queued", "requested", "completed")


def targets(one: Stored, nodes: Sequence[Node], held: Collection[str], busy: Collection[str]) -> list[str]:
    """Pure: the nodes to ask for a copy now, best first. `held`: whoever has one, or had and failed."""
    policy = one.meta.replication_policy
    if policy is None or not policy.replication_allowed:
        return []
    counted = [r for r in one.meta.replica if r.replication_status in _COUNTED]
    # neither the original nor we are counted as copies
    copies = [r for r in counted if r.replica_member_node in {node.identifier for node in nodes}]
    copies = [r for r in copies if r.replica_member_node != one.meta.authoritative_member_node]
    wanted = policy.number_replicas - len(copies)
    fit = [node for node in nodes if node.identifier not in held and node.identifier not in busy and _takes(node, one)]
    order = {urn: n for n, urn in enumerate(policy.preferred_member_node)}
    fit.sort(key=lambda node: (order.get(node.identifier, len(order)), node.identifier))
    return [node.identifier for node in fit[: max(0, wanted)]]


def _takes(node: Node, one: Stored) -> bool:
    policy, meta = node.node_replication_policy, one.meta
    blocked = meta.replication_policy.blocked_member_node if meta.replication_policy else ()
    if not node.replicate or node.state != "up" or node.identifier in blocked:
        return False
    if policy is None:
        return True
    return (
        (policy.max_object_size is None or meta.size <= policy.max_object_size)
        and (policy.space_allocated is None or meta.size <= policy.space_allocated)
        and (not policy.allowed_node or meta.authoritative_member_node in policy.allowed_node)
        and (not policy.allowed_object_format or meta.format_id in policy.allowed_object_format)
    )


class Replication:
    def __init__(self, db: Database, clock: Clock, store: Store, nodes: Nodes) -> None:
        self._db = db
        self._clock = clock
        self._store = store
        self._nodes = nodes

    async def step(self) -> int:
        """What waits is looked at: whoever is to have a copy is asked. How many objects that were."""
        now = self._clock.now()
        waiting = await self._store.backlog("replicate", _AT_ONCE)
        overdue = await self._db.read(
            "SELECT DISTINCT pid FROM replica WHERE due <= :now LIMIT :limit", now=now, limit=_AT_ONCE
        )
        pids = [*(pid for pid, _ in waiting), *(row["pid"] for row in overdue)]
        if not pids:
            return 0
        nodes, found = await self._nodes.all(), await self._store.get_many(pids)
        sql = "SELECT node, count(*) AS n FROM replica WHERE status = 'requested' GROUP BY node"
        busy = {row["node"] for row in await self._db.read(sql) if row["n"] >= _OPEN}
        for one in found.values():
            await self._db.write(lambda tx, one=one: self._order(tx, one, nodes, busy))  # type: ignore[misc]
        await self._store.worked("replicate", waiting)
        return len(pids)

    async def _order(self, tx: Tx, one: Stored, nodes: Sequence[Node], busy: Collection[str]) -> None:
        await alone(tx)
        now, pid = self._clock.now(), one.meta.identifier
        rows = await tx.rows("SELECT * FROM replica WHERE pid = :pid", pid=pid)
        again = [row for row in rows if row["due"] is not None and row["due"] <= now]
        for row in again:
            if row["status"] == "completed":
                await self._audit(tx, one, row, now)
            else:
                await self._request(tx, one, row["node"], int(row["tries"]), now)
        for urn in targets(one, nodes, {row["node"] for row in rows}, busy):
            await self._request(tx, one, urn, 0, now)

    async def _request(self, tx: Tx, one: Stored, urn: str, tries: int, now: float) -> None:
        """Whoever says nothing is asked again, less and less often."""
        pid = one.meta.identifier
        await tx.rows(
            "INSERT INTO replica (pid, node, status, verified, tries, due) "
            "VALUES (:pid, :node, 'requested', :verified, :tries, :due) ON CONFLICT (pid, node) DO UPDATE SET "
            "status = 'requested', tries = excluded.tries, due = excluded.due",
            pid=pid,
            node=urn,
            verified=int(now * 1000),
            tries=tries + 1,
            due=now + AGAIN[min(tries + 1, len(AGAIN) - 1)],
        )
        source = one.meta.authoritative_member_node or ""
        parts = {"sysmeta": render(one.meta), "sourceNode": source.encode()}
        await _errand(tx, Errand(f"replicate:{urn}:{pid}:{tries}", "/replicate", parts), urn, pid, now)

    async def _audit(self, tx: Tx, one: Stored, row: Row, now: float) -> None:
        pid, urn = one.meta.identifier, row["node"]
        path = f"/checksum/{encode(pid)}?checksumAlgorithm={one.meta.checksum.name}"
        await _errand(tx, Errand(f"audit:{urn}:{pid}:{int(now)}", path), urn, pid, now)
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
        pause = LADDER[min(tries, len(LADDER) - 1)]
        await tx.rows(sql, done=int(over), tries=tries, due=now + pause, id=ran.id)
        if row["kind"] == "audit" and (well or ran.status == 404):
            await self._audited(tx, row, ran, now)
        elif row["kind"] == "replicate" and over and not well:
            await self._set(tx, row["pid"], row["urn"], "failed", now)

    async def _audited(self, tx: Tx, row: Row, ran: Ran, now: float) -> None:
        known = (await tx.rows("SELECT algorithm, checksum FROM sysmeta WHERE pid = :pid", pid=row["pid"]))[0]
        try:
            sound = ran.status == 200 and Checksum(known["checksum"], known["algorithm"]).agrees(
                parse(Checksum, ran.body)
            )
        except BadInput:
            sound = None
        if sound is not None:
            await self._set(tx, row["pid"], row["urn"], "completed" if sound else "invalidated", now)

    async def _set(self, tx: Tx, pid: str, urn: str, status: ReplicaStatus, now: float) -> None:
        """A copy that is well is audited later; after one that failed, others are asked."""
        await tx.rows(
            "UPDATE replica SET status = :status, verified = :verified, due = CAST(:due AS DOUBLE PRECISION) "
            "WHERE pid = :pid AND node = :node",
            status=status,
            verified=int(now * 1000),
            due=now + AUDIT if status == "completed" else None,
            pid=pid,
            node=urn,
        )
        await tx.rows("UPDATE sysmeta SET serial = serial + 1, changed = :now WHERE pid = :pid", now=now, pid=pid)
        await tx.many(
            "INSERT INTO backlog (work, pid, at) VALUES (:work, :pid, :now) "
            "ON CONFLICT (work, pid) DO UPDATE SET at = excluded.at",
            [{"work": work, "pid": pid, "now": now} for work in ("index", "replicate")],
        )
        tx.ring(BACKLOG)

    # what nodes say

    async def status(
        self, caller: Caller, pid: str, urn: str, status: ReplicaStatus, checksum: Checksum | None = None
    ) -> None:
        """A target says how far it is; only what was asked of it can be completed."""
        await self._nodes.speaks(caller, urn)

        async def work(tx: Tx) -> None:
            await alone(tx)
            rows = await tx.rows("SELECT status FROM replica WHERE pid = :pid AND node = :node", pid=pid, node=urn)
            if not rows:
                raise NotFound(f"{urn} was not asked to replicate {pid}")
            known = await tx.rows("SELECT algorithm, checksum FROM sysmeta WHERE pid = :pid", pid=pid)
            ours = Checksum(known[0]["checksum"], known[0]["algorithm"])
            if status == "completed" and checksum is not None and ours.agrees(checksum) is False:
                raise BadInput(f"the copy of {pid} at {urn} has another checksum")
            await self._set(tx, pid, urn, status, self._clock.now())

        await self._db.write(work)

    async def put(self, caller: Caller, pid: str, replica: Replica, serial: int) -> None:
        """What is known of one copy, as long as nothing else changed meanwhile."""
        await self._nodes.speaks(caller, replica.replica_member_node)

        async def work(tx: Tx) -> None:
            await self._expect(tx, pid, serial)
            now = self._clock.now()
            await tx.rows(
                "INSERT INTO replica (pid, node, status, verified, tries) VALUES (:pid, :node, 'queued', 0, 0) "
                "ON CONFLICT (pid, node) DO NOTHING",
                pid=pid,
                node=replica.replica_member_node,
            )
            await self._set(tx, pid, replica.replica_member_node, replica.replication_status, now)

        await self._db.write(work)

    async def remove(self, caller: Caller, pid: str, urn: str, serial: int) -> None:
        caller.need("admin")

        async def work(tx: Tx) -> None:
            await self._expect(tx, pid, serial)
            await self._set(tx, pid, urn, "invalidated", self._clock.now())
            await tx.rows("DELETE FROM replica WHERE pid = :pid AND node = :node", pid=pid, node=urn)

        await self._db.write(work)

    async def policy(self, caller: Caller, pid: str, policy: ReplicationPolicy, serial: int) -> None:
        """Another policy for an object: for whoever may change who may do what with it."""

        async def work(tx: Tx) -> None:
            row = await self._expect(tx, pid, serial)
            meta = decode_meta(row["body"])
            if not caller.may("admin") and not meta.may("changePermission", frozenset({caller.subject})):
                raise NotAllowed(f"'{caller.subject}' must not change {pid}")
            meta = msgspec.structs.replace(meta, replication_policy=policy)
            sql = "UPDATE sysmeta SET body = :body WHERE pid = :pid"
            await tx.rows(sql, body=msgspec.msgpack.encode(meta), pid=pid)
            await self._set(tx, pid, "", "queued", self._clock.now())

        await self._db.write(work)

    async def authorised(self, pid: str, subject: str) -> bool:
        """Was a node that speaks as this subject asked to copy it?"""
        nodes = {node.identifier for node in await self._nodes.all() if subject in node.subject}
        sql = "SELECT node FROM replica WHERE pid = :pid AND status IN ('queued', 'requested')"
        return any(row["node"] in nodes for row in await self._db.read(sql, pid=pid))

    async def _expect(self, tx: Tx, pid: str, serial: int) -> Row:
        await alone(tx)
        rows = await tx.rows("SELECT serial, body FROM sysmeta WHERE pid = :pid AND deleted = 0", pid=pid)
        if not rows:
            raise NotFound(f"there is no object {pid}")
        if rows[0]["serial"] != serial:
            raise Conflict(f"{pid} is at serialVersion {rows[0]['serial']}, not {serial}")
        return rows[0]


async def _errand(tx: Tx, errand: Errand, urn: str, pid: str, now: float) -> None:
    await tx.rows(
        "INSERT INTO errand (id, urn, kind, pid, body, due, tries, done) "
        "VALUES (:id, :urn, :kind, :pid, :body, :now, 0, 0) ON CONFLICT (id) DO NOTHING",
        id=errand.id,
        urn=urn,
        kind=errand.id.partition(":")[0],
        pid=pid,
        body=msgspec.msgpack.encode(errand),
        now=now,
    )
