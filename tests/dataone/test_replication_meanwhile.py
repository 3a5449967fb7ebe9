"""What happens while somebody looks at copies, and what is said after that: nothing of it is lost or undone."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from skep.base.caller import SYSTEM, Caller
from skep.base.errors import NotFound, Unavailable
from skep.dataone.api import NodeEdit
from skep.dataone.encoding import parse
from skep.dataone.replication import AGAIN
from skep.dataone.rpc import Ran
from skep.dataone.types import Checksum, Replica, ReplicationPolicy, SystemMetadata
from tests.dataone.farm import CN, Farm
from tests.dataone.objects import NODE, PUBLIC, meta_of
from tests.dataone.test_replication import DATA, all_steps, approve, errands, ran, said, statuses, target, wanted
from tests.support.dataone_objects import lose_object, put_object

ONE = ReplicationPolicy(True, 1)


def before_writing(
    farm: Farm, monkeypatch: pytest.MonkeyPatch, nth: int, work: Callable[[], Awaitable[object]]
) -> None:
    """`work` is done when everything was read, before the `nth` time that something is written."""
    write, times = farm.db.write, 0

    async def later(*args: Any, **more: Any) -> Any:
        nonlocal times
        times += 1
        if times == nth:
            monkeypatch.setattr(farm.db, "write", write)
            await work()
        return await write(*args, **more)

    monkeypatch.setattr(farm.db, "write", later)


async def serial(farm: Farm) -> int:
    one = await farm.store.get("p")
    assert one is not None and one.meta.serial_version
    return one.meta.serial_version


async def test_what_comes_back_while_it_is_forgotten_has_its_node(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    await approve(farm, target("A"), target("B"))
    given = meta_of("p", DATA, replication_policy=ONE)
    await put_object(farm.store, given, None, NODE)
    await lose_object(farm.store, "p", NODE)
    before_writing(farm, monkeypatch, 1, lambda: put_object(farm.store, given, None, NODE))
    await all_steps(farm)
    assert await statuses(farm) == {"A": "completed", "B": "requested"}


async def test_what_is_archived_while_it_is_looked_at_is_asked_of_nobody(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    await approve(farm, target("A"), target("B"))
    given = {"replication_policy": ONE, "date_sys_metadata_modified": 2_000}
    await put_object(farm.store, meta_of("p", DATA, replication_policy=ONE), None, NODE)
    archived = meta_of("p", DATA, archived=True, **given)
    before_writing(farm, monkeypatch, 1, lambda: put_object(farm.store, archived, None, NODE))
    await all_steps(farm)
    assert await statuses(farm) == {"A": "completed"} and await errands(farm, "urn:node:B") == []


async def test_what_nobody_can_take_waits_whenever_we_are_killed(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    async def killed() -> None:
        raise Unavailable("killed")

    await approve(farm, target("A"))
    for nth in (4, 3, 2, 1):
        await put_object(farm.store, meta_of(f"p{nth}", DATA, replication_policy=ONE), None, NODE)
        before_writing(farm, monkeypatch, nth, killed)
        with suppress(Unavailable):
            await farm.replication.step()
        monkeypatch.undo()
    await approve(farm, target("B"))
    farm.clock.ahead += 3_601
    await all_steps(farm)
    for nth in range(1, 5):
        assert await statuses(farm, f"p{nth}") == {"A": "completed", "B": "requested"}


async def test_who_comes_while_nobody_is_found_is_asked_at_once(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    await approve(farm, target("A"))
    await put_object(farm.store, meta_of("p", DATA, replication_policy=ONE), None, NODE)
    before_writing(farm, monkeypatch, 1, lambda: approve(farm, target("B")))
    await all_steps(farm)
    assert await statuses(farm) == {"A": "completed", "B": "requested"}


async def test_a_copy_that_was_removed_does_not_come_back_by_an_older_audit(farm: Farm) -> None:
    await approve(farm, target("A"), target("B"))
    await wanted(farm)
    await farm.replication.status(SYSTEM, "p", "urn:node:B", "completed")
    await all_steps(farm)
    await farm.replication.remove(SYSTEM, "p", "urn:node:B", await serial(farm))
    await ran(farm, Ran("audit:urn:node:B:p", 200, said(True)))
    assert (await statuses(farm))["B"] == "invalidated"


async def test_a_copy_that_failed_is_not_invalid_by_an_older_audit(farm: Farm) -> None:
    """A node that is asked for it again has yet to make it."""
    await approve(farm, target("A"), target("B"))
    await wanted(farm)
    await farm.replication.status(SYSTEM, "p", "urn:node:B", "completed")
    await all_steps(farm)
    await farm.replication.status(SYSTEM, "p", "urn:node:B", "failed")
    farm.clock.ahead += 3_601
    await all_steps(farm)
    assert (await statuses(farm))["B"] == "requested"
    await ran(farm, Ran("audit:urn:node:B:p", 404))
    assert (await statuses(farm))["B"] == "requested"


@pytest.mark.parametrize("status", ["queued", "requested"])
async def test_who_says_by_metadata_that_it_was_asked_is_asked_again(farm: Farm, status: Any) -> None:
    await approve(farm, target("A"), target("B"), target("C"))
    await wanted(farm)
    await farm.replication.put(SYSTEM, "p", Replica("urn:node:B", status, 1), await serial(farm))
    for pause in AGAIN[1:6]:
        farm.clock.ahead += pause + 1
        await all_steps(farm)
    assert (await statuses(farm))["C"] == "requested", "B has been given up"


async def test_a_node_does_not_make_itself_a_holder(farm: Farm) -> None:
    """It would be told what is private, and others would not be asked for copies."""
    await approve(farm, target("A"), target("B"), target("C"))
    await wanted(farm)
    caller = Caller("CN=C", frozenset({"write"}))
    for status in ("queued", "completed"):
        with pytest.raises(NotFound):
            await farm.replication.put(caller, "p", Replica("urn:node:C", status, 1), await serial(farm))
    assert not await farm.replication.authorised("p", "CN=C")
    assert "C" not in await statuses(farm)


@pytest.mark.parametrize("change", ["archived", "blocked", "refused"])
async def test_who_is_away_is_not_asked_for_what_nobody_wants_there_any_more(farm: Farm, change: str) -> None:
    await approve(farm, target("A"), target("B"))
    await wanted(farm)
    assert len(await errands(farm, "urn:node:B")) == 1, "it waits until the node is there"
    policy = ReplicationPolicy(change != "refused", 1, (), ("urn:node:B",) if change == "blocked" else ())
    more: dict[str, Any] = {
        "replication_policy": policy,
        "archived": change == "archived",
        "date_sys_metadata_modified": 2_000,
    }
    await wanted(farm, **more)
    assert [one for one in await errands(farm, "urn:node:B") if one.path == "/replicate"] == []
    farm.clock.ahead += AGAIN[1] + 1
    await all_steps(farm)
    assert [one for one in await errands(farm, "urn:node:B") if one.path == "/replicate"] == []
    assert (await statuses(farm))["B"] == "failed"


async def test_who_was_given_up_is_not_asked_when_it_comes_back(farm: Farm) -> None:
    await approve(farm, target("A"), target("B"), target("C"))
    await wanted(farm)
    for pause in AGAIN[1:5]:
        farm.clock.ahead += pause + 1
        await all_steps(farm)
    assert await statuses(farm) == {"A": "completed", "B": "failed", "C": "requested"}
    assert await errands(farm, "urn:node:B") == []


async def test_what_holders_were_told_is_not_kept(farm: Farm) -> None:
    await approve(farm, target("A"), target("B"))
    await wanted(farm)
    await farm.replication.status(SYSTEM, "p", "urn:node:B", "completed")
    for n in range(3):
        await wanted(farm, rights_holder=f"n{n}", date_sys_metadata_modified=2_000 + n)
        await ran(farm, *[Ran(one.id, 200) for one in await errands(farm, "urn:node:B")])
    assert await farm.db.read("SELECT id FROM errand WHERE kind = 'dirty'") == []


async def test_sizes_that_no_number_holds_do_not_stop_it(farm: Farm) -> None:
    await approve(farm, target("A"), target("B"))
    for pid in ("p", "q"):
        await wanted(farm, pid, size=2**63 - 1)
    farm.clock.ahead += 61
    await wanted(farm, "r")
    assert (await statuses(farm, "r"))["B"] == "requested"


async def test_a_request_that_waits_says_what_the_object_is_by_then(farm: Farm) -> None:
    """The node may have been told already that it changed, when it did not know it yet."""
    await approve(farm, target("A"), target("B"))
    await wanted(farm, access_policy=PUBLIC)
    await wanted(farm, access_policy=None, date_sys_metadata_modified=2_000)
    (asked,) = [one for one in await errands(farm, "urn:node:B") if one.path == "/replicate"]
    assert parse(SystemMetadata, asked.parts["sysmeta"]).access_policy is None
    await ran(farm, Ran(asked.id, 200))
    await wanted(farm, date_sys_metadata_modified=3_000)
    assert "/replicate" not in [one.path for one in await errands(farm, "urn:node:B")], (
        "what was said is not said again"
    )


@pytest.mark.parametrize("away", ["unknown", "paused", "removed"])
async def test_it_is_copied_from_a_node_that_is_there(farm: Farm, away: str) -> None:
    """What its own node has is of no use to whoever cannot ask that one."""
    names = "BC" if away == "unknown" else "ABC"
    await approve(farm, *(target(name) for name in names))
    copies = tuple(Replica(f"urn:node:{name}", "completed", 1) for name in "AB")
    if away == "paused":
        await farm.nodes.set(SYSTEM, NODE, NodeEdit(paused=True))
    if away == "removed":
        await farm.sources.remove(SYSTEM, (await farm.nodes.find(SYSTEM, NODE))["source"])
    given = meta_of("p", DATA, replication_policy=ReplicationPolicy(True, 2), replica=copies)
    await put_object(farm.store, given, None, "urn:node:cnB", sibling=True)
    await all_steps(farm)
    (asked,) = await errands(farm, "urn:node:C")
    assert asked.parts["sourceNode"] == b"urn:node:B"


async def test_what_a_sibling_asked_for_and_says_nothing_more_of_is_asked_for_here(farm: Farm) -> None:
    """It may be gone for good."""
    await approve(farm, target("A"), target("B"))
    copies = (Replica(NODE, "completed", 1), Replica("urn:node:B", "requested", 1))
    given = meta_of("p", DATA, replication_policy=ONE, replica=copies)
    await put_object(farm.store, given, None, "urn:node:cnB", sibling=True)
    await all_steps(farm)
    assert await errands(farm, "urn:node:B") == [], "it is asked already"
    farm.clock.ahead += 3 * 86_400
    await all_steps(farm)
    assert [one.path for one in await errands(farm, "urn:node:B")] == ["/replicate"]


async def test_what_a_sibling_says_of_a_copy_withdraws_our_request(farm: Farm) -> None:
    await approve(farm, target("A"), target("B"))
    await wanted(farm)
    later = int(farm.clock.now() * 1000) + 1
    given = meta_of(
        "p", DATA, replication_policy=ONE, replica=(Replica("urn:node:B", "failed", later),), serial_version=9
    )
    await put_object(farm.store, given, None, "urn:node:cnB", sibling=True)
    await all_steps(farm)
    assert (await statuses(farm))["B"] == "failed" and await errands(farm, "urn:node:B") == []


@pytest.mark.parametrize("status", ["requested", "failed"])
async def test_who_lists_a_copy_has_it_whatever_it_said(farm: Farm, status: str) -> None:
    """We may have been away when it told us, and it would refuse to make another."""
    await approve(farm, target("A"), target("B"), target("C"))
    await wanted(farm)
    if status == "failed":
        await farm.replication.status(SYSTEM, "p", "urn:node:B", "failed")
    assert await put_object(farm.store, meta_of("p", DATA, replication_policy=ONE), None, "urn:node:B") == "replica"
    await all_steps(farm)
    assert await statuses(farm) == {"A": "completed", "B": "completed"}
    assert "/object/p" in [one.path for one in await errands(farm, "urn:node:B")], "it is checked at once"


async def test_a_policy_that_was_changed_here_is_in_the_history(farm: Farm) -> None:
    await approve(farm, target("A"), target("B"))
    await wanted(farm)
    three = ReplicationPolicy(True, 3)
    await farm.replication.policy(SYSTEM, "p", three, await serial(farm))
    _, who, newest = (await farm.store.history("p"))[-1]
    assert (who, newest.replication_policy, newest.serial_version) == (CN, three, await serial(farm))
    await wanted(farm, rights_holder="new", date_sys_metadata_modified=9_000)
    assert [one.rights_holder for _, _, one in await farm.store.history("p")][-2:] == ["rita", "new"]


@pytest.mark.parametrize("how", ["approved", "changed", "goes on"])
async def test_who_can_take_copies_from_now_on_is_asked_at_once(farm: Farm, how: str) -> None:
    await approve(farm, target("A"))
    if how != "approved":
        await approve(farm, target("B", replicate=how != "changed"))
    if how == "goes on":
        await farm.nodes.set(SYSTEM, "urn:node:B", NodeEdit(paused=True))
    await wanted(farm)
    assert await statuses(farm) == {"A": "completed"}
    match how:
        case "approved":
            await approve(farm, target("B"))
        case "changed":
            await farm.nodes.update(SYSTEM, target("B"))
        case _:
            await farm.nodes.set(SYSTEM, "urn:node:B", NodeEdit(paused=False))
    await all_steps(farm)
    assert await statuses(farm) == {"A": "completed", "B": "requested"}


async def test_a_copy_whose_checksum_nobody_can_compute_is_not_read(farm: Farm) -> None:
    """A sibling may know such objects. Whoever had to compute it would break, and its node be harvested no more."""
    await approve(farm, target("A"), target("B"))
    strange = meta_of("p", DATA, checksum=Checksum("x", "SM3"), replica=(Replica("urn:node:B", "completed", 1),))
    await put_object(farm.store, strange, None, "urn:node:cnB", sibling=True)
    await farm.replication.status(SYSTEM, "p", "urn:node:B", "failed")
    await farm.replication.status(SYSTEM, "p", "urn:node:B", "completed")
    await all_steps(farm)
    assert (await statuses(farm))["B"] == "completed" and await errands(farm, "urn:node:B") == []
