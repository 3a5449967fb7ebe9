"""Strange nodes: whatever they do, what can be had is had, the rest is explained, and nothing is concluded in haste."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from skep.base.caller import SYSTEM
from skep.dataone.encoding import render
from skep.dataone.testing import Faults, MemberNode
from skep.dataone.types import AccessPolicy, Checksum
from skep.sources.model import Failure, Held
from skep.sources.source_type import Same
from skep.storage.database import Database
from tests.dataone import farm as farms
from tests.dataone.farm import Farm
from tests.dataone.objects import EML, TRICKY, meta_of
from tests.support.dataone_objects import put_object


@pytest.fixture
async def database(sqlite: Database) -> AsyncIterator[Database]:
    """One is enough here."""
    yield sqlite


def fill(node: MemberNode, count: int, step: int = 1) -> None:
    start = node.now() - 10_000_000
    for n in range(count):
        node.put(f"p{n}", b"<eml>%d</eml>" % n, EML, date_sys_metadata_modified=start + n * step)


@pytest.mark.parametrize(
    "faults",
    [
        Faults(order="descending"),
        Faults(cap=7),
        Faults(cap=7, order="descending", empty_end=True),
        Faults(refuses=frozenset({"start", "count"})),
        Faults(refuses=frozenset({"start", "count", "toDate"})),
        Faults(ignores=frozenset({"toDate"})),
        Faults(skew=7_200.0),
        Faults(skew=-7_200.0),
        Faults(zoneless=True),
    ],
    ids=range(9),
)
async def test_lists_of_every_kind(farm: Farm, node: MemberNode, faults: Faults, monkeypatch: Any) -> None:
    monkeypatch.setattr("skep.dataone.listing.WINDOW", 10)
    monkeypatch.setattr("skep.dataone.listing.PAGE", 5)
    monkeypatch.setattr("skep.dataone.source_type.PAGE", 5)
    node.faults = faults
    fill(node, 40)
    if "count" in faults.refuses:
        node.faults = replace(faults, cap=10_000)
        monkeypatch.setattr("skep.dataone.testing._DEFAULT_COUNT", 10_000)
    held = await farm.add(node)
    assert await farm.visit(held) is None
    assert await farm.same_as(node)
    node.put("late", b"<eml>late</eml>", EML)
    node.change("p3", file_name="three.xml")
    assert await farm.visit(held) is None
    assert await farm.same_as(node) and await farm.verdicts("p3") == ["new", "update"]
    seen = await farm.nodes.show(SYSTEM, node.id)
    assert abs(seen.skew - faults.skew) < 60
    assert ("does not know" in seen.note) == bool(faults.refuses | faults.ignores)


async def test_a_list_that_is_shuffled_concludes_nothing_it_has_not_seen(
    farm: Farm, node: MemberNode, monkeypatch: Any
) -> None:
    monkeypatch.setattr("skep.dataone.listing.PAGE", 5)
    monkeypatch.setattr("skep.dataone.source_type.PAGE", 5)
    node.faults = Faults(order="shuffled")
    fill(node, 30)
    held = await farm.add(node)
    failure = await farm.visit(held)
    assert isinstance(failure, Failure) and failure.kind == "corrupt"
    assert (await farm.nodes.show(SYSTEM, node.id)).listed_at == 0
    node.faults = Faults()
    await farm.visit(held)
    assert await farm.same_as(node)


async def test_one_moment_with_very_many_objects(farm: Farm, node: MemberNode, monkeypatch: Any) -> None:
    monkeypatch.setattr("skep.dataone.listing.WINDOW", 10)
    fill(node, 50, step=0)
    held = await farm.add(node)
    assert await farm.visit(held) is None
    assert await farm.same_as(node)


async def test_a_late_commit_is_found_in_the_overlap(farm: Farm, node: MemberNode) -> None:
    fill(node, 3)
    node.put("slow", b"<eml>slow</eml>", EML)
    node.faults = Faults(late=frozenset({"slow"}))
    held = await farm.add(node)
    await farm.visit(held)
    assert "slow" not in await farm.pids()
    node.faults = Faults()
    await farm.visit(held)
    assert "slow" in await farm.pids()


async def test_poison_is_explained_and_blocks_nothing(farm: Farm, node: MemberNode) -> None:
    fill(node, 3)
    node.put("absent", b"x", EML)
    node.put("truncated", b"12345", EML)
    node.put("mangled", b"12345", EML)
    node.put("huge", b"12345", EML, size=3)
    node.put("html", b"x", EML)
    node.put("bomb", b"x", EML)
    other = node.put("other", b"x", EML)
    node.put("rot", b"x", EML, checksum=Checksum("aa", "rot13"))
    node.put("hollow", b"x", EML, submitter=None)
    node.faults = Faults(
        missing=frozenset({"absent"}),
        bytes_of={"truncated": b"123", "mangled": b"54321"},
        meta_of={
            "html": b"<html>Bad Gateway</html>",
            "bomb": b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>',
            "other": render(replace(other, identifier="somebody-else")),
        },
    )
    held = await farm.add(node)
    assert await farm.visit(held) is None
    assert await farm.pids() == {"p0", "p1", "p2"}
    for _ in range(4):
        farm.clock.ahead += 4_000
        await farm.visit(held)
    assert await farm.states(held) == {"held": 3, "parked": 9}
    reasons = {pid: (await farm.store.explain(SYSTEM, pid)).chapters[-1].reason for pid in ("mangled", "huge", "other")}
    assert node.meta("mangled").checksum.value in reasons["mangled"]
    assert "3 as promised" in reasons["huge"] and "another object" in reasons["other"]
    before = len(node.asked("/meta/"))
    farm.clock.ahead += 40_000
    await farm.visit(held)
    assert len(node.asked("/meta/")) == before, "what is parked is left alone"

    node.faults = Faults()
    node.change("truncated")
    await farm.visit(held)
    assert "truncated" in await farm.pids(), "until its node says that it changed"
    await farm.nodes.replay(SYSTEM, node.id)
    await farm.visit(held)
    assert "absent" in await farm.pids(), "or a person does"


async def test_transient_trouble_climbs_a_ladder(farm: Farm, node: MemberNode) -> None:
    node.token = "secret"
    fill(node, 1)
    secret = node.put("private", b"<eml/>", EML)
    held = await farm.add(node)
    await farm.visit(held)
    node.change("private", access_policy=AccessPolicy(), date_sys_metadata_modified=secret.date_sys_metadata_modified)
    await farm.nodes.replay(SYSTEM, node.id, "private")
    began = farm.clock.now()
    await farm.visit(held)
    (offer,) = (await farm.store.explain(SYSTEM, "private")).offers
    assert offer.state == "queued" and "401" in offer.reason and offer.due >= began + 7.5
    assert "private" in await farm.pids(), "losing access is not deletion"
    tries = []
    for _ in range(5):
        farm.clock.ahead += 35
        await farm.visit(held)
        tries.append((await farm.store.explain(SYSTEM, "private")).offers[0].tries)
    assert tries == [2, 2, 3, 3, 3]


async def test_a_node_that_wants_to_be_left_alone_is(farm: Farm, node: MemberNode) -> None:
    fill(node, 20)
    node.faults = Faults(busy="/meta/")
    held = await farm.add(node)
    failure = await farm.visit(held)
    assert isinstance(failure, Failure) and failure.kind == "rate_limited" and failure.retry_after
    assert len(node.asked("/meta/")) <= 10
    node.faults = Faults()
    farm.clock.ahead += 20.0
    await farm.visit(held)
    assert await farm.same_as(node), "nothing was lost"


@pytest.mark.parametrize("status", [200, 500])
async def test_html_instead_of_a_list(farm: Farm, node: MemberNode, status: int) -> None:
    fill(node, 3)
    held = await farm.add(node)
    await farm.visit(held)
    node.faults = Faults(html=status)
    failure = await farm.visit(held)
    assert isinstance(failure, Failure) and failure.kind in ("corrupt", "network")
    assert len(await farm.pids()) == 3


async def test_an_empty_list_deletes_nothing(farm: Farm, node: MemberNode) -> None:
    fill(node, 40)
    held = await farm.add(node)
    await farm.visit(held)
    node.faults = Faults(amnesia=True)
    await farm.visit(held)
    assert len(await farm.pids()) == 40
    await farm.nodes.reconcile(SYSTEM, node.id)
    failure = await farm.visit(held)
    assert isinstance(failure, Failure) and failure.kind == "emptied" and "40 of 40" in failure.message
    again = await farm.visit(held)
    assert isinstance(again, Failure) and again.loss == failure.loss
    await farm.accept(held, failure.loss)
    assert await farm.visit(held) is None
    assert len(await farm.pids()) == 40, "each is asked for, and is there"
    node.faults = Faults()
    await farm.visit(held)
    assert await farm.same_as(node)


async def test_what_vanished_is_counted_among_all_that_was_offered(farm: Farm, node: MemberNode) -> None:
    """And where much is parked, among what is held."""
    fill(node, 12)
    for n in range(130):
        node.put(f"poison{n}", b"<eml/>", EML, submitter=None)
    held = await farm.add(node)
    await farm.visit(held)
    assert await farm.states(held) == {"held": 12, "parked": 130}
    for amnesia, message in ((True, "lists 142 of 142 objects"), (False, "lists 12 of 142 objects")):
        node.faults = Faults(amnesia=amnesia)
        for n in range(0 if amnesia else 12):
            node.delete(f"p{n}")
        await farm.nodes.reconcile(SYSTEM, node.id)
        failure = await farm.visit(held)
        assert isinstance(failure, Failure) and message in failure.message


async def test_reconciliation_finds_what_vanished_and_what_was_missed(farm: Farm, node: MemberNode) -> None:
    fill(node, 40)
    held = await farm.add(node)
    await farm.visit(held)
    node.delete("p7")
    old = node.meta("p8").date_sys_metadata_modified
    node.put("missed", b"<eml>m</eml>", EML, date_sys_metadata_modified=(old or 0) - 9_000_000)
    assert isinstance(await farm.look(held), Same)
    farm.clock.ahead += farm.settings.dataone_full_every
    await farm.visit(held)
    farm.clock.ahead = 0
    assert await farm.same_as(node)
    assert (await farm.verdicts("p7"))[-1] == "gone"
    assert b'"new":null' in (await farm.told())[-1] or b'"new":null' in (await farm.told())[-2]
    node.put("p7", b"<eml>7</eml>", EML)
    await farm.visit(held)
    assert await farm.same_as(node), "and it may come back"


async def test_two_nodes_offer_one_object(farm: Farm, node: MemberNode) -> None:
    with MemberNode("urn:node:Other") as other:
        fill(node, 3)
        body = node.body("p0")
        other.put("p0", body, EML, authoritative_member_node=node.id, origin_member_node=node.id)
        other.put("p1", b"something else", EML)
        for one in (node, other):
            assert await farm.visit(await farm.add(one)) is None
        first = await farm.store.get("p0")
        assert first is not None
        assert {r.replica_member_node for r in first.meta.replica} == {node.id, other.id, farms.CN}
        assert await farm.verdicts("p0") == ["new", "replica"]
        assert await farm.verdicts("p1") == ["new", "duplicate"]
        assert await farm.content("p1") == node.body("p1")
        node.delete("p0")
        await farm.nodes.reconcile(SYSTEM, node.id)
        await farm.visit(await farm.add(node))
        assert "p0" in await farm.pids(), "another node has it"


async def test_conflicts_are_reported_once_to_nodes_that_registered(farm: Farm, node: MemberNode) -> None:
    await farm.nodes.register(SYSTEM, node.document())
    assert (await farm.nodes.show(SYSTEM, node.id)).source is None
    approved = await farm.nodes.approve(SYSTEM, node.id)
    held = await farm.sources.held(approved.source or "")
    assert held is not None
    await put_object(farm.store, meta_of("taken", b"1"), b"1", "urn:node:A")
    node.put("taken", b"2", EML)
    for _ in range(3):
        assert await farm.visit(held) is None
        node.change("taken")
        farm.clock.ahead += 1_000
    (error,) = node.errors
    assert (
        error.name == "SynchronizationFailed" and error.identifier == "taken" and "another object" in error.description
    )


async def test_a_signal_while_its_object_is_in_hand_leads_to_one_more_run(farm: Farm, node: MemberNode) -> None:
    fill(node, 2)
    held = await farm.add(node)
    await farm.visit(held)
    await farm.harvests.synchronize(SYSTEM, "p1")
    await farm.harvests.synchronize(SYSTEM, "p1")
    before = len(node.asked("/meta/"))
    signals: list[str] = []

    async def signal(body: object) -> None:
        if type(body).__name__ == "Bring" and not signals:
            signals.append("p1")
            node.change("p1", file_name="x")
            await farm.harvests.synchronize(SYSTEM, "p1")

    farm.before = signal
    await farm.visit(held, asked=False)
    assert len(node.asked("/meta/")) == before + 2
    assert await farm.same_as(node)
    found = await farm.store.get("p1")
    assert found is not None and found.meta.file_name == "x"


async def test_the_queue_is_bounded_and_listing_goes_on_later(
    sqlite: Database, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("skep.dataone.listing.WINDOW", 10)
    monkeypatch.setattr("skep.dataone.listing.PAGE", 10)
    monkeypatch.setattr("skep.dataone.source_type.PAGE", 10)
    farm = await Farm(sqlite, tmp_path, queue=(5, 20)).start()
    most = 0

    async def watch(body: object) -> None:
        nonlocal most
        rows = await farm.db.read("SELECT count(*) AS n FROM offer WHERE state = 'queued'")
        most = max(most, rows[0]["n"])

    farm.before = watch
    with MemberNode() as node:
        fill(node, 100, step=1_000)
        assert await farm.visit(await farm.add(node)) is None
        assert await farm.same_as(node) and 10 <= most <= 30
    await farm.close()


async def test_a_holder_of_an_older_epoch_is_refused(farm: Farm, node: MemberNode) -> None:
    fill(node, 3)
    held = await farm.add(node)

    async def move(tx: Any) -> None:
        await farm.sources.raise_epoch(tx, held.source)

    await farm.db.write(move)
    failure = await farm.visit(held)
    assert isinstance(failure, Failure) and "epoch" in failure.message and not await farm.pids()
    newer: Held = replace(held, epoch=2)
    assert await farm.visit(newer) is None and await farm.same_as(node)


async def test_data_by_policy(sqlite: Database, tmp_path: Any) -> None:
    farm = await Farm(sqlite, tmp_path, dataone_data=10).start()
    with MemberNode() as node:
        node.put("small", b"1,2\n", "text/csv")
        node.put("large", b"x" * 11, "text/csv")
        node.put("big-metadata", b"<eml>" + b" " * 3_000_000 + b"</eml>", EML)
        assert await farm.visit(await farm.add(node)) is None
        assert await farm.content("small") == b"1,2\n" and await farm.content("large") is None
        assert await farm.content("big-metadata") == node.body("big-metadata")
        # a format may turn out to be one of metadata: then the bytes are fetched
        node.put("later", b"<eml/>" * 10, "text/csv")
        await farm.visit(await farm.add(node))
        assert await farm.content("later") is None
        node.change("later", format_id=EML)
        await farm.visit(await farm.add(node))
        assert await farm.content("later") == b"<eml/>" * 10
    await farm.close()


async def test_tricky_identifiers(farm: Farm, node: MemberNode) -> None:
    for pid in (*TRICKY, ".", "..", "a%2Fb"):
        node.put(pid, pid.encode(), EML)
    assert await farm.visit(await farm.add(node)) is None
    assert await farm.same_as(node)
