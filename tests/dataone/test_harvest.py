"""Harvests of a real node over HTTP, on each database."""

from skep.dataone.types import AccessPolicy, AccessRule
from skep.sources.base import Same
from skep.testing.membernode import MemberNode
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
    await farm.visit(held)
    node.put("later", b"<eml/>", EML)
    before = len(node.requests)
    assert isinstance(await farm.look(held, asked=False), Same)
    assert len(node.requests) in (before, before + 1), "its minute may just have come"
    farm.clock.ahead += 600
    await farm.visit(held, asked=False)
    assert await farm.same_as(node)
