"""Member Nodes: what they say of themselves, how far each is harvested, and what it can bear."""

import msgspec

from skep.access.audit import note
from skep.base.caller import Caller
from skep.base.clock import Clock
from skep.base.errors import BadInput, Conflict, NotAllowed, NotFound
from skep.dataone.api import Limits, MemberNode, NodeEdit
from skep.dataone.source_type import cron_of
from skep.dataone.tables import welcome
from skep.dataone.types import Node, Synchronization
from skep.fleet.members import Fleet
from skep.sources.service import Sources
from skep.storage.database import Database, Row, Tx, Value

KIND = "dataone"
#: an order that led to nothing is repeated after so long, and then twice as long each time
_AGAIN, _MOST_AGAIN = 60.0, 3_600.0
_NEVER = (0.0, 0.0)
#: of any node
_MOST = Limits(100, 1e6, 1 << 40)
_LEAST_RATE = 0.01
#: what is listed from now on is a pass of its own, whatever else changes meanwhile
_NEXT = "pass = pass + 1"
#: such a pass over everything
EVERYTHING = f"{_NEXT}, full_place = 0"
#: again from an earlier place, never from a later one: what lies between would be passed over. A pass over everything
#: that is under way begins anew
_AGAIN_FROM = (
    f"{_NEXT}, full_place = CASE WHEN full_place IS NULL THEN NULL ELSE 0 END, "
    "place = CASE WHEN :place < place THEN :place ELSE place END"
)
#: one that was added again begins anew: another source, other offers
ADDED = ", ".join(
    f"{name} = CASE WHEN source = :source THEN {name} ELSE {new} END"
    for name, new in (("place", 0), ("full_at", 0), ("full_place", "NULL"))
)
ADDED += ", source = :source"
_NODE = (
    "SELECT member_node.*, source.name, source.url, source.kind, source.epoch, source.accepted FROM member_node "
    "LEFT JOIN source ON source.id = member_node.source AND source.state <> 'removed' "
)
#: no other node has the object in hand
FREE = (
    "NOT EXISTS (SELECT 1 FROM offer other WHERE other.pid = mine.pid AND other.source <> mine.source "
    "AND other.until > :now)"
)
_DUE = f"""
    SELECT DISTINCT source FROM offer mine
        WHERE state IN ('queued', 'missing') AND due <= :now AND until <= :now AND {FREE}
    UNION SELECT source FROM member_node JOIN errand ON errand.urn = member_node.urn WHERE done = 0 AND due <= :now
"""  # noqa: S608


async def node_of(tx: Tx, source: str) -> Row | None:
    """Locked: whoever works on a node works alone."""
    rows = await tx.rows(_NODE + "WHERE member_node.source = :id FOR UPDATE OF member_node", id=source)
    return {**rows[0], "version": doc_of(rows[0]).version} if rows and rows[0]["epoch"] is not None else None


def doc_of(row: Row) -> Node:
    return msgspec.json.decode(row["doc"], type=Node)


class _Kind(msgspec.Struct):
    type: str = "mn"


async def kinds(tx: Tx) -> dict[str, str]:
    """Of each node that we harvest: a Member Node, or a Coordinating Node."""
    rows = await tx.rows(_NODE + "WHERE source.epoch IS NOT NULL")
    return {row["urn"]: msgspec.json.decode(row["doc"], type=_Kind).type for row in rows}


def limits_of(row: Row) -> Limits:
    return msgspec.json.decode(row["limits"], type=Limits)


class Nodes:
    def __init__(self, db: Database, clock: Clock, fleet: Fleet, sources: Sources) -> None:
        self._db = db
        self._clock = clock
        self._fleet = fleet
        self._sources = sources
        #: source -> when it may be ordered again to be looked at, and for how long it had to wait
        self._ordered: dict[str, tuple[float, float]] = {}

    # what others may know

    async def all(self, tx: Tx | None = None) -> list[Node]:
        """Of approved nodes, each with how far we are. `tx`: for whoever writes what follows from it."""
        rows = await (tx.rows if tx else self._db.read)(_NODE + "WHERE source.epoch IS NOT NULL ORDER BY urn")
        return [_public(row) for row in rows]

    async def get(self, urn: str) -> Node | None:
        rows = await self._db.read(_NODE + "WHERE urn = :urn", urn=urn)
        return _public(rows[0]) if rows else None

    async def speaks(self, caller: Caller, urn: str) -> Node:
        """NotAllowed when the caller is not this node; admins are every node."""
        node = await self.get(urn)
        if node is None:
            raise NotFound(f"{urn} is not registered")
        if not caller.may("admin") and caller.subject not in node.subject:
            raise NotAllowed(f"'{caller.subject}' does not speak for {urn}")
        return node

    async def register(self, caller: Caller, node: Node) -> None:
        """It waits for an operator then."""
        caller.need("write")
        _need_member(node)
        if not await self._db.write(lambda tx: insert(tx, node, None, registered=True)):
            raise Conflict(f"{node.identifier} is registered already")

    async def update(self, caller: Caller, node: Node) -> None:
        await self.speaks(caller, node.identifier)
        _need_member(node)

        async def work(tx: Tx) -> None:
            (row,) = await tx.rows("SELECT doc FROM member_node WHERE urn = :urn FOR UPDATE", urn=node.identifier)
            sql = "UPDATE member_node SET doc = :doc, registered = 1 WHERE urn = :urn"
            await tx.rows(sql, doc=msgspec.json.encode(node).decode(), urn=node.identifier)
            if node.replicate and doc_of(row) != node:
                await welcome(tx, self._clock.now())

        await self._db.write(work)

    # what an operator does

    async def show(self, caller: Caller, ref: str) -> MemberNode:
        found = await self._standing(caller, ref)
        sql = "SELECT verdict, sum(times) AS n FROM story WHERE node = :urn GROUP BY verdict ORDER BY verdict"
        rows = await self._db.read(sql, urn=found.id)
        return msgspec.structs.replace(found, verdicts={row["verdict"]: int(row["n"]) for row in rows})

    async def _standing(self, caller: Caller, ref: str) -> MemberNode:
        row = await self.find(caller, ref)
        sql = "SELECT state, count(*) AS n FROM offer WHERE source = :source GROUP BY state"
        counts = await self._db.read(sql, source=row["source"] or "")
        return _view(row, {one["state"]: one["n"] for one in counts})

    async def approve(self, caller: Caller, ref: str) -> MemberNode:
        """From now on it is harvested."""
        row = await self.find(caller, ref)
        if row["epoch"] is None:
            added = await self._sources.add(caller, doc_of(row).base_url, kind=KIND)
            await self._set(caller, row["urn"], "dataone.approve", ADDED, comes=True, source=added.source.id)
        return await self._standing(caller, ref)

    async def set(self, caller: Caller, ref: str, edit: NodeEdit) -> MemberNode:
        """Obeyed at once. What is not given stays as it is by then."""
        urn = (await self.find(caller, ref))["urn"]
        given = {name: value for name, value in msgspec.structs.asdict(edit).items() if value is not None}
        paused = given.pop("paused", None)
        caller.need("admin")

        async def work(tx: Tx) -> None:
            (row,) = await tx.rows("SELECT limits, paused FROM member_node WHERE urn = :urn FOR UPDATE", urn=urn)
            limits = msgspec.structs.replace(limits_of(row), **given)
            if not _sane(limits):
                raise BadInput(
                    f"limits of a node: 1 to {_MOST.connections} connections, 1 to {_MOST.bytes} bytes, "
                    f"and {_LEAST_RATE} to {_MOST.rate:.0f} requests per second, or 0 for as many as there are"
                )
            rests = row["paused"] if paused is None else int(paused)
            values: dict[str, Value] = {"limits": msgspec.json.encode(limits).decode(), "paused": rests}
            columns, comes = "limits = :limits, paused = :paused", rests < row["paused"]
            await self._change(tx, caller, urn, "dataone.set", columns, comes=comes, **values)

        await self._db.write(work)
        return await self._standing(caller, ref)

    async def reconcile(self, caller: Caller, ref: str, *, since: float | None = None) -> MemberNode:
        """List everything again, which finds what has vanished; with `since`, only what is newer than that."""
        row = await self.find(caller, ref)
        if since is not None:
            await self._set(caller, row["urn"], "dataone.reharvest", _AGAIN_FROM, place=self.past(since))
        else:
            await self._set(caller, row["urn"], "dataone.reconcile", EVERYTHING)
        return await self._standing(caller, ref)

    def past(self, since: float) -> int:
        """In milliseconds."""
        if not 0 <= since <= self._clock.now():
            raise BadInput(f"{since:g} is no time in the past", hint="`since` is in seconds since 1970")
        return int(since * 1000)

    async def replay(self, caller: Caller, ref: str, pid: str = "") -> MemberNode:
        """Try parked objects again, or one object whatever its state."""
        row = await self.find(caller, ref)
        caller.need("admin")

        async def work(tx: Tx) -> None:
            found = await tx.rows(
                "UPDATE offer SET state = 'queued', due = 0, tries = 0, "
                # (what is in hand is what the node gave before)
                "again = CASE WHEN ticket <> '' THEN 1 ELSE again END WHERE source = :source AND "
                "((:pid = '' AND state = 'parked') OR pid = :pid) RETURNING pid",
                source=row["source"],
                pid=pid,
            )
            if pid and not found:
                raise NotFound(f"{row['urn']} has not offered {pid[:100]!r}", hint="has it been listed since?")
            await note(tx, self._clock.now(), caller, "dataone.replay", pid or row["urn"])

        await self._db.write(work)
        return await self._standing(caller, ref)

    async def _set(
        self, caller: Caller, urn: str, verb: str, columns: str, *, comes: bool = False, **values: Value
    ) -> None:
        caller.need("admin")
        await self._db.write(lambda tx: self._change(tx, caller, urn, verb, columns, comes=comes, **values))

    async def _change(
        self, tx: Tx, caller: Caller, urn: str, verb: str, columns: str, *, comes: bool = False, **values: Value
    ) -> None:
        """`comes`: it may be asked for copies from now on."""
        sql = f"UPDATE member_node SET {columns} WHERE urn = :urn RETURNING source"  # noqa: S608
        rows = await tx.rows(sql, urn=urn, **values)
        await note(tx, self._clock.now(), caller, verb, urn)
        if comes:
            await welcome(tx, self._clock.now())
        if rows[0]["source"]:
            await self._fleet.ask(tx, "fetch", rows[0]["source"])

    async def find(self, caller: Caller, ref: str) -> Row:
        caller.need("read")
        sql = _NODE + "WHERE urn = :ref OR source.id = :ref OR source.name = :ref OR source.url = :ref LIMIT 1"
        rows = await self._db.read(sql, ref=ref)
        if not rows:
            raise NotFound(f"there is no node {ref!r}", hint="`skep dataone nodes` shows those there are")
        return rows[0]

    # when each is harvested

    def due(self, row: Row) -> bool:
        """By its schedule; without one whoever holds it looks as often as it changes."""
        node = doc_of(row)
        if row["paused"] or (row["registered"] and not node.synchronize):
            return False
        if node.synchronization is None or not row["listed_at"]:
            return True
        cron, _ = cron_of(node.synchronization.schedule)
        return cron.newest(row["listed_at"], self._clock.now()) is not None

    async def order(self) -> None:
        """One round: whoever is due, or has something due in its queue, is looked at now."""
        now = self._clock.now()
        rows = await self._db.read(_NODE + "WHERE source.epoch IS NOT NULL AND paused = 0")
        waiting = {row["source"] for row in await self._db.read(_DUE, now=now)}
        wanted = [
            row["source"]
            for row in rows
            if self._ordered.get(row["source"], _NEVER)[0] <= now
            and (row["source"] in waiting or (doc_of(row).synchronization and self.due(row)))
        ]
        if wanted:
            await self._db.write(lambda tx: self._fleet.ask_many(tx, "fetch", wanted))
            for source in wanted:
                pause = min(max(_AGAIN, 2 * self._ordered.get(source, _NEVER)[1]), _MOST_AGAIN)
                self._ordered[source] = now + pause, pause

    def visited(self, source: str) -> None:
        """It answers: a new order need not wait."""
        self._ordered.pop(source, None)

    async def list(self, caller: Caller) -> list[MemberNode]:
        caller.need("read")
        counts: dict[str, dict[str, int]] = {}
        for one in await self._db.read("SELECT source, state, count(*) AS n FROM offer GROUP BY source, state"):
            counts.setdefault(one["source"], {})[one["state"]] = one["n"]
        rows = await self._db.read(_NODE + "ORDER BY urn")
        return [_view(row, counts.get(row["source"] or "", {})) for row in rows]


async def insert(tx: Tx, node: Node, source: str | None, *, registered: bool) -> bool:
    """False: there is one with this identifier."""
    given = {one.key: one.value for one in node.properties}
    try:
        limits = msgspec.convert(
            {name: given[name] for name in Limits.__struct_fields__ if name in given}, Limits, strict=False
        )
    except msgspec.ValidationError:
        limits = Limits()
    if not _sane(limits):
        limits = Limits()
    rows = await tx.rows(
        "INSERT INTO member_node (urn, source, doc, limits, registered, paused, place, newest, pass, full_at, "
        "listed_at, skew, note, batches) "
        "VALUES (:urn, :source, :doc, :limits, :registered, 0, 0, 0, 0, 0, 0, 0, '', 0) "
        "ON CONFLICT (urn) DO NOTHING RETURNING urn",
        urn=node.identifier,
        source=source,
        doc=msgspec.json.encode(node).decode(),
        limits=msgspec.json.encode(limits).decode(),
        registered=int(registered),
    )
    return bool(rows)


def _sane(limits: Limits) -> bool:
    """A node may say anything of itself, `nan` as well."""
    return (
        1 <= limits.connections <= _MOST.connections
        and (limits.rate == 0 or _LEAST_RATE <= limits.rate <= _MOST.rate)
        and 1 <= limits.bytes <= _MOST.bytes
    )


def _need_member(node: Node) -> None:
    """Others may believe a Coordinating Node in our list whatever it says."""
    if node.type != "mn":
        raise BadInput(f"{node.identifier[:80]} says that it is no Member Node", hint='its type has to be "mn"')


def _public(row: Row) -> Node:
    """What was harvested is for us to say, not for the node."""
    node = doc_of(row)
    if node.synchronization is None:
        return node
    done = int(row["full_at"] * 1000) or None
    ours = Synchronization(node.synchronization.schedule, row["newest"] or None, done)
    return msgspec.structs.replace(node, synchronization=ours)


def _view(row: Row, objects: dict[str, int]) -> MemberNode:
    node = doc_of(row)
    cron = cron_of(node.synchronization.schedule) if node.synchronization else None
    # one that was removed may be approved again
    source = row["source"] if row["epoch"] is not None else None
    return MemberNode(
        *(row["urn"], node.name, node.base_url, source, bool(row["registered"]), bool(row["paused"])),
        *(limits_of(row), row["newest"] / 1000, row["listed_at"], row["full_at"], row["skew"] / 1000),
        note="; ".join(filter(None, (row["note"], cron[1] if cron else ""))),
        next_at=cron[0].next(row["listed_at"]) if cron else None,
        objects=objects,
        place=row["place"] / 1000,
        full_place=None if row["full_place"] is None else row["full_place"] / 1000,
    )
