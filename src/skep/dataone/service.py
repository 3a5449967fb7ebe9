"""What DataONE's Coordinating Node does for callers: the rooms behind it, and reading what one may read."""

import asyncio
import time

import msgspec

from skep.base.caller import Caller
from skep.base.errors import NotAllowed, NotFound
from skep.dataone import solr
from skep.dataone.encoding import encode
from skep.dataone.harvests import Harvests, Previews
from skep.dataone.hosted_replicas import Copies
from skep.dataone.index import RecordIndex, subjects
from skep.dataone.nodes import Nodes
from skep.dataone.replication import Replication
from skep.dataone.store import Store
from skep.dataone.tables import Stored
from skep.dataone.types import Node, ObjectList, ObjectLocation, ObjectLocationList, Service, Services
from skep.storage.records.base import MOST_DEPTH, MOST_RECORDS, Ask, Found, Page

#: seconds between two looks at who is due, and between sweeps
_PACE, _SWEEP_EVERY = 2.0, 3_600.0
_SERVICES = ("CNCore", "CNRead", "CNRegister", "CNReplication", "CNAuthorization")


class DataOne(msgspec.Struct, frozen=True):
    store: Store
    index: RecordIndex
    nodes: Nodes
    harvests: Harvests
    replication: Replication
    previews: Previews
    #: where our API is reached: https://HOST/cn
    base: str
    #: what another Coordinating Node has us hold, if there is one
    copies: Copies | None = None

    async def follow(self) -> None:
        """For ever: nodes are harvested and asked for copies when it is time; what nobody refers to is swept."""
        swept = float("-inf")
        while True:
            if (now := self.store.clock.now()) >= swept + _SWEEP_EVERY:
                await self.store.packs.sweep()
                swept = now
            await self.nodes.order()
            if not await self.replication.step():
                await asyncio.sleep(_PACE)

    async def get(self, caller: Caller, id: str) -> Stored:
        """By identifier or series; NotAllowed when the caller may not read it."""
        caller.need("read")
        found = await self.store.get(id)
        if found is None:
            raise NotFound(f"there is no object {id[:800]!r}")
        if (who := subjects(caller)) and not found.meta.may("read", who):
            raise NotAllowed(f"'{caller.subject}' may not read {id[:800]!r}")
        return found

    async def described(self, caller: Caller, id: str) -> Stored:
        """For its system metadata: who holds a copy has to know who may read it."""
        try:
            return await self.get(caller, id)
        except NotAllowed:
            found = await self.store.get(id)
            speaks = {one.identifier for one in await self.nodes.all() if caller.subject in one.subject}
            if (
                not caller.known
                or found is None
                or speaks.isdisjoint(r.replica_member_node for r in found.meta.replica)
            ):
                raise
            return found

    async def listing(self, caller: Caller, **asked: object) -> ObjectList:
        caller.need("read")
        return await self.store.listing(subjects(caller) or None, **asked)  # type: ignore[arg-type]  # by the door

    async def changes(self, caller: Caller, **asked: object) -> ObjectList:
        """For a sibling, which hears of everything or of nothing: what becomes private must not stay public there."""
        caller.need("private")
        return await self.store.listing(None, by="stamp", **asked)  # type: ignore[arg-type]  # by the door

    async def resolve(self, caller: Caller, id: str) -> ObjectLocationList:
        """Where it can be read: its own node first, unless that lost it, then copies, then here."""
        found = await self.get(caller, id)
        pid, owner = found.meta.identifier, found.meta.authoritative_member_node
        copies = {one.replica_member_node: one.replication_status for one in found.meta.replica}
        nodes = await self.nodes.all()
        known = [node for node in nodes if ({owner: "completed"} | copies).get(node.identifier) == "completed"]
        known.sort(key=lambda node: (node.identifier != owner, node.type == "cn", node.identifier))
        if found.blob:
            known.append(self.node())
        places = [_location(node, pid, rank) for rank, node in enumerate(known)]
        if not places:
            # a sibling told us of it, and knows its nodes
            places = [_location(node, pid, 0, "resolve") for node in nodes if node.type == "cn"]
        if not places:
            raise NotFound(f"nobody who has {pid!r} is known")
        return ObjectLocationList(pid, tuple(places))

    def node(self) -> Node:
        """What we are among nodes."""
        services = tuple(Service(name, version) for name in _SERVICES for version in ("v1", "v2"))
        return Node(
            identifier=self.store.cn,
            name="Skep",
            description="a Coordinating Node",
            base_url=self.base,
            services=Services(services),
            subject=(f"CN={self.store.cn},DC=dataone,DC=org",),
            contact_subject=(f"CN={self.store.cn},DC=dataone,DC=org",),
            type="cn",
        )

    async def query(self, caller: Caller, params: solr.Params, now: float) -> tuple[str, bytes]:
        """What Solr would be asked; media type and body of the answer."""
        began = time.monotonic()
        asked = solr.asked(params, now)
        page = await self.pages(caller, asked)
        counted = {
            text: (await self.index.search(caller, Ask(f"{asked.text} ({solr.ours(text, now)})", limit=0))).total
            for text in asked.facet_queries
        }
        took = int((time.monotonic() - began) * 1000)
        return solr.render(asked, solr.Answer(page.records, page.total, page.facets, counted, took))

    async def pages(self, caller: Caller, asked: solr.Asked) -> Page:
        """Behind the last record there are none, as far as we can count."""
        found: list[Found] = []
        ask = Ask(asked.text, facets=asked.facets.fields, facet_size=asked.facets.size, sort=asked.sort)
        start, rows = asked.start, asked.rows
        if start + rows > MOST_DEPTH:
            total = (await self.index.search(caller, Ask(asked.text, limit=0))).total
            rows = max(0, min(rows, total - start))
            start = start if rows else 0
        while True:
            limit = min(rows - len(found), MOST_RECORDS)
            page = await self.index.search(caller, msgspec.structs.replace(ask, start=start + len(found), limit=limit))
            found += page.records
            if len(found) >= rows or not page.records:
                return Page(found, page.total, {name: asked.facets.shown(few) for name, few in page.facets.items()})


def _location(node: Node, pid: str, rank: int, call: str = "object") -> ObjectLocation:
    version = node.version
    url = f"{node.base_url.rstrip('/')}/{version}/{call}/{encode(pid)}"
    return ObjectLocation(node.identifier, node.base_url, (version,), url, rank)
