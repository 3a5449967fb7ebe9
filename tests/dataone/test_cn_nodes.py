"""What nodes and clients tell the Coordinating Node, over real HTTP: reservations, registrations, signals, copies."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from skep.base.caller import SYSTEM
from skep.base.errors import BadInput
from skep.dataone.api import Limits, NodeEdit
from skep.dataone.encoding import encode, parse, render
from skep.dataone.testing import MemberNode
from skep.dataone.types import (
    D1Error,
    Node,
    NodeList,
    ObjectLocationList,
    Property,
)
from skep.testing.documents import eml
from tests.support.gmn import Refused

from .cn_house import Served
from .objects import NODE


@pytest.fixture
def node() -> Iterator[MemberNode]:
    with MemberNode(NODE) as running:
        yield running


async def test_resolve_leads_to_nodes(cn: Served, node: MemberNode) -> None:
    await cn.approve(node)
    await cn.put("a/ü", eml("Snow"))
    async with cn.client() as client:
        answer = await client.get(f"/cn/v2/resolve/{encode('a/ü')}")
    assert answer.status_code == 303
    assert answer.headers["location"] == f"{node.base}/v2/object/{encode('a/ü')}"
    places = parse(ObjectLocationList, answer.content).object_location
    assert [place.node_identifier for place in places] == [NODE, cn.core.dataone.store.cn]
    sql = "UPDATE replica SET status = 'invalidated' WHERE node = :node"
    await cn.core.dataone.store.db.write(lambda tx: tx.rows(sql, node=NODE))
    places = parse(ObjectLocationList, await cn.official("resolve", "a/ü")).object_location
    assert [place.node_identifier for place in places] == [cn.core.dataone.store.cn], "who lost it has it not"


async def test_reservations_in_both_spellings(cn: Served) -> None:
    bob, eve = await cn.token("bob"), await cn.token("eve")
    assert b"a/b" in await cn.official("reserveIdentifier", "a/b", token=bob)
    with pytest.raises(Refused) as refused:
        await cn.official("reserveIdentifier", "a/b", token=eve)
    assert refused.value.name == "IdentifierNotUnique"
    assert await cn.official("hasReservation", "a/b", "bob") is True
    assert await cn.official("hasReservation", "a/b", "eve") is False
    matt = "CN=Matt Jones A729,O=Google,C=US,DC=cilogon,DC=org"
    await cn.official("reserveIdentifier", "my/new_pid", token=await cn.token(matt))
    assert await cn.official("hasReservation", "my/new_pid", matt) is True
    assert await cn.official("hasReservation", "my/new_pid", "CN=Matt Jones") is False
    answer = await cn.call("POST", "/cn/v2/reserve", {"pid": "c"}, bob)
    assert answer.status_code == 200
    async with cn.client() as client:
        assert (await client.get("/cn/v2/reserve/c?subject=bob")).status_code == 200
        assert (await client.get("/cn/v2/reserve/c?subject=eve")).status_code == 404
    assert (await cn.call("POST", "/cn/v2/reserve", {"pid": "d"}, "")).status_code == 401


async def test_what_is_there_already_is_reserved_by_nobody(cn: Served) -> None:
    """Else its owner could not change it any more."""
    await cn.put("a", eml("Snow"))
    with pytest.raises(Refused, match="IdentifierNotUnique"):
        await cn.official("reserveIdentifier", "a", token=await cn.token("CN=eve"))
    assert await cn.core.dataone.store.reserved_for("a") is None


async def test_nodes_register_and_wait_for_approval(cn: Served, node: MemberNode) -> None:
    subject = node.document().subject[0]
    own, other = await cn.token(subject, "read", "write"), await cn.token("CN=other", "read", "write")
    document = {"xml": render(node.document()).decode()}
    await cn.official("register", document, token=own)
    assert NODE not in {one.identifier for one in parse(NodeList, await cn.official("listNodes")).node}
    with pytest.raises(Refused) as refused:
        await cn.official("register", document, token=own)
    assert refused.value.name == "IdentifierNotUnique"
    with pytest.raises(Refused) as refused:
        await cn.official("updateNodeCapabilities", NODE, document, token=other)
    assert refused.value.name == "NotAuthorized"
    await cn.official("updateNodeCapabilities", NODE, document, token=own)
    await cn.core.dataone.nodes.approve(SYSTEM, NODE)
    assert NODE in {one.identifier for one in parse(NodeList, await cn.official("listNodes")).node}
    async with cn.client() as client:
        assert parse(Node, (await client.get(f"/cn/v2/node/{NODE}")).content).base_url == node.base


async def test_no_node_makes_itself_a_coordinating_one(cn: Served, node: MemberNode) -> None:
    """Whoever trusts us would believe it."""
    token = await cn.token(node.document().subject[0], "read", "write")
    grand: dict[str, str | bytes] = {"node": render(replace(node.document(), type="cn"))}
    assert (await cn.call("POST", "/cn/v2/node", grand, token)).status_code == 400
    await cn.approve(node)
    assert (await cn.call("PUT", f"/cn/v2/node/{NODE}", grand, token)).status_code == 400
    plain: dict[str, str | bytes] = {"node": render(node.document())}
    assert (await cn.call("PUT", f"/cn/v2/node/{NODE}", plain, token)).status_code == 200


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("connections", "0"),
        ("connections", "1000000"),
        ("rate", "nan"),
        ("rate", "-1"),
        ("rate", "1e-9"),
        ("bytes", "1" + "0" * 30),
    ],
)
async def test_limits_that_make_no_sense_are_not_taken_over(cn: Served, node: MemberNode, key: str, value: str) -> None:
    given = replace(node.document(), properties=(Property(value, key), Property("7", "unheard-of")))
    await cn.core.dataone.nodes.register(SYSTEM, given)
    (shown,) = await cn.core.dataone.nodes.list(SYSTEM)
    assert shown.limits == Limits()
    with pytest.raises(BadInput, match="limits of a node"):
        await cn.core.dataone.nodes.set(SYSTEM, NODE, NodeEdit(**{key: float(value)}))  # type: ignore[arg-type]


async def test_signals_and_replicas_are_for_nodes(cn: Served, node: MemberNode) -> None:
    await cn.approve(node)
    await cn.put("a", eml("Snow"))
    own, other = await cn.token(node.document().subject[0]), await cn.token("CN=other")
    assert await cn.official("synchronize", "a", token=own) is True
    with pytest.raises(Refused) as refused:
        await cn.official("synchronize", "a", token=other)
    with pytest.raises(Refused, match="speaks for no node"):
        await cn.official("synchronize", "unknown", token=other)
    assert refused.value.name == "NotAuthorized"
    with pytest.raises(Refused) as refused:
        await cn.official("setReplicationStatus", "a", NODE, "completed", token=other)
    assert refused.value.name in ("NotAuthorized", "NotFound")
    async with cn.client() as client:
        answer = await client.get("/cn/v2/replicaAuthorizations/a?targetNodeSubject=CN%3Dx")
    assert answer.status_code == 401
    answer = await cn.call(
        "PUT", "/cn/v2/replicaPolicies/a", {"policy": b"<p/>", "serialVersion": "1"}, await cn.token("r", "admin")
    )
    assert answer.status_code == 400
    policy = b'<d:replicationPolicy xmlns:d="http://ns.dataone.org/service/types/v1" replicationAllowed="false"/>'
    answer = await cn.call(
        "PUT", "/cn/v2/replicaPolicies/a", {"policy": policy, "serialVersion": "99"}, await cn.token("r", "admin")
    )
    assert parse(D1Error, answer.content).name == "VersionMismatch"
