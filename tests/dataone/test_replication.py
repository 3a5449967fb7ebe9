"""Who is asked for copies, what they say, and what follows from it."""

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from skep.base.caller import SYSTEM, Caller
from skep.base.errors import BadInput, Conflict, NotAllowed, NotFound
from skep.dataone.api import NodeEdit
from skep.dataone.encoding import render
from skep.dataone.replication import AGAIN, MOST_OPEN, SILENT, Load, Plan, Replication, plan
from skep.dataone.rpc import Errand, Ran
from skep.dataone.tables import AUDIT
from skep.dataone.testing import MemberNode
from skep.dataone.types import (
    Checksum,
    Node,
    NodeReplicationPolicy,
    Replica,
    ReplicaStatus,
    ReplicationPolicy,
    Service,
    Services,
    SystemMetadata,
)
from skep.storage.database import Tx
from tests.dataone.farm import Farm
from tests.dataone.objects import NODE, meta_of
from tests.support.dataone_objects import put_object

DATA = b"1,2\n"


def target(name: str, **more: Any) -> Node:
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


def wants(policy: ReplicationPolicy | None, *replicas: Replica, **more: Any) -> SystemMetadata:
    return meta_of("p", DATA, replication_policy=policy, replica=replicas, **more)


def limited(name: str, *policy: Any, **more: Any) -> Node:
    return target(name, node_replication_policy=NodeReplicationPolicy(*policy, **more))


def at(name: str, status: ReplicaStatus) -> Replica:
    return Replica(f"urn:node:{name}", status, 1)


TWO = ReplicationPolicy(True, 2)
NODES = [target("A"), target("B"), target("C"), target("D")]
DONE = Replica(NODE, "completed", 1)
PREFERS_D = replace(TWO, preferred_member_node=("urn:node:D",))
FULL = Load(open=MOST_OPEN)
BAD = Load(made=3, failed=1)
#: what the object says, who there is, who is asked, how many copies lack then, and is that for want of time
Case = tuple[SystemMetadata, list[Node], str, int, bool]
CASES: dict[str, Case] = {
    "no policy": (wants(None), NODES, "", 0, False),
    "not allowed": (wants(ReplicationPolicy(False, 2)), NODES, "", 0, False),
    "archived": (wants(TWO, DONE, archived=True), NODES, "", 0, False),
    "two": (wants(TWO, DONE), NODES, "BC", 0, False),
    "one is there": (wants(TWO, DONE, at("C", "completed")), NODES, "B", 0, False),
    "one has been asked": (wants(TWO, DONE, at("B", "requested")), NODES, "C", 0, False),
    "one has failed": (wants(TWO, DONE, at("B", "failed")), NODES, "CD", 0, False),
    "more than wanted": (
        wants(ReplicationPolicy(True, 1), DONE, at("B", "completed"), at("C", "completed")),
        NODES,
        "",
        0,
        False,
    ),
    "a holder that is no node any more": (wants(TWO, DONE, at("Z", "completed")), NODES, "BC", 0, False),
    "preferred first": (wants(PREFERS_D, DONE), NODES, "DB", 0, False),
    "blocked": (wants(replace(TWO, blocked_member_node=("urn:node:B",)), DONE), NODES, "CD", 0, False),
    "blocked though preferred": (
        wants(replace(PREFERS_D, blocked_member_node=("urn:node:D",)), DONE),
        NODES,
        "BC",
        0,
        False,
    ),
    "too large": (wants(TWO, DONE), [limited("B", 3), target("C")], "C", 1, False),
    "no room": (wants(TWO, DONE), [limited("B", None, 3)], "", 2, False),
    "other formats": (wants(TWO, DONE), [limited("B", allowed_object_format=("x",))], "", 2, False),
    "other nodes": (wants(TWO, DONE), [limited("B", allowed_node=("urn:node:Z",))], "", 2, False),
    "the right node": (wants(TWO, DONE), [limited("B", allowed_node=(NODE,))], "B", 1, False),
    "does not replicate": (wants(TWO, DONE), [target("B", replicate=False), target("C", state="down")], "", 2, False),
    "has no such service": (
        wants(TWO, DONE),
        [target("B", services=Services())],
        "",
        2,
        False,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_plan(name: str) -> None:
    meta, nodes, expected, lacking, busy = CASES[name]
    held = {replica.replica_member_node for replica in meta.replica}
    assert plan(meta, nodes, held, {}) == Plan([f"urn:node:{letter}" for letter in expected], lacking, busy)


@pytest.mark.parametrize(
    ("loads", "policy", "expected", "lacking", "busy"),
    [
        ({"B": FULL}, TWO, "CD", 0, False),
        ({"B": FULL, "C": FULL}, TWO, "D", 1, True),
        ({"B": Load(open=2), "C": Load(open=1)}, TWO, "DC", 0, False),
        ({"B": BAD}, TWO, "CD", 0, False),
        ({"B": BAD, "C": Load(made=4, failed=1), "D": BAD}, TWO, "CB", 0, False),
        ({"D": BAD}, PREFERS_D, "BC", 0, False),
        ({"D": Load(open=5)}, PREFERS_D, "DB", 0, False),
    ],
)
def test_plan_by_what_nodes_have_to_do(
    loads: dict[str, Load], policy: ReplicationPolicy, expected: str, lacking: int, busy: bool
) -> None:
    known = {f"urn:node:{name}": load for name, load in loads.items()}
    found = plan(wants(policy, DONE), NODES, {NODE}, known)
    assert found == Plan([f"urn:node:{letter}" for letter in expected], lacking, busy)


@pytest.mark.parametrize(("held", "fits"), [(0, True), (6, True), (7, False), (10, False)])
def test_what_a_node_holds_already_takes_its_room(held: int, fits: bool) -> None:
    found = plan(wants(TWO, DONE), [limited("B", None, 10)], (), {"urn:node:B": Load(bytes=held)})
    assert (found.ask == ["urn:node:B"]) is fits


async def approve(farm: Farm, *nodes: Node) -> None:
    for one in nodes:
        await farm.nodes.register(SYSTEM, one)
        await farm.nodes.approve(SYSTEM, one.identifier)


async def errands(farm: Farm, urn: str) -> list[Errand]:
    rows = await farm.db.read("SELECT body FROM errand WHERE urn = :urn AND done = 0 ORDER BY id", urn=urn)
    return [msgspec.msgpack.decode(row["body"], type=Errand) for row in rows]


async def ran(farm: Farm, *done: Ran) -> None:
    async def work(tx: Tx) -> None:
        for one in done:
            await farm.replication.ran(tx, one, farm.clock.now())

    await farm.db.write(work)


async def statuses(farm: Farm, pid: str = "p") -> dict[str, str]:
    one = await farm.store.get(pid, deleted=True)
    assert one is not None
    return {replica.replica_member_node[-1]: replica.replication_status for replica in one.meta.replica}


async def all_steps(farm: Farm) -> None:
    while await farm.replication.step():
        pass


async def wanted(farm: Farm, pid: str = "p", copies: int = 1, **more: Any) -> None:
    given = {"replication_policy": ReplicationPolicy(True, copies), **more}
    await put_object(farm.store, meta_of(pid, DATA, **given), None, NODE)
    await all_steps(farm)


def said(good: bool) -> bytes:
    return render(meta_of("p", DATA).checksum if good else Checksum("ff", "SHA-1"))


async def test_a_copy_is_asked_for_made_and_audited(farm: Farm) -> None:
    await approve(farm, target("A"), target("B"), target("C"))
    await wanted(farm)
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
    before = await farm.store.get("p")
    await farm.replication.status(SYSTEM, "p", "urn:node:B", "completed")
    assert await farm.store.get("p") == before, "what is said again changes nothing"
    assert "p" in [pid for pid, _ in await farm.store.backlog("index", 10)]

    for good, status in ((True, "completed"), (False, "invalidated")):
        await all_steps(farm)
        (audit,) = await errands(farm, "urn:node:B")
        assert (audit.path, audit.hash, audit.most) == ("/object/p", "SHA-1", len(DATA))
        await ran(farm, Ran(audit.id, 200, said(good)))
        assert (await statuses(farm))["B"] == status
        await all_steps(farm)
        assert await errands(farm, "urn:node:B") == [], "not again before it is time"
        farm.clock.ahead += AUDIT + 1
    assert (await statuses(farm))["C"] == "requested", "and another is asked"
    with pytest.raises(NotFound):
        await farm.replication.status(SYSTEM, "p", "urn:node:B", "completed")


async def test_a_large_copy_is_not_read_to_check_it(farm: Farm) -> None:
    await approve(farm, target("A"), target("B"))
    await wanted(farm, size=20_000_000)
    await farm.replication.status(SYSTEM, "p", "urn:node:B", "completed")
    await all_steps(farm)
    assert {one.path for one in await errands(farm, "urn:node:B")} == {
        "/replicate",
        "/checksum/p?checksumAlgorithm=SHA-1",
    }


async def test_who_says_nothing_is_asked_again_and_given_up(farm: Farm) -> None:
    await approve(farm, target("A"), target("B"), target("C"))
    await wanted(farm)
    for pause in AGAIN[1:SILENT]:
        assert await statuses(farm) == {"A": "completed", "B": "requested"}
        farm.clock.ahead += pause + 1
        await all_steps(farm)
        assert len(await errands(farm, "urn:node:B")) == 1, "what was not sent yet is sent once"
    farm.clock.ahead += AGAIN[SILENT] + 1
    await all_steps(farm)
    assert await statuses(farm) == {"A": "completed", "B": "failed", "C": "requested"}
    await farm.replication.status(SYSTEM, "p", "urn:node:B", "completed")
    assert (await statuses(farm))["B"] == "completed", "better late than never"


async def test_who_says_that_it_was_asked_is_asked_again_as_who_says_nothing(farm: Farm) -> None:
    await approve(farm, target("A"), target("B"))
    await wanted(farm)
    for status in ("queued", "requested"):
        await farm.replication.status(SYSTEM, "p", "urn:node:B", status)
    rows = await farm.db.read("SELECT status, due FROM replica WHERE node = 'urn:node:B'")
    assert rows[0]["status"] == "requested" and rows[0]["due"] is not None


async def test_what_is_archived_is_not_asked_for_again(farm: Farm) -> None:
    await approve(farm, target("A"), target("B"))
    await wanted(farm)
    await wanted(farm, archived=True, date_sys_metadata_modified=2_000)
    farm.clock.ahead += AGAIN[1] + 1
    await all_steps(farm)
    assert await statuses(farm) == {"A": "completed", "B": "failed"}


async def test_who_refuses_is_asked_after_all_others_and_after_a_while(farm: Farm) -> None:
    await approve(farm, target("A"), target("B"), target("C"))
    await wanted(farm)
    await ran(farm, *[Ran(one.id, 413) for one in await errands(farm, "urn:node:B")])
    await all_steps(farm)
    assert await statuses(farm) == {"A": "completed", "B": "failed", "C": "requested"}
    farm.clock.ahead += 61
    await wanted(farm, "q")
    assert (await statuses(farm, "q"))["C"] == "requested", "B has just failed"
    await farm.replication.status(SYSTEM, "p", "urn:node:C", "failed")
    await all_steps(farm)
    assert "requested" not in (await statuses(farm)).values(), "both rest"
    farm.clock.ahead += 3_601
    await all_steps(farm)
    assert "requested" in (await statuses(farm)).values()


async def test_an_answer_that_comes_late_undoes_nothing(farm: Farm) -> None:
    await approve(farm, target("A"), target("B"))
    await wanted(farm)
    await farm.replication.status(SYSTEM, "p", "urn:node:B", "completed")
    await ran(farm, Ran("replicate:urn:node:B:p", 409))
    assert (await statuses(farm))["B"] == "completed"


async def test_no_node_gets_more_than_it_can_bear_and_the_rest_waits(farm: Farm) -> None:
    room = NodeReplicationPolicy(space_allocated=len(DATA) * (MOST_OPEN + 1))
    await approve(farm, target("A"), target("B", node_replication_policy=room))
    for n in range(MOST_OPEN + 3):
        await wanted(farm, f"p{n:02}")
    assert len(await errands(farm, "urn:node:B")) == MOST_OPEN
    for n in range(MOST_OPEN):
        await farm.replication.status(SYSTEM, f"p{n:02}", "urn:node:B", "completed")
    farm.clock.ahead += 61
    await all_steps(farm)
    held = [pid for n in range(MOST_OPEN + 3) if "B" in await statuses(farm, pid := f"p{n:02}")]
    assert len(held) == MOST_OPEN + 1, "one more fits, then it is full"
    await approve(farm, target("C"))
    farm.clock.ahead += 3_601
    await all_steps(farm)
    lacking = [n for n in range(MOST_OPEN + 3) if not {"B", "C"} & (await statuses(farm, f"p{n:02}")).keys()]
    assert lacking == []


async def test_every_change_leads_to_an_index_and_a_replication_task(farm: Farm, node: MemberNode) -> None:
    async def tasks() -> set[tuple[str, str]]:
        """Done with then."""
        found = {work: await farm.store.backlog(work, 100) for work in ("index", "replicate")}
        for work, waiting in found.items():
            await farm.store.worked(work, waiting)
        return {(work, pid) for work, waiting in found.items() for pid, _ in waiting}

    both = {("index", "p"), ("replicate", "p")}
    node.put("p", DATA)
    held = await farm.add(node)
    await farm.visit(held)
    assert await tasks() == both, "insert"
    await farm.visit(held)
    assert await tasks() == set(), "nothing"
    node.change("p", replication_policy=ReplicationPolicy(True, 1))
    await farm.visit(held)
    assert await tasks() == both, "update"
    node.archive("p")
    await farm.visit(held)
    assert await tasks() == both, "archive"
    node.delete("p")
    await farm.nodes.reconcile(SYSTEM, node.id)
    await farm.visit(held)
    assert await farm.store.get("p") is None and await tasks() == both, "delete"


async def test_two_processes_do_not_ask_for_the_same_copy_twice(farm: Farm) -> None:
    await approve(farm, *(target(name) for name in "ABCDE"))
    await put_object(farm.store, meta_of("p", DATA, replication_policy=TWO), None, NODE)
    other = Replication(farm.db, farm.clock, farm.store, farm.nodes)
    await asyncio.gather(farm.replication.step(), other.step())
    await all_steps(farm)
    assert list((await statuses(farm)).values()).count("requested") == 2


async def test_a_paused_node_is_asked_for_nothing_and_keeps_its_copies(farm: Farm) -> None:
    await approve(farm, *(target(name) for name in "ABC"))
    await wanted(farm)
    await farm.replication.status(SYSTEM, "p", "urn:node:B", "completed")
    await farm.nodes.set(SYSTEM, "urn:node:B", NodeEdit(paused=True))
    await farm.store.again("replicate", ["p"])
    await wanted(farm, "q")
    assert await statuses(farm) == {"A": "completed", "B": "completed"}
    assert await statuses(farm, "q") == {"A": "completed", "C": "requested"}


async def test_what_is_deleted_is_asked_for_no_more(farm: Farm) -> None:
    await approve(farm, target("A"), target("B"))
    await wanted(farm)
    await farm.db.write(lambda tx: tx.rows("UPDATE sysmeta SET deleted = 1 WHERE pid = 'p'"))
    await farm.store.again("replicate", ["p"])
    await all_steps(farm)
    assert await errands(farm, "urn:node:B") == []
    assert await statuses(farm) == {"A": "invalidated", "B": "invalidated"}
    farm.clock.ahead += AUDIT
    assert await farm.replication.step() == 0


async def test_an_orphan_is_copied_from_who_has_it(farm: Farm) -> None:
    await approve(farm, target("A"), target("B"), target("C"))
    await wanted(farm)
    await farm.replication.status(SYSTEM, "p", "urn:node:B", "completed")
    await farm.db.write(lambda tx: tx.rows("DELETE FROM replica WHERE node = :node", node=NODE))
    one = await farm.store.get("p")
    assert one is not None and one.meta.serial_version
    await farm.replication.policy(SYSTEM, "p", ReplicationPolicy(True, 2), one.meta.serial_version)
    await all_steps(farm)
    (asked,) = await errands(farm, "urn:node:C")
    assert asked.parts["sourceNode"] == b"urn:node:B"


async def test_a_new_policy_and_removal_need_the_right_serial(farm: Farm) -> None:
    await approve(farm, target("A"), target("B"))
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
    assert await statuses(farm) == {"A": "completed", "B": "invalidated"}
