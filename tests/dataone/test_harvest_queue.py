"""In which order what waits is brought, and when it is tried again."""

import itertools
from collections.abc import AsyncIterator

import pytest

from skep.base.caller import SYSTEM, Caller
from skep.base.errors import NotAllowed, Unavailable
from skep.dataone.apply_batch import pause
from skep.dataone.client import NodeClient
from skep.dataone.harvests import Previews
from skep.dataone.rpc import TakeObjects
from skep.dataone.testing import Faults, MemberNode
from skep.sources.source_type import Moved
from skep.storage.database import Database
from tests.dataone.farm import Farm
from tests.dataone.objects import EML


@pytest.fixture
async def database(sqlite: Database) -> AsyncIterator[Database]:
    yield sqlite


def fill(node: MemberNode, count: int) -> None:
    for n in range(count):
        node.put(f"p{n}", b"<eml>%d</eml>" % n, EML)


def test_pauses_grow_and_are_a_quarter_longer_or_shorter() -> None:
    assert [pause(tries, 0.5) for tries in (0, 1, 2, 1_000)] == [10.0, 60.0, 300.0, 604_800.0]
    assert (pause(0, 0.0), pause(0, 1.0)) == (7.5, 12.5)


async def test_what_failed_together_is_not_tried_again_together(farm: Farm, node: MemberNode) -> None:
    fill(node, 3)
    farm.clock.chances = itertools.cycle((0.0, 0.4, 0.8))
    node.faults = Faults(html=500, html_at="/meta/")
    await farm.visit(await farm.add(node))
    dues = [(await farm.store.explain(SYSTEM, f"p{n}")).offers[0].due for n in range(3)]
    assert len(set(dues)) == 3


async def test_a_dry_run_says_what_a_harvest_would_bring_and_does_nothing(farm: Farm, node: MemberNode) -> None:
    fill(node, 3)
    held = await farm.add(node)
    await farm.visit(held)
    node.change("p1", file_name="x")
    node.put("p3", b"<eml>3</eml>", EML)
    node.faults, told = Faults(order="descending", cap=3), await farm.told()

    async def client(base: str) -> NodeClient:
        return farm.kind._client(held)

    previews = Previews(farm.db, farm.nodes, client)
    seen = await previews.show(SYSTEM, node.id, since=0.0)
    assert (seen.total, seen.listed, sorted(seen.named)) == (4, 4, ["p1", "p3"])
    assert seen.counts == {"new": 1, "changed": 1, "unchanged": 2}
    assert await farm.states(held) == {"held": 3} and await farm.told() == told
    node.faults = Faults(html=500, html_at="/object")
    with pytest.raises(Unavailable):
        await previews.show(SYSTEM, node.id)
    with pytest.raises(NotAllowed):
        await previews.show(Caller("ann", frozenset({"read", "write"})), node.id)


async def test_what_another_node_has_in_hand_is_not_waited_for(farm: Farm, node: MemberNode) -> None:
    with MemberNode("urn:node:Other") as other:
        slow, held = await farm.add(other), await farm.add(node)
        await farm.visit(slow)
        for one in (node, other):
            fill(one, 3)
        assert isinstance(await farm.look(slow), Moved)
        await farm.harvests.answer(TakeObjects(slow.source, slow.epoch, ticket="slow", most=2))
        await farm.visit(held)
        assert await farm.pids() == {"p2"} and not farm.kind.more(held)
        await farm.nodes.order()
        assert held.source not in farm.nodes._ordered, "it has nothing to do meanwhile"
        farm.clock.ahead += 3_600
        await farm.visit(held)
        assert await farm.states(held) == {"held": 3}


async def test_a_node_that_does_not_answer_is_ordered_more_and_more_seldom(farm: Farm, node: MemberNode) -> None:
    held = await farm.add(node)
    await farm.visit(held)
    fill(node, 3)
    assert isinstance(await farm.look(held), Moved)
    node.faults = Faults(html=500)
    ordered = []
    for _ in range(240):
        farm.clock.ahead += 30
        before = farm.nodes._ordered.get(held.source)
        await farm.nodes.order()
        if farm.nodes._ordered.get(held.source) != before:
            ordered.append(farm.nodes._ordered[held.source][1])
            await farm.look(held)
    assert ordered == [60.0, 120.0, 240.0, 480.0, 960.0, 1_920.0, 3_600.0]
    node.faults = Faults()
    await farm.visit(held)
    assert held.source not in farm.nodes._ordered


async def test_a_node_with_much_to_bring_lets_others_and_what_was_asked_for_goes_first(
    farm: Farm, node: MemberNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skep.dataone.harvest._TAKE", 10)
    monkeypatch.setattr("skep.dataone.harvest._OBJECTS", 5)
    fill(node, 200)
    held = await farm.add(node)

    async def pass_time(body: object) -> None:
        farm.clock.ahead += 61.0 * isinstance(body, TakeObjects)

    farm.after = pass_time
    found = await farm.look(held)
    assert isinstance(found, Moved)
    assert await farm.kind.fetch(held, found, lambda progress: None) == {}
    some = await farm.pids()
    assert 0 < len(some) < 150 and farm.kind.more(held), "the rest waits for its next turn"
    await farm.harvests.synchronize(SYSTEM, min(some))
    taken: list[set[str]] = []

    async def note(body: object) -> None:
        await pass_time(body)
        if isinstance(body, TakeObjects):
            taken.append({row["pid"] for row in await farm.db.read("SELECT pid FROM offer WHERE ticket <> ''")})

    farm.after = note
    await farm.visit(held)
    assert min(some) in taken[0]
    assert await farm.same_as(node)
