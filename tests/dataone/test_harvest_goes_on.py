"""Whatever is the matter with one object, or with a node's list: the others are brought, and none is passed over."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
from msgspec.structs import replace

from skep.base.caller import SYSTEM, Caller
from skep.base.errors import BadInput, NeedsToken, NotAllowed
from skep.dataone.api import NodeEdit
from skep.dataone.rpc import Bring, Listed
from skep.dataone.testing import Faults, MemberNode
from skep.dataone.types import Checksum, ObjectList, SystemMetadata
from skep.sources.model import Failure
from skep.sources.source_type import Same
from skep.storage.database import Database
from tests.dataone.farm import Farm
from tests.dataone.objects import EML

MINUTE, DAY = 60_000, 86_400.0


@pytest.fixture
async def database(sqlite: Database) -> AsyncIterator[Database]:
    """One is enough here."""
    yield sqlite


class Listing(MemberNode):
    """Whose list is what a test makes of it."""

    made: Callable[[Mapping[str, str], ObjectList], ObjectList] | None = None

    def listing(self, query: Mapping[str, str], trusted: bool) -> ObjectList:
        found = super().listing(query, trusted)
        return found if self.made is None else self.made(query, found)


def fill(node: MemberNode, count: int, name: str = "o", *, ago: int = 5 * 60 * MINUTE) -> None:
    start = node.now() - ago
    for n in range(count):
        node.put(f"{name}{n:03d}", b"<eml>%d</eml>" % n, EML, date_sys_metadata_modified=start + n * ago // 300)


async def test_an_earlier_place_that_is_asked_for_during_a_list_is_gone_on_from(farm: Farm, node: MemberNode) -> None:
    fill(node, 6)
    held = await farm.add(node)
    await farm.visit(held)
    earlier = node.now() / 1000 - DAY
    asked: list[object] = []

    async def ask_again(body: object) -> None:
        if isinstance(body, Listed) and not asked:
            asked.append(await farm.nodes.reconcile(SYSTEM, node.id, since=earlier))

    farm.before = ask_again
    await farm.visit(held)
    assert asked
    assert (await farm.nodes.find(SYSTEM, node.id))["place"] == int(earlier * 1000)
    await farm.visit(held)
    assert (await farm.nodes.find(SYSTEM, node.id))["place"] > int(earlier * 1000)


@pytest.mark.parametrize("since", [-1.0, 1e300, float("nan"), float("inf"), 4e9])
async def test_a_place_that_is_no_time_in_the_past_is_refused(farm: Farm, node: MemberNode, since: float) -> None:
    await farm.visit(await farm.add(node))
    with pytest.raises(BadInput, match="no time in the past"):
        await farm.nodes.reconcile(SYSTEM, node.id, since=since)


async def test_a_later_place_that_is_asked_for_passes_nothing_over(farm: Farm, node: MemberNode) -> None:
    """Between where the list rests and there, too, something may have changed."""
    held = await farm.add(node)
    await farm.visit(held)
    place = (await farm.nodes.find(SYSTEM, node.id))["place"]
    await farm.nodes.reconcile(SYSTEM, node.id, since=farm.clock.now())
    assert (await farm.nodes.find(SYSTEM, node.id))["place"] == place


async def test_each_pass_that_is_asked_for_is_one_of_its_own(farm: Farm, node: MemberNode) -> None:
    """Whoever asks at the same moment."""
    await farm.visit(await farm.add(node))
    before = (await farm.nodes.find(SYSTEM, node.id))["pass"]
    await asyncio.gather(*(farm.nodes.reconcile(SYSTEM, node.id) for _ in range(3)))
    assert (await farm.nodes.find(SYSTEM, node.id))["pass"] == before + 3


async def test_what_two_people_set_at_the_same_moment_is_set(farm: Farm, node: MemberNode) -> None:
    await farm.visit(await farm.add(node))
    for paused in (True, False):
        edits = (NodeEdit(paused=paused), NodeEdit(connections=3 + paused), NodeEdit(rate=5.0 + paused))
        await asyncio.gather(*(farm.nodes.set(SYSTEM, node.id, edit) for edit in edits))
        shown = await farm.nodes.show(SYSTEM, node.id)
        assert (shown.paused, shown.limits.connections, shown.limits.rate) == (paused, 3 + paused, 5.0 + paused)


async def test_only_who_may_change_a_node_replays_its_objects(farm: Farm, node: MemberNode) -> None:
    fill(node, 1)
    held = await farm.add(node)
    await farm.visit(held)
    for caller in (Caller("anonymous", frozenset({"read"}), known=False), Caller("eve", frozenset({"read", "write"}))):
        for pid in ("", "o000"):
            with pytest.raises((NeedsToken, NotAllowed)):
                await farm.nodes.replay(caller, node.id, pid)
    assert await farm.states(held) == {"held": 1}


async def test_what_is_replayed_while_it_is_in_hand_is_brought_once_more(farm: Farm, node: MemberNode) -> None:
    fill(node, 1)
    held = await farm.add(node)
    replayed: list[object] = []

    async def repair(body: object) -> None:
        """What was brought is what the node had before."""
        if isinstance(body, Bring) and body.objects and not replayed:
            replayed.append(await farm.nodes.replay(SYSTEM, node.id, "o000"))

    farm.before = repair
    await farm.visit(held)
    assert len(replayed) == 1 and len(node.asked("/meta/")) == 2


@pytest.mark.parametrize("full", [False, True])
async def test_what_was_read_before_a_pass_was_asked_for_says_nothing_of_it(
    farm: Farm, node: MemberNode, full: bool
) -> None:
    """It is on its way, in an ordinary list or in an earlier pass, when it vanishes and somebody wants to know."""
    fill(node, 6)
    node.put("late", b"<eml>late</eml>", EML)
    held = await farm.add(node)
    await farm.visit(held)
    if full:
        await farm.nodes.reconcile(SYSTEM, node.id)

    async def vanish(body: object) -> None:
        if isinstance(body, Listed) and body.full == full and "late" in node.pids:
            assert "late" in {one.identifier for one in body.entries}
            node.delete("late")
            await farm.nodes.reconcile(SYSTEM, node.id)

    farm.before = vanish
    for _ in range(2):
        assert await farm.visit(held) is None
    assert "late" not in node.pids and await farm.same_as(node)
    assert (await farm.verdicts("late"))[-1] == "gone"


async def test_objects_that_break_off_keep_no_others_from_coming(farm: Farm, node: MemberNode) -> None:
    for n in range(14):
        node.put(f"cut{n:03d}", b"x" * 1_000, EML, date_sys_metadata_modified=node.now() - 10**9)
    fill(node, 5)
    node.faults = Faults(cut=100)
    await farm.visit(await farm.add(node))
    assert await farm.pids() == {f"o{n:03d}" for n in range(5)}
    assert await farm.verdicts("cut003") == ["later"]


async def test_what_a_node_gave_before_it_wanted_to_be_left_alone_counts(farm: Farm) -> None:
    class Limited(MemberNode):
        left = 0

        def find(self, pid: str, trusted: bool) -> tuple[SystemMetadata, bytes]:
            self.left -= 1
            self.faults = Faults(busy="/") if self.left < 0 else self.faults
            return super().find(pid, trusted)

    with Limited() as node:
        fill(node, 60)
        held = await farm.add(node)
        for _ in range(3):
            node.left, node.faults = 80, Faults()
            before = len(await farm.pids())
            failure = await farm.visit(held)
            assert len(await farm.pids()) >= min(60, before + 35), failure
            farm.clock.ahead += 100.0
    assert len(await farm.pids()) == 60


async def test_one_object_that_is_never_answered_is_asked_for_last(farm: Farm, node: MemberNode) -> None:
    fill(node, 3, "a")
    fill(node, 1, "bad")
    fill(node, 60)
    node.faults = Faults(busy="/object/bad")
    held = await farm.add(node)
    for _ in range(2):
        failure = await farm.visit(held)
        assert failure and failure.kind == "rate_limited"
        farm.clock.ahead += DAY
    assert await farm.states(held) == {"held": 63, "queued": 1}
    assert await farm.verdicts("bad000") == ["later"]


@pytest.mark.parametrize("way", ["deleted", "private", "edited"])
async def test_what_leaves_the_list_while_it_is_read_hides_no_other(farm: Farm, way: str) -> None:
    with Listing(faults=Faults(cap=10)) as node:
        fill(node, 40)
        left: list[str] = []

        def leave(query: Mapping[str, str], found: ObjectList) -> ObjectList:
            if query.get("start") == "0" and query["count"] != "0" and not left:
                left.append(found.object_info[0].identifier)
                if way == "deleted":
                    node.delete(left[0])
                elif way == "private":
                    node.change(left[0], access_policy=None)
                else:
                    node.change(left[0], file_name="other")
            return found

        node.made = leave
        assert await farm.visit(await farm.add(node)) is None
        shown = {pid for pid in node.pids if node.meta(pid).access_policy}
    assert left
    assert shown <= await farm.pids()


def twice(query: Mapping[str, str], found: ObjectList) -> ObjectList:
    more = found.object_info[:1]
    return replace(found, object_info=(*found.object_info, *more), count=found.count + len(more), total=found.total + 1)


def one_more(query: Mapping[str, str], found: ObjectList) -> ObjectList:
    return replace(found, total=found.total + 1)


@pytest.mark.parametrize("made", [twice, one_more])
async def test_of_a_list_that_does_not_hold_together_what_it_names_is_brought(
    farm: Farm, made: Callable[[Mapping[str, str], ObjectList], ObjectList]
) -> None:
    with Listing() as node:
        fill(node, 25)
        node.made = made
        held = await farm.add(node)
        failure = await farm.visit(held)
        assert failure and "its list says 26 objects, and has 25" in failure.message
        assert await farm.same_as(node)
        assert (await farm.nodes.show(SYSTEM, held.source)).place == 0, "and it is not passed for listed"


async def test_a_list_without_a_total_is_read_to_its_end(farm: Farm) -> None:
    with Listing(faults=Faults(cap=10)) as node:
        fill(node, 25)
        node.made = lambda query, found: replace(found, total=0)
        assert await farm.visit(await farm.add(node)) is None
        assert await farm.same_as(node)


async def test_a_node_whose_list_fails_is_heard_when_it_signals(farm: Farm, node: MemberNode) -> None:
    fill(node, 1)
    held = await farm.add(node)
    assert await farm.visit(held) is None
    node.faults = Faults(html=500, html_at="/object")
    node.change("o000", file_name="new.xml")
    await farm.harvests.synchronize(SYSTEM, "o000")
    assert isinstance(await farm.visit(held), Failure)
    assert await farm.verdicts("o000") == ["new", "update"]


async def test_a_refusal_that_passes_is_not_remembered(farm: Farm, node: MemberNode) -> None:
    fill(node, 10)
    held = await farm.add(node)
    assert await farm.visit(held) is None
    node.faults = Faults(refuses=frozenset({"count"}))
    fill(node, 1, "new", ago=0)
    farm.clock.ahead += 400.0
    assert await farm.visit(held) is None
    node.faults = Faults()
    fill(node, 200, "p", ago=0)
    farm.clock.ahead += 400.0
    assert await farm.visit(held) is None
    assert await farm.same_as(node)
    assert (await farm.nodes.show(SYSTEM, held.source)).note == ""


async def test_a_visit_after_a_quiet_look_lists(farm: Farm, node: MemberNode) -> None:
    fill(node, 2)
    held = await farm.add(node)
    assert await farm.visit(held) is None
    farm.clock.ahead += 400.0
    assert isinstance(await farm.look(held), Same)
    farm.clock.ahead += DAY  # it is asked what it is, and then visited without a look
    fill(node, 2, "new", ago=0)
    assert await farm.visit(held) is None
    assert await farm.same_as(node)


async def test_a_node_that_has_moved_is_told_of_errors_where_it_is(farm: Farm, node: MemberNode) -> None:
    with MemberNode(faults=Faults(moved=node.base)) as old:
        node.put("bad", b"x", checksum=Checksum("00", "CRC32"))
        await farm.nodes.register(SYSTEM, old.document())
        held = await farm.sources.held((await farm.nodes.approve(SYSTEM, old.id)).source or "")
        assert held
        for _ in range(2):
            assert await farm.visit(held) is None
            farm.clock.ahead += 400.0
    assert [error.identifier for error in node.errors] == ["bad"]
