"""Copies of objects at other nodes, as their nodes tell of them."""

import msgspec

from skep.clock import Clock
from skep.dataone.nodes import Nodes
from skep.dataone.store import Store
from skep.dataone.tables import BACKLOG, HISTORY, OPEN, TOUCH, WAIT, alone, decode_meta
from skep.dataone.types import Checksum, Replica, ReplicaStatus, ReplicationPolicy
from skep.engines.db.base import Database, Row, Tx
from skep.errors import BadInput, Conflict, NotAllowed, NotFound
from skep.model.caller import Caller

#: as far as a copy is concerned it is over, until it is asked for again
OVER = ("failed", "invalidated")


class Replicas:
    def __init__(self, db: Database, clock: Clock, store: Store, nodes: Nodes) -> None:
        self._db = db
        self._clock = clock
        self._store = store
        self._nodes = nodes

    async def status(
        self, caller: Caller, pid: str, urn: str, status: ReplicaStatus, checksum: Checksum | None = None
    ) -> None:
        """A target says how far it is; only what was asked of it can be completed."""
        await self._nodes.speaks(caller, urn)

        async def work(tx: Tx) -> None:
            await alone(tx)
            rows = await tx.rows("SELECT status FROM replica WHERE pid = :pid AND node = :node", pid=pid, node=urn)
            if not rows or rows[0]["status"] == "invalidated":
                raise NotFound(f"{urn} was not asked to replicate {pid}")
            known = await tx.rows("SELECT algorithm, checksum FROM sysmeta WHERE pid = :pid", pid=pid)
            ours = Checksum(known[0]["checksum"], known[0]["algorithm"])
            if status == "completed" and checksum is not None and ours.agrees(checksum) is False:
                raise BadInput(f"the copy of {pid} at {urn} has another checksum")
            if status in (*OPEN, rows[0]["status"]):
                return  # it has yet to say something that we did not know
            # what it says is checked at once
            now = self._clock.now()
            await self.set(tx, pid, urn, status, now, due=now if status == "completed" else None)

        await self._db.write(work)

    async def put(self, caller: Caller, pid: str, replica: Replica, serial: int) -> None:
        """What is known of one copy, as long as nothing else changed meanwhile. A node makes itself no holder: it could
        read then what is private, and nobody else would be asked."""
        urn, status = replica.replica_member_node, replica.replication_status
        await self._nodes.speaks(caller, urn)

        async def work(tx: Tx) -> None:
            await self._expect(tx, pid, serial)
            now = self._clock.now()
            sql = "SELECT status, due FROM replica WHERE pid = :pid AND node = :node"
            known = await tx.rows(sql, pid=pid, node=urn)
            if not caller.may("admin"):
                if not known or known[0]["status"] == "invalidated":
                    raise NotFound(f"{urn} was not asked to replicate {pid}")
                if status in OPEN:
                    return  # as in `status`
            await tx.rows(
                "INSERT INTO replica (pid, node, status, verified, tries) VALUES (:pid, :node, 'queued', 0, 0) "
                "ON CONFLICT (pid, node) DO NOTHING",
                pid=pid,
                node=urn,
            )
            # what is completed is checked, and who is yet to make a copy is asked: again when it would have been
            asked = status in OPEN and known and known[0]["status"] in OPEN
            due = (known[0]["due"] if asked else None) or now
            await self.set(tx, pid, urn, status, now, None if status in OVER else due)

        await self._db.write(work)

    async def remove(self, caller: Caller, pid: str, urn: str, serial: int) -> None:
        caller.need("admin")

        async def work(tx: Tx) -> None:
            await self._expect(tx, pid, serial)
            # not forgotten: a sibling that has not heard of it yet would tell us of the copy again
            await self.set(tx, pid, urn, "invalidated", self._clock.now())

        await self._db.write(work)

    async def policy(self, caller: Caller, pid: str, policy: ReplicationPolicy, serial: int) -> None:
        """Another policy for an object: for whoever may change who may do what with it."""

        async def work(tx: Tx) -> None:
            row, now = await self._expect(tx, pid, serial), self._clock.now()
            meta = decode_meta(row["body"])
            if not caller.may("admin") and not meta.may("changePermission", frozenset({caller.subject})):
                raise NotAllowed(f"'{caller.subject}' must not change {pid}")
            # newer than what was harvested, and older than whatever its node says next
            date = (meta.date_sys_metadata_modified or 0) + 1
            meta = msgspec.structs.replace(
                meta, replication_policy=policy, date_sys_metadata_modified=date, serial_version=serial + 1
            )
            body = msgspec.msgpack.encode(meta)
            sql = "UPDATE sysmeta SET body = :body, modified = :date WHERE pid = :pid"
            await tx.rows(sql, body=body, date=date, pid=pid)
            await tx.rows(HISTORY, pid=pid, serial=serial + 1, now=now, urn=self._store.cn, body=body)
            await self.set(tx, pid, "", "queued", now)

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

    async def set(
        self, tx: Tx, pid: str, urn: str, status: ReplicaStatus, now: float, due: float | None = None
    ) -> None:
        """`due`: when it is checked. After one that failed, others are asked."""
        await tx.rows(
            "UPDATE replica SET status = :status, verified = :verified, due = CAST(:due AS DOUBLE PRECISION) "
            "WHERE pid = :pid AND node = :node",
            status=status,
            verified=int(now * 1000),
            due=due,
            pid=pid,
            node=urn,
        )
        await tx.rows(TOUCH, serial=0, stamp=int(now * 1000), pid=pid)
        await tx.many(WAIT, [{"work": work, "pid": pid, "now": now} for work in ("index", "replicate")])
        tx.ring(BACKLOG)
