"""Copies at other nodes: who is asked for them, what they say, and whether it is so."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from skep.base.caller import Caller
from skep.base.clock import Clock
from skep.base.errors import BadInput, Conflict, NotAllowed, NotFound
from skep.dataone.apply_batch import pause
from skep.dataone.encoding import encode, parse, render
from skep.dataone.nodes import Nodes
from skep.dataone.rpc import Errand, Ran
from skep.dataone.store import Store
from skep.dataone.tables import AUDIT, BACKLOG, HISTORY, OPEN, TOUCH, UNMET, WAIT, WORKED, Stored, alone, decode_meta
from skep.dataone.types import Checksum, Node, Replica, ReplicaStatus, ReplicationPolicy, SystemMetadata
from skep.storage.database import Database, Row, Tx, Value, among

# Copies of objects at other nodes, as their nodes tell of them.

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


# Who is asked for copies of an object (pure): as many nodes as its policy wants, the best of those that can.

#: requests that one node has open
MOST_OPEN = 10
#: a node of which fewer copies than this succeed is asked after all others
_RELIABLE = 0.8
_COUNTED = ("queued", "requested", "completed")


class Load(msgspec.Struct, frozen=True):
    """What a node has to do with our copies already."""

    #: requests that it has not answered
    open: int = 0
    #: of copies that it holds or was asked for
    bytes: int = 0
    #: of late, those that it made and those that it failed to make
    made: int = 0
    failed: int = 0

    @property
    def reliable(self) -> bool:
        return self.made >= _RELIABLE * (self.made + self.failed)

    def asked(self, size: int) -> "Load":
        return msgspec.structs.replace(self, open=self.open + 1, bytes=self.bytes + size)


class Plan(msgspec.Struct, frozen=True):
    #: best first
    ask: list[str]
    #: copies for which nobody can be asked now
    lacking: int = 0
    #: somebody could be, but has enough to do
    busy: bool = False


def wanted(meta: SystemMetadata) -> int:
    """Copies. An archived object keeps those it has, and gets no others."""
    policy = meta.replication_policy
    return policy.number_replicas if policy and policy.replication_allowed and not meta.archived else 0


def may_have(meta: SystemMetadata, urn: str) -> bool:
    """May this node be asked for a copy, as far as the object is concerned?"""
    policy = meta.replication_policy
    return policy is not None and wanted(meta) > 0 and urn not in policy.blocked_member_node


def plan(meta: SystemMetadata, nodes: Sequence[Node], held: Collection[str], loads: Mapping[str, Load]) -> Plan:
    """`held`: who has a copy, was asked for one, or failed not long ago."""
    policy = meta.replication_policy
    if policy is None or not wanted(meta):
        return Plan([])
    # neither the original nor we are counted as copies
    others = {node.identifier for node in nodes} - {meta.authoritative_member_node}
    copies = [r for r in meta.replica if r.replication_status in _COUNTED and r.replica_member_node in others]
    more = max(0, wanted(meta) - len(copies))
    fit = [
        node.identifier
        for node in nodes
        if node.identifier in others - {*held} and _takes(node, meta, policy, loads.get(node.identifier, Load()))
    ]
    order = {urn: n for n, urn in enumerate(policy.preferred_member_node)}

    def rank(urn: str) -> tuple[bool, int, int, str]:
        load = loads.get(urn, Load())
        return not load.reliable, order.get(urn, len(order)), load.open, urn

    free = sorted((urn for urn in fit if loads.get(urn, Load()).open < MOST_OPEN), key=rank)[:more]
    lacking = more - len(free)
    return Plan(free, lacking, lacking > 0 and len(fit) > len(free))


def _takes(node: Node, meta: SystemMetadata, wish: ReplicationPolicy, load: Load) -> bool:
    services = node.services.service if node.services else ()
    if not node.replicate or node.state != "up" or node.identifier in wish.blocked_member_node:
        return False
    if not any(one.name == "MNReplication" and one.available for one in services):
        return False
    policy = node.node_replication_policy
    if policy is None:
        return True
    return (
        (policy.max_object_size is None or meta.size <= policy.max_object_size)
        and (policy.space_allocated is None or load.bytes + meta.size <= policy.space_allocated)
        and (not policy.allowed_node or meta.authoritative_member_node in policy.allowed_node)
        and (not policy.allowed_object_format or meta.format_id in policy.allowed_object_format)
    )


#: seconds until a target is asked again for what it said nothing of, or failed to copy; then once a week
AGAIN = (0.0, 1_200.0, 7_200.0, 28_800.0, 86_400.0, 86_400.0, 86_400.0, 604_800.0)
#: who said nothing so many times has failed
SILENT = 4
_AT_ONCE = 100
#: copies up to this size are read to check them; of larger ones the node's own word is taken
_READ = 10_000_000
_ERRAND_TRIES = 6
#: what lacks copies waits for so long if somebody is busy, for so much longer if nobody can take it
_BUSY, _NOBODY = 60.0, 3_600.0
#: how full and how reliable nodes are is looked up so often, by what happened so lately. (Sizes are what nodes say: two
#: of them may be more than an integer holds)
_WEIGH, _LATELY = 60.0, 86_400.0
_WEIGHTS = """
    SELECT replica.node,
        SUM(CASE WHEN status IN ('requested', 'completed') THEN CAST(size AS DOUBLE PRECISION) ELSE 0 END) AS bytes,
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
        unmet = await self._store.backlog(UNMET, _AT_ONCE, until=now)
        overdue = await self._db.read(OVERDUE, now=now, limit=_AT_ONCE)
        pids = dict.fromkeys([*(pid for pid, _ in waiting + unmet), *(row["pid"] for row in overdue)])
        if not pids:
            return 0
        await self._weigh(now)
        done, loads = await self._db.write(partial(self._look, pids, {"replicate": waiting, UNMET: unmet}, now))
        self._weights |= loads
        return done

    async def _targets(self, tx: Tx) -> list[Node]:
        """All Member Nodes; those that an operator has paused are as good as down."""
        paused = {row["urn"] for row in await tx.rows("SELECT urn FROM member_node WHERE paused = 1")}
        nodes = [node for node in await self._nodes.all(tx) if node.type == "mn"]
        return [replace(node, state="down") if node.identifier in paused else node for node in nodes]

    async def _weigh(self, now: float) -> None:
        """Sums over all copies are kept for a while, as they cost; what is asked meanwhile is added to them."""
        if self._weighed + _WEIGH <= now:
            rows = await self._db.read(_WEIGHTS, late=int((now - _LATELY) * 1000))
            kept = {row["node"]: Load(0, *(int(row[name]) for name in ("bytes", "made", "failed"))) for row in rows}
            self._weights, self._weighed = kept, now

    async def _loads(self, tx: Tx) -> dict[str, Load]:
        counts = {row["node"]: int(row["n"]) for row in await tx.rows(_OPEN)}
        nodes = {*self._weights, *counts}
        return {urn: replace(self._weights.get(urn, Load()), open=counts.get(urn, 0)) for urn in nodes}

    async def _look(
        self, pids: Collection[str], looked: Mapping[str, Sequence[tuple[str, float]]], now: float, tx: Tx
    ) -> tuple[int, dict[str, Load]]:
        """How much was done, and what nodes have to do then. `looked`: what waited, which is over with this."""
        await alone(tx)
        # only now: it may be archived, deleted, or there again, since it was found to wait
        nodes, found, loads = await self._targets(tx), await self._store.get_many(pids, tx=tx), await self._loads(tx)
        places, names = among(pids)
        rows: dict[str, list[Row]] = {}
        for row in await tx.rows(f"SELECT * FROM replica WHERE pid IN ({places})", **names):  # noqa: S608
            rows.setdefault(row["pid"], []).append(row)
        done, later = 0, dict[str, float]()
        members = {node.identifier for node in nodes}
        for pid in pids:
            mine, one = rows.get(pid, []), found.get(pid)
            if one is None:
                done += await self._forget(tx, mine, now)
                continue
            source = _source(one, nodes)
            done += await self._follow_up(tx, one, mine, source, now)
            if not members & {row["node"] for row in mine if row["status"] == "completed"}:
                continue  # whoever is to copy it has to find it at a node that we list; a sibling may
            held = {row["node"] for row in mine if row["status"] not in OVER or _rests(row, now)}
            ahead = plan(one.meta, nodes, held, loads)
            tries = {row["node"]: int(row["tries"]) for row in mine}
            for urn in ahead.ask:
                await self._request(tx, one, urn, source, tries.get(urn, 0), now)
                loads[urn] = loads.get(urn, Load()).asked(one.meta.size)
            done += len(ahead.ask)
            if ahead.lacking:
                later[pid] = _BUSY if ahead.busy else _NOBODY
        for work, waited in looked.items():
            await tx.many(WORKED, [{"work": work, "pid": pid, "at": at} for pid, at in waited])
        await tx.many(WAIT, [{"work": UNMET, "pid": pid, "now": now + after} for pid, after in later.items()])
        return done, loads

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

    async def _follow_up(self, tx: Tx, one: Stored, rows: Sequence[Row], source: str, now: float) -> int:
        """Copies are checked from time to time; whoever says nothing is asked again, and given up after a while, or as
        soon as it is to have none."""
        pid, done, over, waits = one.meta.identifier, 0, list[str](), list[str]()
        for row in rows:
            urn, status, due = row["node"], row["status"], row["due"] is not None and row["due"] <= now
            # (of nodes that are not ours we only know what others asked of them, and there is no date)
            in_vain = status in OPEN and row["due"] is not None and not may_have(one.meta, urn)
            done += due or in_vain
            if status == "completed":
                if due:
                    await self._audit(tx, one, urn, now)
            elif in_vain or (due and row["tries"] >= SILENT):
                over.append(urn)
                await self.set(tx, pid, urn, "failed", now)
            elif due:
                await self._request(tx, one, urn, source, int(row["tries"]), now)
            else:
                (over if status in OVER else waits).append(urn)
        # who could not be asked yet does not hear of it any more, or hears what the object is by now
        ids = [{"id": _errand_id("replicate", urn, pid)} for urn in over]
        await tx.many("UPDATE errand SET done = 1 WHERE id = :id AND done = 0", ids)
        bodies: list[dict[str, Value]] = [
            {"id": ask.id, "body": msgspec.msgpack.encode(ask)} for ask in (_ask(one, urn, source) for urn in waits)
        ]
        await tx.many("UPDATE errand SET body = :body WHERE id = :id AND done = 0", bodies)
        return done

    async def _request(self, tx: Tx, one: Stored, urn: str, source: str, tries: int, now: float) -> None:
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
        await _errand(tx, _ask(one, urn, source), urn, pid, now)

    async def _audit(self, tx: Tx, one: Stored, urn: str, now: float) -> None:
        """By reading it, as a node may repeat the checksum it was given; by asking for that where it is large."""
        pid, algorithm = one.meta.identifier, one.meta.checksum.name
        if one.meta.checksum.known:  # (a sibling may know objects by other kinds of checksum)
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
        if row["kind"] == "audit" and (well or ran.status == 404) and await self._is(tx, row, "completed"):
            await self._audited(tx, row, ran, now)
        elif row["kind"] == "replicate" and over and not well and await self._is(tx, row, "requested"):
            await self.set(tx, row["pid"], row["urn"], "failed", now)
        elif row["kind"] == "dirty" and over:
            # each change has one of its own, so that they would become ever more
            await tx.rows("DELETE FROM errand WHERE id = :id", id=ran.id)

    async def _is(self, tx: Tx, errand: Row, status: ReplicaStatus) -> bool:
        """The node, or somebody else, may have said something before we heard this answer."""
        sql = "SELECT 1 AS x FROM replica WHERE pid = :pid AND node = :node AND status = :status"
        return bool(await tx.rows(sql, pid=errand["pid"], node=errand["urn"], status=status))

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


def _source(one: Stored, nodes: Sequence[Node]) -> str:
    """Its own node, unless only others have it any more, or can be asked for it."""
    has = {r.replica_member_node for r in one.meta.replica if r.replication_status == "completed"}
    own = one.meta.authoritative_member_node or ""
    held = [node for node in nodes if node.identifier in has]
    held.sort(key=lambda node: (node.state != "up", node.identifier != own))
    return held[0].identifier if held else own


def _ask(one: Stored, urn: str, source: str) -> Errand:
    parts = {"sysmeta": render(one.meta), "sourceNode": source.encode()}
    return Errand(_errand_id("replicate", urn, one.meta.identifier), "/replicate", parts)


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
