"""Skep as a holder of copies: a Coordinating Node asks, the bytes are pulled and verified, and outlive their origin."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from skep.base.caller import SYSTEM, Caller
from skep.base.errors import BadInput, Conflict, NotAllowed, NotFound, TooLarge
from skep.client import Client
from skep.dataone.encoding import encode, parse, render
from skep.dataone.hosted_replicas import Copies, Pulls
from skep.dataone.testing import OPEN, Faults, MemberNode
from skep.dataone.types import (
    AccessPolicy,
    AccessRule,
    Checksum,
    ObjectList,
    ObjectLocationList,
    ReplicationPolicy,
    SystemMetadata,
)
from skep.sources.model import CredentialSpec
from skep.storage.database import Row
from skep.testing.server import free_port
from tests.dataone.cn_house import Served, served
from tests.dataone.objects import meta_of
from tests.house.running import RunningSkep
from tests.rooms.house import MovedClock
from tests.support.dataone_objects import put_object
from tests.support.gmn import OfficialClient, Refused

ORIGIN, HOLDER = "urn:node:Origin", "urn:node:mnSkep"
ONE = ReplicationPolicy(True, 1)
HIDDEN = AccessPolicy((AccessRule(("CN=bob",), ("read",)),))
FAST: dict[str, Any] = {"poll_min": 0.3, "poll_max": 0.6}
CN_SUBJECT = "CN=urn:node:cnSkep,DC=dataone,DC=org"
CN = Caller(CN_SUBJECT, frozenset({"read"}))
NOBODY = Caller("anonymous", frozenset({"read"}), known=False)


@pytest.fixture
def origin() -> Iterator[MemberNode]:
    with MemberNode(ORIGIN, token="trusted") as node:
        node.schedule = None
        yield node


# the whole of it, with real servers


def until(true: Callable[[], object], *servers: RunningSkep) -> None:
    end = time.monotonic() + 300  # a source that failed thrice rests for two minutes
    while not true():
        assert time.monotonic() < end, "".join(one.tail() for one in servers)
        time.sleep(0.2)


class Pair:
    """A Coordinating Node and a holder of copies, which know each other."""

    def __init__(self, cn: RunningSkep, holder: RunningSkep) -> None:
        self.cn, self.holder = cn, holder
        with Client(cn.url, cn.token) as one, Client(holder.url, holder.token) as other:
            shown = other.tokens.create(CN_SUBJECT, ("read",)).token
            one.credentials.put("holder", holder.url.partition("//")[2], shown, public=True)
            shown = one.tokens.create(f"CN={HOLDER},DC=dataone,DC=org", ("read",)).token
            other.credentials.put("cn", cn.url.partition("//")[2], shown, public=True)

    def add(self, url: str) -> None:
        with Client(self.cn.url, self.cn.token) as cn:
            cn.sources.add(url, kind="dataone")

    def copies(self, pid: str) -> dict[str, str]:
        """As the Coordinating Node knows them."""
        with Client(self.cn.url, self.cn.token) as cn, suppress(NotFound):
            return cn.dataone.explain(pid).replicas
        return {}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    # (at the same addresses after a kill)
    places = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    with (
        RunningSkep(tmp_path / "cn" / "data", listen=places[0], **FAST) as cn,
        RunningSkep(tmp_path / "mn" / "data", listen=places[1], dataone_copies_for=f"{cn.url}/cn", **FAST) as holder,
    ):
        yield Pair(cn, holder)


def test_a_copy_outlives_its_origin(pair: Pair, origin: MemberNode) -> None:
    body = b"1,2,3\n" * 50_000
    meta = origin.put("data/1 é".replace(" ", "+"), body, replication_policy=ONE)
    origin.put("secret", b"4,5,6", replication_policy=ONE, access_policy=HIDDEN)
    pid = meta.identifier
    origin.faults = Faults(delay=2.0)
    with Client(pair.cn.url, pair.cn.token) as cn:
        cn.credentials.put("origin", origin.base.split("/")[2], "trusted", public=True)
    pair.add(origin.base)
    until(lambda: pair.copies("secret"), pair.cn)
    pair.add(f"{pair.holder.url}/mn")
    # both requests have come, and at least the second copy is on its way
    until(lambda: len({one.path for one in origin.asked("/replica/")}) == 2, pair.cn, pair.holder)
    pair.holder.kill()
    origin.faults = Faults()
    pair.holder.start()
    for one in (pid, "secret"):
        until(lambda one=one: pair.copies(one).get(HOLDER) == "completed", pair.cn, pair.holder)  # type: ignore[misc]

    origin.stop()
    with OfficialClient(f"{pair.cn.url}/cn") as public:
        places = parse(ObjectLocationList, public.resolve(pid)).object_location
        assert [one.node_identifier for one in places] == [ORIGIN, HOLDER]
        assert places[1].url == f"{pair.holder.url}/mn/v2/object/{encode(pid)}"
    with OfficialClient(f"{pair.holder.url}/mn", member=True) as mn:
        assert mn.ping() is True and HOLDER.encode() in mn.getCapabilities()
        assert mn.get(pid) == mn.getReplica(pid) == body
        assert parse(SystemMetadata, mn.getSystemMetadata(pid)).checksum == meta.checksum
        assert parse(Checksum, mn.getChecksum(pid)) == meta.checksum
        assert mn.describe(pid)["dataone-checksum"] == f"SHA-1,{meta.checksum.value}"
        listed = parse(ObjectList, mn.listObjects(start=0, count=10))
        assert [one.identifier for one in listed.object_info] == [pid], "what is private is not listed"
        for call in ("get", "getSystemMetadata", "describe"):
            with pytest.raises(Refused, match="NotAuthorized"):
                mn.call(call, "secret")
            with pytest.raises(Refused, match="NotFound"):
                mn.call(call, "absent")
        with pytest.raises(Refused, match="NotAuthorized"):
            mn.replicate({"xml": render(meta).decode()}, ORIGIN)

    origin.start()
    origin.change(pid, access_policy=HIDDEN)
    with OfficialClient(f"{pair.holder.url}/mn", member=True) as mn:

        def hidden() -> bool:
            try:
                return not mn.get(pid)
            except Refused as refused:
                return refused.name == "NotAuthorized"

        until(hidden, pair.cn, pair.holder)
    with closing(sqlite3.connect(pair.holder.data / "skep.db")) as db:
        assert db.execute("SELECT count(*) FROM dataone_copy WHERE state = 'held'").fetchone() == (2,)
    assert not list((pair.holder.data / "copies").iterdir())


# what is refused, and what goes wrong


class House:
    def __init__(self, cn: Served, holder: Served, folder: Path, origin: MemberNode) -> None:
        assert holder.core.dataone.copies is not None
        self.cn = cn.core.dataone
        self.copies: Copies = holder.core.dataone.copies
        self.pulls = Pulls(self.copies, folder)
        self.origin = origin
        folder.mkdir()

    async def wanted(self, pid: str, body: bytes, **fields: Any) -> SystemMetadata:
        """An object of the origin, of which the Coordinating Node has asked us for a copy."""
        meta = self.origin.put(pid, body, **fields)
        await put_object(self.cn.store, meta, None, ORIGIN)
        sql = (
            "INSERT INTO replica (pid, node, status, verified, tries) VALUES (:pid, :node, 'requested', 0, 1) "
            "ON CONFLICT (pid, node) DO UPDATE SET status = excluded.status"
        )
        await self.cn.store.db.write(lambda tx: tx.rows(sql, pid=pid, node=HOLDER))
        await self.copies.request(CN, meta, ORIGIN)
        return meta

    async def steps(self) -> None:
        while await self.pulls.step():
            pass

    async def told(self, pid: str) -> str:
        rows = await self.cn.store.db.read(
            "SELECT status FROM replica WHERE pid = :pid AND node = :n", pid=pid, n=HOLDER
        )
        return str(rows[0]["status"])

    async def states(self) -> list[str]:
        return [row["state"] for row in await self.copies.store.db.read("SELECT state FROM dataone_copy ORDER BY pid")]


@pytest.fixture
async def house(tmp_path: Path, origin: MemberNode) -> AsyncIterator[House]:
    async with served(tmp_path / "cn") as cn:
        settings = {"dataone_copies_for": f"{cn.base}/", "dataone_copies_bytes": 1_000}
        async with served(tmp_path / "mn", **settings) as holder:
            found = House(cn, holder, tmp_path / "copies", origin)
            for node in (origin.document(), found.copies.node()):
                await cn.core.dataone.nodes.register(SYSTEM, node)
                await cn.core.dataone.nodes.approve(SYSTEM, node.identifier)
            shown = await cn.token(found.copies.node().subject[0])
            await holder.core.credentials.put(
                SYSTEM, CredentialSpec("cn", cn.url.partition("//")[2], public=True), shown
            )
            yield found


async def test_only_the_coordinating_node_may_ask_and_only_for_what_there_is_room(house: House) -> None:
    meta = meta_of("p", b"x" * 600)
    for caller in (
        NOBODY,
        Caller("CN=eve", frozenset({"read", "write"})),
        Caller(CN_SUBJECT, frozenset(), known=False),
    ):
        with pytest.raises(NotAllowed):
            await house.copies.request(caller, meta, ORIGIN)
        with pytest.raises(NotAllowed):
            await house.copies.changed(caller, "p")
    for source in ("urn:node:Elsewhere", HOLDER, "urn:node:cnSkep", "http://127.0.0.1/"):
        with pytest.raises(BadInput, match="no other Member Node"):
            await house.copies.request(CN, meta, source)
    with pytest.raises(BadInput, match="algorithm"):
        await house.copies.request(CN, replace(meta, checksum=Checksum("aa", "rot13")), ORIGIN)
    await house.copies.request(CN, meta, ORIGIN)
    await house.copies.request(CN, meta, ORIGIN)
    assert await house.states() == ["wanted"]
    with pytest.raises(TooLarge):
        await house.copies.request(CN, meta_of("q", b"y" * 600), ORIGIN)
    with pytest.raises(Conflict):
        await house.copies.request(CN, meta_of("p", b"other"), ORIGIN)
    with pytest.raises(NotFound):
        await house.copies.changed(CN, "q")


@pytest.mark.parametrize("given", [b"a,c", b"a", b"a,b and much more"])
async def test_what_is_not_as_promised_is_not_held(house: House, given: bytes) -> None:
    house.origin.faults = Faults(bytes_of={"p": given})
    await house.wanted("p", b"a,b")
    await house.steps()
    assert (await house.told("p"), await house.states()) == ("failed", [])
    house.origin.faults = Faults()
    await house.wanted("p", b"a,b")
    await house.steps()
    assert (await house.told("p"), await house.states()) == ("completed", ["held"])
    store, one = house.copies.store, await house.copies.get(NOBODY, "p")
    await store.db.write(lambda tx: tx.rows("UPDATE pack SET at = 0"))
    assert await store.packs.sweep() == 0
    assert one.blob and await store.keeps(one.blob)
    assert b"".join([chunk async for chunk in store.content(one)]) == b"a,b"


async def test_an_origin_that_does_not_know_us_gives_what_is_public(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skep.dataone.hosted_replicas.pause", lambda tries, chance: 3_600.0)
    house.origin.faults = Faults(html=500, html_at="/replica/")
    for pid, body, policy in (("p", b"a,b", OPEN), ("private", b"c,d", HIDDEN), ("void", b"", HIDDEN)):
        await house.wanted(pid, body, access_policy=policy)
    await house.steps()
    assert await house.states() == ["held", "wanted", "held"]
    (row,) = await house.copies.store.db.read("SELECT due, tries FROM dataone_copy WHERE state = 'wanted'")
    assert row["tries"] == 1 and row["due"] > time.time(), "it may come to know us"


async def due(house: House) -> float:
    (row,) = await house.copies.store.db.read("SELECT due FROM dataone_copy")
    return float(row["due"])


async def test_what_is_in_hand_is_taken_by_nobody_else(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes, and whoever asks for it again meanwhile."""
    lease, begun, go, pull, clock = 1.0, asyncio.Event(), asyncio.Event(), house.pulls._pull, MovedClock()

    async def slow(row: Row) -> None:
        begun.set()
        await go.wait()
        await pull(row)

    monkeypatch.setattr("skep.dataone.hosted_replicas._LEASE", lease)
    monkeypatch.setattr(house.pulls, "_pull", slow)
    meta = await house.wanted("p", b"a,b")
    clock.time = time.time() + 1
    monkeypatch.setattr(house.pulls, "_clock", clock)
    until = [clock.time]
    first = asyncio.create_task(house.pulls.step())
    await begun.wait()
    await house.copies.request(CN, meta, ORIGIN)
    await house.copies.changed(CN, "p")
    async with asyncio.timeout(60):
        while until[-1] < until[0] + 3 * lease:
            await asyncio.sleep(0.02)
            if (now := await due(house)) > until[-1]:
                until.append(now)
                assert not await house.pulls.step()
                clock.time += lease / 2
    go.set()
    await first
    await house.steps()
    assert len(house.origin.asked("/replica/")) == 1
    (row,) = await house.copies.store.db.read("SELECT state, told, dirty, due FROM dataone_copy")
    assert (row["state"], row["told"], row["dirty"], row["due"]) == ("held", 1, 0, None)


async def test_what_the_coordinating_node_did_not_hear_is_told_again(house: House) -> None:
    await house.wanted("p", b"a,b")
    assert await house.pulls.step()
    cn, house.copies.cn = house.copies.cn, "http://127.0.0.1:9/cn"
    await house.steps()
    assert (await house.told("p"), await house.states()) == ("requested", ["held"])
    house.copies.cn = cn
    await house.copies.store.db.write(lambda tx: tx.rows("UPDATE dataone_copy SET due = 0"))
    await house.steps()
    assert await house.told("p") == "completed"
    assert (await house.copies.store.db.read("SELECT due FROM dataone_copy"))[0]["due"] is None


async def test_private_copies_are_for_who_may_have_them(house: House) -> None:
    await house.wanted("p", b"a,b", access_policy=HIDDEN)
    await house.steps()
    for caller in (NOBODY, Caller("CN=eve", frozenset({"read"}))):
        with pytest.raises(NotAllowed):
            await house.copies.replica(caller, "p")
        assert (await house.copies.listing(caller)).total == 0
    for caller in (CN, Caller("CN=bob", frozenset({"read"}))):
        assert (await house.copies.get(caller, "p")).meta.identifier == "p"
    assert (await house.copies.listing(CN)).total == 1
    # another node that is to have a copy, by the Coordinating Node's word
    other = Caller(house.origin.document().subject[0], frozenset({"read"}))
    sql = "UPDATE replica SET status = 'requested' WHERE node = :node"
    await house.cn.store.db.write(lambda tx: tx.rows(sql, node=ORIGIN))
    assert (await house.copies.replica(other, "p")).meta.identifier == "p"


@pytest.mark.parametrize("told", [True, False])
async def test_what_becomes_private_is_hidden_here_too(house: House, told: bool) -> None:
    """Also where the Coordinating Node does not even tell us its system metadata any more."""
    await house.wanted("p", b"a,b")
    await house.steps()
    assert (await house.copies.listing(NOBODY)).total == 1
    await put_object(house.cn.store, house.origin.change("p", access_policy=HIDDEN), None, ORIGIN)
    if not told:
        await house.cn.store.db.write(lambda tx: tx.rows("DELETE FROM replica WHERE node = :node", node=HOLDER))
    await house.copies.changed(CN, "p")
    await house.steps()
    assert (await house.copies.listing(NOBODY)).total == 0
    with pytest.raises(NotAllowed):
        await house.copies.get(NOBODY, "p")
    assert ((await house.copies.get(CN, "p")).meta.access_policy == HIDDEN) is told
