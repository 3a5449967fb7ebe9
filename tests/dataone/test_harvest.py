"""Harvests of a real node over HTTP, on each database."""

import pytest

from skep.base.caller import SYSTEM, Caller
from skep.base.errors import NotAllowed, NotFound
from skep.dataone.testing import MemberNode
from skep.dataone.types import AccessPolicy, AccessRule, NodeReplicationPolicy
from skep.sources.model import Key
from skep.sources.source_type import Same
from skep.topics.service import CHANGES
from tests.dataone.farm import CN, Farm
from tests.dataone.objects import EML


def fill(node: MemberNode, count: int, prefix: str = "p") -> None:
    start = node.now() - 1_000_000
    for n in range(count):
        node.put(f"{prefix}{n}", b"<eml>%d</eml>" % n, EML, date_sys_metadata_modified=start + n)


async def test_a_node_is_harvested_once_and_then_costs_one_request(farm: Farm, node: MemberNode) -> None:
    fill(node, 30)
    node.put("table", b"a,b\n", "text/csv")
    held = await farm.add(node)
    assert await farm.visit(held) is None
    assert await farm.same_as(node)
    one = await farm.store.get("p3")
    assert one is not None and [r.replica_member_node for r in one.meta.replica] == [node.id, CN]
    assert await farm.content("table") is None, "data is not kept unless it is asked for"
    assert len(await farm.told()) == 31
    before = len(node.requests)
    assert isinstance(await farm.look(held), Same)
    assert len(node.requests) == before + 1
    assert len(await farm.told()) == 31


async def test_changes_follow(farm: Farm, node: MemberNode) -> None:
    fill(node, 3)
    held = await farm.add(node)
    await farm.visit(held)
    node.update("p0", "p0.2", b"<eml>new</eml>")
    node.archive("p1")
    node.change("p2", access_policy=AccessPolicy((AccessRule(("ann",), ("read",)),)))
    await farm.visit(held)
    assert not await farm.same_as(node), "a private object is not listed, and losing access is not deletion"
    node.change("p2", access_policy=None, rights_holder="CN=tester")
    assert await farm.store.versions("p0") == ["p0", "p0.2"]
    archived = await farm.store.get("p1")
    assert archived is not None and archived.meta.archived
    assert await farm.verdicts("p1") == ["new", "update"]


async def test_what_not_everybody_may_read_is_told_to_those_who_see_private_things(
    farm: Farm, node: MemberNode
) -> None:
    node.token, everybody = "s3cret", AccessPolicy((AccessRule(("public",), ("read",)),))
    farm.kind.unlock([Key("mn", node.base.split("/")[2], "", "", node.token, public=True)])
    node.put("open", b"<eml/>", EML)
    node.put("closed", b"<eml>closed</eml>", EML, access_policy=AccessPolicy())
    held = await farm.add(node)
    stranger = Caller("ann", frozenset({"read"}))

    async def told(caller: Caller) -> list[tuple[str, int]]:
        return [(one.entry, one.seq) for one in (await farm.sources.changes(caller, held.source)).items]

    await farm.visit(held)
    assert await told(stranger) == [("open", 1)]
    assert sorted(await told(SYSTEM)) == [("closed", 1), ("open", 1)]
    node.change("open", access_policy=AccessPolicy())
    node.change("closed", access_policy=everybody)
    await farm.visit(held)
    assert sorted(await told(stranger)) == [("closed", 2), ("open", 1)], "by the policy that it has then"
    node.delete("open")
    await farm.nodes.reconcile(SYSTEM, node.id)
    await farm.visit(held)
    assert ("open", 3) in await told(SYSTEM) and ("open", 3) not in await told(stranger), "nor that it is gone"
    with pytest.raises(NotAllowed):
        await farm.topics.read(stranger, CHANGES, 0, 10)


async def test_a_node_is_shown_with_its_place_and_what_was_decided(farm: Farm, node: MemberNode) -> None:
    fill(node, 3)
    held = await farm.add(node)
    await farm.visit(held)
    node.archive("p1")
    node.put("p3", b"<eml/>", EML, submitter="")
    await farm.visit(held)
    seen = await farm.nodes.show(SYSTEM, node.id)
    assert seen.verdicts == {"new": 3, "poison": 1, "update": 1} and seen.objects == {"held": 3, "parked": 1}
    assert seen.newest - 60 < seen.place and seen.full_place is None
    assert (await farm.nodes.reconcile(SYSTEM, node.id)).full_place == 0, "a pass over everything has begun"


async def test_without_a_schedule_a_node_is_looked_at_as_often_as_it_changes(farm: Farm, node: MemberNode) -> None:
    node.schedule = None
    held = await farm.add(node)
    for pid in ("a", "b"):
        node.put(pid, b"<eml/>", EML)
        assert await farm.visit(held, asked=False) is None
        assert farm.kind.changed(held), "so the next look comes sooner"
        before = len(node.requests)
        assert isinstance(await farm.look(held, asked=False), Same)
        assert len(node.requests) == before + 1
    assert await farm.same_as(node)


async def test_a_schedule_is_kept_to(farm: Farm, node: MemberNode) -> None:
    fill(node, 3)
    held = await farm.add(node)
    farm.clock.ahead += 330 - farm.clock.now() % 300  # its minute, every fifth, is not soon
    await farm.visit(held)
    node.put("later", b"<eml/>", EML)
    before = len(node.requests)
    assert isinstance(await farm.look(held, asked=False), Same)
    assert len(node.requests) == before
    farm.clock.ahead += 600
    await farm.visit(held, asked=False)
    assert await farm.same_as(node)


async def test_what_a_node_is_becomes_known_though_nothing_else_changes(farm: Farm, node: MemberNode) -> None:
    node.schedule = None
    node.put("p", b"<eml/>", EML)
    held = await farm.add(node)
    await farm.visit(held)
    node.replication = NodeReplicationPolicy(max_object_size=7)
    await farm.visit(held)
    known = await farm.nodes.get(node.id)
    assert known is not None and not known.replicate, "not with every look"
    farm.clock.ahead += 90_000
    await farm.visit(held)
    known = await farm.nodes.get(node.id)
    assert known is not None and known.replicate


async def test_a_node_that_was_removed_waits_for_approval(farm: Farm, node: MemberNode) -> None:
    fill(node, 2)
    held = await farm.add(node)
    await farm.visit(held)
    with pytest.raises(NotFound, match="has not offered"):
        await farm.nodes.replay(SYSTEM, node.id, "unheard-of")
    await farm.sources.remove(SYSTEM, held.source)
    (shown,) = await farm.nodes.list(SYSTEM)
    assert shown.source is None
    again = await farm.nodes.approve(SYSTEM, node.id)
    assert again.source not in (None, held.source)
    assert await farm.pids() == {"p0", "p1"}, "what was harvested stays"
    assert (again.place, again.full_at) == (0, 0), "and is listed again, as by any new source"
    added = await farm.sources.held(again.source)
    assert added is not None
    await farm.visit(added)
    assert await farm.states(added) == {"held": 2}
