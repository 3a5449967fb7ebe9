"""Copies that a Coordinating Node asked us to hold, as it and everybody else may ask for them.

A request is a row of `dataone_copy` before it is answered; `pulls` does what is left to do.
"""

from collections.abc import Awaitable, Callable

import msgspec

from skep.dataone.client import NodeClient, Refused
from skep.dataone.index import subjects
from skep.dataone.store import Store
from skep.dataone.tables import Stored, alone, decode_meta
from skep.dataone.types import (
    Node,
    NodeList,
    NodeReplicationPolicy,
    ObjectList,
    Service,
    Services,
    SystemMetadata,
)
from skep.engines.db.base import Tx, Value
from skep.errors import BadInput, Conflict, NotAllowed, NotFound, TooLarge, Unavailable
from skep.model.caller import Caller

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
