"""The coordinator's part of a harvest: what differs from what we know is queued, handed out under leases, and settled.

A row of `offer` is what one node says of one object and what became of that, so that a lost queue cannot be.
"""

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from pathlib import Path

import msgspec

from skep.base.caller import Caller
from skep.base.clock import Clock
from skep.base.errors import BadInput, Conflict, NotAllowed, NotFound, TooLarge, Unavailable
from skep.dataone.api import Preview
from skep.dataone.client import NodeClient, Refused, Window, begin
from skep.dataone.listing import PAGE
from skep.dataone.nodes import ADDED, EVERYTHING, FREE, Nodes, doc_of, insert, limits_of, node_of
from skep.dataone.replication import Replication
from skep.dataone.rpc import (
    Bring,
    Brought,
    Errand,
    Harvest,
    HarvestAnswer,
    HarvestRequest,
    Listed,
    MeetNode,
    Objects,
    PlanHarvest,
    Queued,
    TakeObjects,
    Wanted,
)
from skep.dataone.source_type import base_of
from skep.dataone.store import Store
from skep.dataone.tables import welcome
from skep.dataone.types import Checksum, Node, ObjectInfo
from skep.fleet.members import Fleet
from skep.sources.report_handler import Stale, current
from skep.storage.database import Database, Row, Tx, among

#: seconds that a worker has for what it took
_LEASE = 900.0
#: given out together
_ERRANDS = 20
#: beyond this share of a node's objects, vanishing has to be accepted by a person
_MOST_MISSING = 0.1
_FEW = 10
_SAME = "offer.modified = excluded.modified AND offer.checksum = excluded.checksum AND offer.state <> 'gone'"
_OFFER = f"""
    INSERT INTO offer (source, pid, modified, checksum, state, reason, due, tries, ticket, until, again, pass, seq)
    VALUES (:source, :pid, :modified, :checksum, 'queued', '', :now, 0, '', 0, 0, :pass, 0)
    ON CONFLICT (source, pid) DO UPDATE SET
        modified = excluded.modified, checksum = excluded.checksum,
        pass = CASE WHEN excluded.pass > offer.pass THEN excluded.pass ELSE offer.pass END,
        state = CASE WHEN {_SAME} AND offer.state <> 'missing' THEN offer.state ELSE 'queued' END,
        due = CASE WHEN {_SAME} THEN offer.due ELSE excluded.due END,
        tries = CASE WHEN {_SAME} THEN offer.tries ELSE 0 END,
        again = CASE WHEN NOT ({_SAME}) AND offer.ticket <> '' THEN 1 ELSE offer.again END
    WHERE NOT ({_SAME}) OR offer.pass < excluded.pass
"""  # noqa: S608
_SIGNAL = """
    INSERT INTO offer (source, pid, modified, checksum, state, reason, due, tries, ticket, until, again, pass, seq)
    VALUES (:source, :pid, 0, '', 'queued', '', 0, 0, '', 0, 0, :pass, 0)
    ON CONFLICT (source, pid) DO UPDATE SET state = 'queued', due = 0, tries = 0,
        again = CASE WHEN offer.ticket <> '' THEN 1 ELSE offer.again END
"""
_WAITING = "source = :source AND state IN ('queued', 'missing') AND due <= :now AND until <= :now"
_TAKE = f"""
    UPDATE offer SET ticket = :ticket, until = :until WHERE source = :source AND pid IN (
        SELECT pid FROM offer mine WHERE {_WAITING} AND ticket <> :ticket AND {FREE} ORDER BY due LIMIT :most)
    RETURNING pid, due
"""  # noqa: S608
_EVERYTHING = f"UPDATE member_node SET {EVERYTHING} WHERE urn = :urn"  # noqa: S608
_OFFERED = "source = :source AND state IN ('held', 'parked', 'queued')"
_MISSING = f"{_OFFERED} AND pass < :pass"
#: all that a node offers and what of it the pass did not list; the same of what is held
_COUNT = f"""
    SELECT count(*) AS offered, count(CASE WHEN pass < :pass THEN 1 END) AS missing,
        count(CASE WHEN state = 'held' THEN 1 END) AS held,
        count(CASE WHEN state = 'held' AND pass < :pass THEN 1 END) AS lost,
        min(CASE WHEN pass < :pass THEN pid END) AS first, max(CASE WHEN pass < :pass THEN pid END) AS last
    FROM offer WHERE {_OFFERED}
"""  # noqa: S608


class Harvests:
    def __init__(
        self,
        db: Database,
        clock: Clock,
        fleet: Fleet,
        nodes: Nodes,
        store: Store,
        replication: Replication,
        *,
        queue: tuple[int, int],
        data_bytes: int,
        full_every: float,
        siblings: Collection[str] = (),
    ) -> None:
        """`siblings`: base URLs of Coordinating Nodes whose word counts as ours."""
        self._db = db
        self._clock = clock
        self._fleet = fleet
        self._nodes = nodes
        self._store = store
        self._replication = replication
        self._queue = queue
        self._data_bytes = data_bytes
        self._full_every = full_every
        self._siblings = {base_of(url) for url in siblings}

    async def answer(self, body: HarvestRequest, pack: Path | None = None) -> HarvestAnswer:
        """`pack` is where the bytes of a Bring are on this machine. Whoever asks holds the source."""
        blob = await self._store.packs.put(pack) if pack is not None else None
        match body:
            case MeetNode():
                return await self._db.write(partial(self._meet, body))
            case PlanHarvest():
                return await self._db.write(partial(self._plan, body))
            case Listed():
                self._nodes.visited(body.source)
                return await self._db.write(partial(self._listed, body))
            case TakeObjects():
                return await self._db.write(partial(self._take, body))
            case Bring():
                self._nodes.visited(body.source)
                return await self._bring_apart(body, blob)

    async def _bring_apart(self, body: Bring, blob: str | None) -> Queued:
        """Together, unless there is one among them that the database cannot hold: it must not keep the others out."""
        try:
            return await self._db.write(partial(self._bring, body, blob))
        except (BadInput, TooLarge) as error:
            half, objects = len(body.objects) // 2, body.objects
            if half:
                await self._bring_apart(msgspec.structs.replace(body, objects=objects[:half]), blob)
                return await self._bring_apart(msgspec.structs.replace(body, objects=objects[half:], ran=()), blob)
            if not objects or objects[0].kind == "never":
                raise
            # (briefly, as a long identifier may be all that fits)
            unfit = Brought(pid=objects[0].pid, trouble=f"it cannot be stored: {error.message[:80]}", kind="never")
            return await self._db.write(partial(self._bring, msgspec.structs.replace(body, objects=(unfit,)), blob))

    async def synchronize(self, caller: Caller, pid: str) -> None:
        """A node says that an object of its changed. While that is in hand, this leads to one more run."""
        speakers = [node for node in await self._nodes.all() if caller.subject in node.subject]
        known = await self._store.get_many([pid], deleted=True)
        urn = known[pid].meta.authoritative_member_node if pid in known else next((n.identifier for n in speakers), "")
        if not urn:
            raise NotAllowed(f"'{caller.subject}' speaks for no node that is harvested here")
        await self._nodes.speaks(caller, urn)

        async def work(tx: Tx) -> None:
            rows = await tx.rows("SELECT source, pass FROM member_node WHERE urn = :urn AND source <> ''", urn=urn)
            if not rows:
                raise NotFound(f"{urn} is not harvested")
            await tx.rows(_SIGNAL, source=rows[0]["source"], pid=pid, **{"pass": rows[0]["pass"]})
            await self._fleet.ask(tx, "fetch", rows[0]["source"])

        await self._db.write(work)

    async def _node(self, tx: Tx, body: HarvestRequest) -> Row:
        if isinstance(stale := await current(tx, body), Stale):
            raise Conflict(stale.reason)
        node = await node_of(tx, body.source)
        if node is None:
            raise NotFound(f"nothing is known of the node {body.source}")
        return node

    def _sibling(self, url: str, node: Node) -> bool:
        """Whoever says that it is a Coordinating Node would be believed everything: our settings have to say so too."""
        if node.type != "cn":
            return False
        if node.identifier == self._store.cn:
            hint = "each Coordinating Node needs a `dataone_node` of its own"
            raise Conflict(f"{url} is called {node.identifier}, as we are", hint=hint)
        if base_of(url) not in self._siblings:
            raise Conflict(f"{url} is a Coordinating Node", hint="`dataone_siblings` names those that are trusted")
        return True

    async def _meet(self, body: MeetNode, tx: Tx) -> Harvest:
        source = await current(tx, body)
        if isinstance(source, Stale):
            raise Conflict(source.reason)
        self._sibling(source["url"], body.node)
        urn = body.node.identifier
        if (known := await node_of(tx, body.source)) and known["urn"] != urn:
            hint = "remove this source and add it again, if the node really has another name now"
            raise Conflict(f"{source['url']} says that it is {urn}, and was {known['urn']}", hint=hint)
        if not await insert(tx, body.node, body.source, registered=False):
            rows = await tx.rows(
                "SELECT source.id FROM member_node JOIN source ON source.id = member_node.source "
                "WHERE urn = :urn AND source.id <> :source AND source.state <> 'removed'",
                urn=urn,
                source=body.source,
            )
            if rows:
                raise Conflict(f"{urn} is the source {rows[0]['id']} already", hint="remove one of the two")
            await tx.rows(
                f"UPDATE member_node SET doc = :doc, {ADDED} WHERE urn = :urn",  # noqa: S608
                doc=msgspec.json.encode(body.node).decode(),
                source=body.source,
                urn=urn,
            )
        if body.node.replicate and (known is None or doc_of(known) != body.node):
            await welcome(tx, self._clock.now())
        await tx.rows("UPDATE member_node SET skew = :skew WHERE urn = :urn", skew=body.skew, urn=urn)
        return await self._plan(PlanHarvest(body.source, body.epoch, True), tx)

    async def _plan(self, body: PlanHarvest, tx: Tx) -> Harvest:
        if isinstance(stale := await current(tx, body), Stale):
            raise Conflict(stale.reason)
        node = await node_of(tx, body.source)
        if node is None:
            return Harvest()
        # whoever asks for a plan has nothing in hand: what an earlier process took is free again
        await tx.rows(
            "UPDATE offer SET ticket = '', until = 0 WHERE source = :source AND ticket <> ''", source=body.source
        )
        full, due, passing = node["full_place"], bool(node["full_at"]), node["pass"]
        if full is None and due and node["full_at"] + self._full_every <= self._clock.now():
            full, passing = 0, passing + 1
            await tx.rows(_EVERYTHING, urn=node["urn"])
        waiting = 0 if node["paused"] else await self._due(tx, node)
        sibling = self._sibling(node["url"], doc_of(node))
        return Harvest(
            known=True,
            list=not node["paused"] and (body.asked or self._nodes.due(node)),
            due=waiting,
            place=begin(node["place"]),
            full=None if node["paused"] else full,
            passing=passing,
            version=node["version"],
            limits=limits_of(node),
            queue=self._queue,
            data_bytes=self._data_bytes,
            formats=self._store.formats.learned,
            sibling=node["urn"] if sibling else "",
        )

    async def _due(self, tx: Tx, node: Row) -> int:
        now, source = self._clock.now(), node["source"]
        rows = await tx.rows(f"SELECT count(*) AS n FROM offer WHERE {_WAITING}", source=source, now=now)  # noqa: S608
        sql = "SELECT count(*) AS n FROM errand WHERE urn = :urn AND done = 0 AND due <= :now"
        return int(rows[0]["n"]) + int((await tx.rows(sql, urn=node["urn"], now=now))[0]["n"])

    async def _listed(self, body: Listed, tx: Tx) -> Queued:
        node, now = await self._node(tx, body), self._clock.now()
        # what was read before another pass was asked for may have vanished since, and says nothing of it
        passing = node["pass"] if body.passing is None else body.passing
        if passing != node["pass"]:
            body = msgspec.structs.replace(body, place=None, last=body.last and not body.full)
        await tx.many(
            _OFFER,
            [
                {
                    "source": body.source,
                    "pid": one.identifier,
                    "modified": one.date_sys_metadata_modified,
                    "checksum": one.checksum.spelled,
                    "now": now,
                    "pass": passing,
                }
                for one in sorted(body.entries, key=lambda one: one.date_sys_metadata_modified)
            ],
        )
        newest = max((one.date_sys_metadata_modified for one in body.entries), default=0)
        place = "full_place" if body.full else "place"
        await tx.rows(
            f"UPDATE member_node SET {place} = COALESCE(CAST(:place AS BIGINT), {place}), skew = :skew, note = :note, "  # noqa: S608
            "newest = CASE WHEN newest < :newest THEN :newest ELSE newest END WHERE urn = :urn",
            place=body.place,
            skew=body.skew,
            note=body.note,
            newest=newest,
            urn=node["urn"],
        )
        missing = await self._over(tx, node, body, now) if body.last else ""
        return Queued(await self._due(tx, node), missing)

    async def _over(self, tx: Tx, node: Row, body: Listed, now: float) -> str:
        """A pass is over: the first one listed everything, as a full one does."""
        if not body.full:
            first = "full_at = CASE WHEN full_at = 0 THEN :now ELSE full_at END"
            sql = f"UPDATE member_node SET listed_at = :now, {first} WHERE urn = :urn"  # noqa: S608
            await tx.rows(sql, now=now, urn=node["urn"])
            return ""
        known = {"source": body.source, "pass": node["pass"]}
        (row,) = await tx.rows(_COUNT, **known)
        gone, all = int(row["missing"]), int(row["offered"])
        loss = hashlib.blake2b(f"{gone} {row['first']} {row['last']}".encode(), digest_size=8).hexdigest()
        # (of what is held too: where much is parked it would be a small share of everything)
        many = _too_many(gone, all) or _too_many(int(row["lost"]), int(row["held"]))
        if many and node["accepted"] != loss:
            # it is listed once more, and then a person decides
            await tx.rows(_EVERYTHING, urn=node["urn"])
            return f"{loss} {gone} of {all}"
        await tx.rows(f"UPDATE offer SET state = 'missing', due = 0, tries = 0 WHERE {_MISSING}", **known)  # noqa: S608
        await tx.rows(
            "UPDATE member_node SET full_place = NULL, full_at = :now WHERE urn = :urn", now=now, urn=node["urn"]
        )
        return ""

    async def _take(self, body: TakeObjects, tx: Tx) -> Objects:
        node, now = await self._node(tx, body), self._clock.now()
        if node["paused"]:
            return Objects()
        taken = await tx.rows(
            _TAKE, ticket=body.ticket, until=now + _LEASE, source=body.source, now=now, most=body.most
        )
        places, names = among([row["pid"] for row in taken])
        sql = f"SELECT pid, algorithm, checksum, blob FROM sysmeta WHERE pid IN ({places})"  # noqa: S608
        known = {row["pid"]: row for row in (await tx.rows(sql, **names) if taken else ())}
        sql = "SELECT body FROM errand WHERE urn = :urn AND done = 0 AND due <= :now ORDER BY due LIMIT :most"
        errands = await tx.rows(sql, urn=node["urn"], now=now, most=_ERRANDS)
        # nothing: what waits is in the hands of other nodes, and whoever came back for it at once would do so for ever
        due = await self._due(tx, node) if taken or errands else 0
        return Objects(
            # who had trouble comes last, so that it keeps no other waiting
            tuple(_wanted(row["pid"], known.get(row["pid"])) for row in sorted(taken, key=lambda row: row["due"])),
            tuple(msgspec.msgpack.decode(row["body"], type=Errand) for row in errands),
            limits_of(node),
            due,
        )

    async def _bring(self, body: Bring, blob: str | None, tx: Tx) -> Queued:
        node, now = await self._node(tx, body), self._clock.now()
        rows = await tx.rows(
            "UPDATE member_node SET batches = batches + 1 WHERE urn = :urn RETURNING batches", urn=node["urn"]
        )
        node = {**node, "batches": rows[0]["batches"]}
        places, names = among([one.pid for one in body.objects])
        sql = f"SELECT pid FROM offer WHERE source = :source AND ticket = :ticket AND pid IN ({places})"  # noqa: S608
        taken = {row["pid"] for row in await tx.rows(sql, source=body.source, ticket=body.ticket, **names)}
        brought = [one for one in body.objects if one.pid in taken]
        if brought:
            sibling = self._sibling(node["url"], doc_of(node))
            await self._store.settling.settle(tx, node, brought, blob, now, sibling=sibling)
        for ran in body.ran:
            await self._replication.ran(tx, ran, now)
        return Queued(await self._due(tx, node), limits=limits_of(node))


def _too_many(missing: int, all: int) -> bool:
    return missing > max(_FEW, all * _MOST_MISSING)


def _wanted(pid: str, row: Row | None) -> Wanted:
    if row is None:
        return Wanted(pid)
    return Wanted(pid, Checksum(row["checksum"], row["algorithm"]), row["blob"] is not None)


# What a harvest would bring: a node's list compared with what we know, and nothing written.

#: entries of a list that are looked at, and of those that would be brought the ones that are named
_MOST, _NAMED = 10 * PAGE, 20


class Previews:
    def __init__(self, db: Database, nodes: Nodes, client: Callable[[str], Awaitable[NodeClient]]) -> None:
        """`client` speaks to a node by its base URL."""
        self._db = db
        self._nodes = nodes
        self._client = client

    async def show(self, caller: Caller, ref: str, *, since: float | None = None) -> Preview:
        """From where the next harvest begins, unless it is said."""
        caller.need("admin")
        row = await self._nodes.find(caller, ref)
        node, start, counts, named = doc_of(row), 0, Counter[str](), list[str]()
        client = await self._client(row["url"] or node.base_url)
        client.version, client.sibling, client.gate.limits = node.version, node.type == "cn", limits_of(row)
        window = Window(begin(row["place"]) if since is None else self._nodes.past(since), None)
        while True:
            try:
                page = await client.list(window, start, PAGE)
            except Refused as error:
                raise Unavailable(f"{row['urn']}: {error}") from None
            known = await self._known(row["source"] or "", page.object_info)
            for one in page.object_info:
                word = _differs(one, known.get(one.identifier))
                counts[word] += 1
                if word != "unchanged" and len(named) < _NAMED:
                    named.append(one.identifier)
            start += len(page.object_info) + len(page.unread)
            if start >= min(page.total, _MOST) or not page.object_info or not client.slices:
                return Preview(max(start, page.total), start, dict(counts), named)

    async def _known(self, source: str, entries: tuple[ObjectInfo, ...]) -> dict[str, tuple[int, str]]:
        places, names = among([one.identifier for one in entries])
        mine = f"source = :source AND state <> 'gone' AND pid IN ({places})"
        sql = f"SELECT pid, modified, checksum FROM offer WHERE {mine}"  # noqa: S608
        rows = await self._db.read(sql, source=source, **names) if entries else []
        return {row["pid"]: (row["modified"], row["checksum"]) for row in rows}


def _differs(one: ObjectInfo, known: tuple[int, str] | None) -> str:
    if known is None:
        return "new"
    return "unchanged" if known == (one.date_sys_metadata_modified, one.checksum.spelled) else "changed"
