"""Objects that are strange by themselves, over each database: none of them is in the way of another."""

import random
import string
from typing import Any

from msgspec.structs import replace

from skep.base.caller import SYSTEM
from skep.dataone.encoding import render
from skep.dataone.rpc import Errand
from skep.dataone.testing import Faults, MemberNode
from skep.dataone.types import AccessPolicy, AccessRule, ReplicationPolicy
from tests.dataone.farm import Farm
from tests.dataone.objects import EML


def fill(node: MemberNode, *numbers: int) -> None:
    start = node.now() - 10_000_000
    for n in numbers:
        node.put(f"p{n}", b"<eml>%d</eml>" % n, EML, date_sys_metadata_modified=start + n)


async def test_entries_of_a_list_that_cannot_be_read_hide_no_others(
    farm: Farm, node: MemberNode, monkeypatch: Any
) -> None:
    monkeypatch.setattr("skep.dataone.listing.PAGE", 2)
    monkeypatch.setattr("skep.dataone.source_type.PAGE", 2)
    fill(node, 0, 1, 2)
    for n, pid in enumerate(("has a blank", "x" * 801, "vast")):
        node.put(pid, b"x", EML, size=1 << 64, date_sys_metadata_modified=node.now() - 10_000_000 + n)
    fill(node, 3, 4, 5)
    held = await farm.add(node)
    assert await farm.visit(held) is None
    assert await farm.pids() == {f"p{n}" for n in range(6)}
    node.change("vast")
    assert await farm.visit(held) is None
    note = (await farm.nodes.show(SYSTEM, held.source)).note
    assert "entries of its list cannot be read" in note and "'vast'" in note


async def test_an_error_that_is_longer_than_the_object_is_no_wrong_object(farm: Farm, node: MemberNode) -> None:
    node.put("tiny", b"x", EML)
    node.faults = Faults(busy="/object/tiny")
    held = await farm.add(node)
    failure = await farm.visit(held)
    assert failure is not None and failure.kind == "rate_limited", "it was told to come later"
    assert [(one.verdict, one.reason) for one in await farm.store.story("tiny")] == [
        ("later", "503 /object/tiny: and says nothing that we understand")
    ]
    # nor does it say anything of a copy that is checked
    check = Errand("audit", "/object/tiny", hash="SHA-1", most=1)
    assert (await farm.kind._client(held).run(check)).status == 503
    node.faults = Faults()
    farm.clock.ahead += 20.0
    await farm.visit(held)
    assert await farm.content("tiny") == b"x"


async def test_a_node_that_takes_another_name_waits_for_a_person(farm: Farm, node: MemberNode) -> None:
    fill(node, 0, 1)
    held = await farm.add(node)
    assert await farm.visit(held) is None
    node.id = "urn:node:Other"
    farm.clock.ahead += 90_000
    failure = await farm.visit(held)
    assert failure is not None and "says that it is urn:node:Other, and was urn:node:Test" in failure.message
    assert await farm.pids() == {"p0", "p1"}


async def test_nothing_is_asked_for_no_bytes(farm: Farm, node: MemberNode) -> None:
    node.put("empty", b"", EML)
    node.put("void", b"")
    node.put("false", b"x", EML, size=0)
    node.faults = Faults(busy="/object/")
    held = await farm.add(node)
    assert await farm.visit(held) is None
    assert await farm.pids() == {"empty", "void"} and await farm.content("empty") == b""
    assert "as promised" in (await farm.store.story("false"))[0].reason


async def test_a_refusal_that_has_no_end_is_not_repeated_for_ever(farm: Farm, node: MemberNode) -> None:
    """An identifier that is too long for the node itself, say."""
    node.put("long", b"x", EML)
    node.faults = Faults(html=414, html_at="/meta/")
    held = await farm.add(node)
    for _ in range(4):
        await farm.visit(held)
        farm.clock.ahead += 4_000
    assert await farm.states(held) == {"parked": 1}


async def test_numbers_times_and_subjects_that_nobody_can_keep_block_nothing(farm: Farm, node: MemberNode) -> None:
    fill(node, 0, 1, 2)
    noise = "".join(random.Random(1).choices(string.ascii_letters, k=9_000))
    strange: dict[str, dict[str, Any]] = {
        "vast": {"size": 1 << 63},
        "often": {"serial_version": 10**30},
        "many": {"replication_policy": ReplicationPolicy(True, 10**30)},
        "nobody": {"rights_holder": ""},
        "formless": {"format_id": " "},
        "shy": {"access_policy": AccessPolicy((AccessRule(("",), ("read",)),))},
        "loud": {"rights_holder": noise, "access_policy": None},
    }
    metas = {pid: render(replace(node.put(pid, b"x"), **fields)) for pid, fields in strange.items()}
    early = render(node.put("early", b"x", date_uploaded=0))
    metas["early"] = early.replace(b"1970-01-01T00:00:00.000Z", b"0001-01-01T00:00:00+14:00")
    node.faults = Faults(meta_of=metas)
    held = await farm.add(node)
    assert await farm.visit(held) is None
    # (one database has room for any subject)
    assert await farm.pids() - {"loud"} == {"p0", "p1", "p2"}
    for _ in range(4):
        farm.clock.ahead += 4_000
        await farm.visit(held)
    told = {pid: (await farm.store.explain(SYSTEM, pid)).chapters[-1] for pid in metas}
    assert {one.verdict for pid, one in told.items() if pid != "loud"} == {"poison"}
    assert (told["loud"].verdict == "new") != ("cannot be stored" in told["loud"].reason)
    assert not any("-1" in one.reason.split()[0] for one in told.values()), told


async def test_a_link_that_a_node_sets_and_does_not_date_is_found(farm: Farm, node: MemberNode) -> None:
    """As the Generic Member Node does it with the other end of what was obsoleted."""
    for pid in ("old", "new"):
        node.put(pid, pid.encode(), EML)
    held = await farm.add(node)
    await farm.visit(held)
    node.change("new", obsoletes="old", date_sys_metadata_modified=node.meta("new").date_sys_metadata_modified)
    node.change("old", obsoleted_by="new")
    await farm.visit(held)
    one = await farm.store.get("new")
    assert one is not None and one.meta.obsoletes == "old"
    node.requests.clear()
    node.change("old", rights_holder="CN=rita")
    await farm.visit(held)
    assert not node.asked("/meta/new"), "what is linked is linked"


async def test_what_its_node_refuses_us_is_not_for_everybody_any_more(farm: Farm, node: MemberNode) -> None:
    node.put("a", b"<eml/>", EML)
    node.put("b", b"<eml>b</eml>", EML)
    held = await farm.add(node)
    await farm.visit(held)
    policy = node.meta("a").access_policy
    node.change("a", access_policy=None)

    async def seen() -> set[str]:
        await farm.nodes.reconcile(SYSTEM, node.id)
        await farm.visit(held)
        return {one.identifier for one in (await farm.store.listing(["public"])).object_info}

    assert await seen() == {"b"}
    assert await farm.pids() == {"a", "b"}, "nor is it deleted"
    narrowed = await farm.db.read("SELECT pid FROM sysmeta WHERE narrowed > 0")
    assert [row["pid"] for row in narrowed] == ["a"], "and it leaves the index at once"
    assert await farm.told_well()
    node.faults = Faults(html=401, html_at="/meta/b")
    node.change("b", rights_holder="CN=rita")
    assert await seen() == {"b"}, "whoever said that, it was no node of DataONE"
    node.change("a", access_policy=policy)
    assert await seen() == {"a", "b"}
