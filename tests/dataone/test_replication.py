"""Who is asked for copies, what they say, and what follows from it."""

from typing import Any

import pytest
from msgspec.structs import replace

from skep.dataone.asks import Errand, Ran
from skep.dataone.replication import AGAIN, AUDIT, targets
from skep.dataone.tables import Stored
from skep.dataone.types import (
    Checksum,
    Node,
    NodeReplicationPolicy,
    Replica,
    ReplicationPolicy,
    Service,
    Services,
)
from skep.dataone.xml import render
from skep.engines.db.base import Tx
from skep.errors import BadInput, Conflict, NotAllowed, NotFound
from skep.model.caller import SYSTEM, Caller
from skep.testing.offers import put_object
from tests.dataone.farm import Farm
from tests.dataone.objects import NODE, meta_of

DATA = b"1,2\n"


def node(name: str, **more: Any) -> Node:
    given: dict[str, Any] = {
        "identifier": f"urn:node:{name}",
        "name": name,
        "base_url": f"https://{name.lower()}.example/mn",
        "services": Services((Service("MNReplication", "v2"),)),
        "subject": (f"CN={name}",),
        "replicate": True,
        "synchronize": True,
    }
    return Node(**{**given, **more})


def stored(policy: ReplicationPolicy | None, *replicas: Replica) -> Stored:
    return Stored(meta_of("p", DATA, replication_policy=policy, replica=replicas), "DATA", False, None, 0, 0.0)


TWO = ReplicationPolicy(True, 2)
NODES = [node("A"), node("B"), node("C"), node("D")]
DONE = Replica(NODE, "completed", 1)
CASES: dict[str, tuple[Stored, list[Node], list[str]]] = {
    "no policy": (stored(None), NODES, []),
    "not allowed": (stored(ReplicationPolicy(False, 2)), NODES, []),
    "two": (stored(TWO, DONE), NODES, ["B", "C"]),
    "one is there": (stored(TWO, DONE, Replica("urn:node:C", "completed", 1)), NODES, ["B"]),
    "one has been asked": (stored(TWO, DONE, Replica("urn:node:B", "requested", 1)), NODES, ["C"]),
    "one has failed": (stored(TWO, DONE, Replica("urn:node:B", "failed", 1)), NODES, ["C", "D"]),
    "preferred first": (stored(replace(TWO, preferred_member_node=("urn:node:D",)), DONE), NODES, ["D", "B"]),
    "blocked": (stored(replace(TWO, blocked_member_node=("urn:node:B",)), DONE), NODES, ["C", "D"]),
    "too large": (stored(TWO, DONE), [node("B", node_replication_policy=NodeReplicationPolicy(3)), node("C")], ["C"]),
    "no room": (stored(TWO, DONE), [node("B", node_replication_policy=NodeReplicationPolicy(None, 3))], []),
    "other formats": (
        stored(TWO, DONE),
        [node("B", node_replication_policy=NodeReplicationPolicy(allowed_object_format=("x",)))],
        [],
    ),
    "other nodes": (
        stored(TWO, DONE),
        [node("B", node_replication_policy=NodeReplicationPolicy(allowed_node=("urn:node:Z",)))],
        [],
    ),
    "does not replicate": (stored(TWO, DONE), [node("B", replicate=False), node("C", state="down")], []),
}


@pytest.mark.parametrize("name", CASES)
def test_targets(name: str) -> None:
    one, nodes, expected = CASES[name]
    held = {replica.replica_member_node for replica in one.meta.replica}
    assert targets(one, nodes, held, ()) == [f"urn:node:{letter}" for letter in expected]


async def approve(farm: Farm, *nodes: Node) -> None:
    for one in nodes:
        await farm.nodes.register(SYSTEM, one)
        await farm.nodes.approve(SYSTEM, one.identifier)


async def errands(farm: Farm, urn: str) -> list[Errand]:
    import msgspec

    rows = await farm.db.read("SELECT body FROM errand WHERE urn = :urn AND done = 0 ORDER BY id", urn=urn)
    return [msgspec.msgpack.decode(row["body"], type=Errand) for row in rows]


async def ran(farm: Farm, *done: Ran) -> None:
    async def work(tx: Tx) -> None:
        for one in done:
            await farm.replication.ran(tx, one, farm.clock.now())

    await farm.db.write(work)


async def statuses(farm: Farm) -> dict[str, str]:
    one = await farm.store.get("p")
    assert one is not None
    return {replica.replica_member_node[-1]: replica.replication_status for replica in one.meta.replica}


async def test_a_copy_is_asked_for_made_and_audited(farm: Farm) -> None:
    await approve(farm, node("A"), node("B"), node("C"))
    await put_object(farm.store, meta_of("p", DATA, replication_policy=ReplicationPolicy(True, 1)), None, NODE)
    while await farm.replication.step():
        pass
    assert await statuses(farm) == {"A": "completed", "B": "requested"}
    (asked,) = await errands(farm, "urn:node:B")
    assert asked.path == "/replicate" and asked.parts["sourceNode"] == NODE.encode()
    await ran(farm, Ran(asked.id, 200))
    with pytest.raises(NotFound):
        await farm.replication.status(SYSTEM, "p", "urn:node:C", "completed")
    with pytest.raises(NotAllowed):
        await farm.replication.status(Caller("CN=C", frozenset({"write"})), "p", "urn:node:B", "completed")
    with pytest.raises(BadInput):
        await farm.replication.status(SYSTEM, "p", "urn:node:B", "completed", Checksum("00", "SHA-1"))
    assert await farm.replication.authorised("p", "CN=B") and not await farm.replication.authorised("p", "CN=C")
    await farm.replication.status(Caller("CN=B", frozenset({"write"})), "p", "urn:node:B", "completed")
    assert (await statuses(farm))["B"] == "completed"
    assert "p" in [pid for pid, _ in await farm.store.backlog("index", 10)]

    farm.clock.ahead += AUDIT + 1
    await farm.replication.step()
    (audit,) = await errands(farm, "urn:node:B")
    assert audit.path.startswith("/checksum/p?")
    await ran(farm, Ran(audit.id, 200, render(Checksum("ff", "SHA-1"))))
    assert (await statuses(farm))["B"] == "invalidated"
    while await farm.replication.step():
        pass
    assert (await statuses(farm))["C"] == "requested", "and another is asked"


async def test_who_says_nothing_is_asked_again_and_who_refuses_is_left(farm: Farm) -> None:
    await approve(farm, node("A"), node("B"), node("C"))
    await put_object(farm.store, meta_of("p", DATA, replication_policy=ReplicationPolicy(True, 1)), None, NODE)
    await farm.replication.step()
    for pause in AGAIN[1:4]:
        farm.clock.ahead += pause + 1
        await farm.replication.step()
    assert len(await errands(farm, "urn:node:B")) == 4
    await ran(farm, *[Ran(one.id, 413) for one in await errands(farm, "urn:node:B")])
    while await farm.replication.step():
        pass
    assert await statuses(farm) == {"A": "completed", "B": "failed", "C": "requested"}


async def test_a_new_policy_and_removal_need_the_right_serial(farm: Farm) -> None:
    await approve(farm, node("A"), node("B"))
    await put_object(farm.store, meta_of("p", DATA), None, NODE)
    await farm.replication.step()
    one = await farm.store.get("p")
    assert one is not None and one.meta.serial_version
    with pytest.raises(Conflict):
        await farm.replication.policy(SYSTEM, "p", ReplicationPolicy(True, 1), one.meta.serial_version + 5)
    with pytest.raises(NotAllowed):
        stranger = Caller("eve", frozenset({"write"}))
        await farm.replication.policy(stranger, "p", ReplicationPolicy(True, 1), one.meta.serial_version)
    await farm.replication.policy(SYSTEM, "p", ReplicationPolicy(True, 1), one.meta.serial_version)
    while await farm.replication.step():
        pass
    assert await statuses(farm) == {"A": "completed", "B": "requested"}
    one = await farm.store.get("p")
    assert one is not None and one.meta.serial_version
    await farm.replication.remove(SYSTEM, "p", "urn:node:B", one.meta.serial_version)
    assert await statuses(farm) == {"A": "completed"}
