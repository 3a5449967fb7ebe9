"""Whatever breaks in the middle: afterwards what we have is what the node has, whole, and each change is told once."""

import asyncio
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from skep.base.caller import SYSTEM
from skep.base.clock import SystemClock
from skep.dataone.api import Limits, NodeEdit
from skep.dataone.client import Gate, NodeClient, Refused
from skep.dataone.formats import Formats
from skep.dataone.harvest import Visit
from skep.dataone.rpc import Bring, Harvest, Objects, PlanHarvest, Queued, TakeObjects, Wanted
from skep.dataone.testing import OPEN, Faults, MemberNode
from skep.dataone.types import AccessPolicy, AccessRule, SystemMetadata
from skep.sources.model import Failure, Held
from skep.storage.database import Database
from tests.dataone.farm import Farm, nothing
from tests.dataone.objects import EML
from tests.house.disk import filled


@pytest.fixture(autouse=True)
def small_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.dataone.harvest._OBJECTS", 7)
    monkeypatch.setattr("skep.dataone.harvest._TAKE", 14)
    monkeypatch.setattr("skep.dataone.listing.PAGE", 9)
    monkeypatch.setattr("skep.dataone.source_type.PAGE", 9)
    monkeypatch.setattr("skep.dataone.listing.WINDOW", 16)


def fill(node: MemberNode, objects: int = 40) -> None:
    """Of one moment in fives, with versions and readers."""
    start = node.now() - 10_000_000
    for n in range(objects):
        reader = OPEN if n % 3 else AccessPolicy((AccessRule(("public", f"CN={n}"), ("read",)),))
        node.put(f"p{n}", b"<eml>%d</eml>" % n, EML, date_sys_metadata_modified=start + n // 5, access_policy=reader)
    for n in range(0, objects, 10):
        node.update(f"p{n}", f"p{n}.2", b"<eml>%d.2</eml>" % n)


def mutate(node: MemberNode) -> None:
    node.update("p1", "p1.2", b"<eml>1.2</eml>")
    node.archive("p2")
    node.change("p3", access_policy=AccessPolicy((AccessRule(("public", "CN=new"), ("read", "write")),)))
    node.put("last", b"<eml>last</eml>", EML)


async def whole(farm: Farm, held: Held, node: MemberNode) -> None:
    farm.clock.ahead += 4_000  # whatever was to be tried again is
    assert await farm.visit(held) is None
    assert await farm.same_as(node) and await farm.told_well()
    assert await farm.states(held) == {"held": len(node.pids)}
    assert not list((farm.data / "worker" / "packs").iterdir())


class Killed(Exception):
    """The worker is no more, wherever it was."""


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_worker_that_is_killed_at_every_step_of_its_way(farm: Farm, node: MemberNode, moment: str) -> None:
    """Each life is one step longer than the last; `after`: the coordinator has done it, and nobody hears the answer."""
    fill(node)
    held = await farm.add(node)
    for life in count(1):
        if life == 8:
            mutate(node)
        steps = iter(range(life))

        async def die(body: object, steps: Iterator[int] = steps) -> None:
            if next(steps, None) is None:
                raise Killed

        setattr(farm, moment, die)
        try:
            assert await farm.visit(held) is None
            break
        except Killed:
            await farm.close()
            farm.be_born()
    assert life > 8
    setattr(farm, moment, nothing)
    await whole(farm, held, node)


async def test_connections_that_break_off_in_an_object(farm: Farm, node: MemberNode) -> None:
    fill(node)
    held = await farm.add(node)
    node.faults = Faults(cut=4)
    failure = await farm.visit(held)
    assert failure is None or failure.kind == "network"
    assert await farm.pids() == set(), "half an object is none"
    node.faults = Faults()
    mutate(node)
    await whole(farm, held, node)


@pytest.mark.parametrize("large", [1, 1_000], ids=["to disk", "in memory"])
async def test_an_object_that_breaks_off_goes_on_from_there(
    farm: Farm, node: MemberNode, monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    monkeypatch.setattr("skep.dataone.client._WORTH", 10)
    monkeypatch.setattr("skep.dataone.harvest._LARGE", large)
    node.put("a", b"<eml>" + b"a" * 50 + b"</eml>", EML)
    node.faults = Faults(cut=20)
    await farm.visit(await farm.add(node))
    assert await farm.same_as(node)
    ranges = [one.headers.get("Range") for one in node.asked("/object/")]
    assert ranges == [None, "bytes=20-", "bytes=40-", "bytes=60-"]


async def test_what_was_mangled_before_it_broke_off_is_not_taken(
    farm: Farm, node: MemberNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skep.dataone.client._WORTH", 10)
    node.put("a", b"<eml>aaaaaaaaaaaaaaa</eml>", EML)
    node.faults = Faults(cut=15, bytes_of={"a": b"<eml>abaaaaaaaaaaaaa</eml>"})
    await farm.visit(await farm.add(node))
    assert await farm.pids() == set(), "the checksum is of the whole"


async def test_a_node_that_restarts_and_one_that_stays_away(farm: Farm, node: MemberNode) -> None:
    fill(node)
    held = await farm.add(node)

    async def restart(body: object) -> None:
        if isinstance(body, Bring) and farm.asks["Bring"] == 2:
            node.stop()
            node.start()

    async def leave(body: object) -> None:
        if isinstance(body, Bring) and farm.asks["Bring"] == 4:
            node.stop()

    farm.before = restart
    await farm.visit(held)
    mutate(node)
    farm.clock.ahead += 4_000
    farm.asks.clear()
    farm.before = leave
    for n in range(60):
        node.put(f"more{n}", b"<eml>%d</eml>" % n, EML)
    failure = await farm.visit(held)
    assert isinstance(failure, Failure) and failure.kind == "network"
    assert farm.asks["Bring"] >= 4, failure
    node.start()
    await whole(farm, held, node)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)  # a thread that was given up may still write there


@pytest.fixture
async def cramped(database: Database, small_disk: Path) -> AsyncIterator[Farm]:
    found = await Farm(database, small_disk).start()
    yield found
    await found.close()


@pytest.mark.parametrize("size", [10, 1_500_000], ids=["together", "by itself"])
@pytest.mark.parametrize("full", [PlanHarvest, Bring], ids=["of the worker", "of the coordinator"])
async def test_a_full_disk(cramped: Farm, node: MemberNode, size: int, full: type) -> None:
    """Where packs are gathered, or only when they are there and become blobs."""
    fill(node)
    held = await cramped.add(node)
    assert await cramped.visit(held) is None
    node.put("large", b"<eml>" + b" " * size + b"</eml>", EML)
    mutate(node)
    with ExitStack() as stack:

        async def fill_up(body: object) -> None:
            if isinstance(body, full):
                cramped.before = nothing
                stack.enter_context(filled(cramped.data))

        cramped.before = fill_up
        failure = await cramped.visit(held)
        assert isinstance(failure, Failure) and failure.kind == "disk", failure
        assert "large" not in await cramped.pids()
    await whole(cramped, held, node)


async def test_a_change_while_it_is_worked_on_waits_again(farm: Farm, node: MemberNode) -> None:
    fill(node, 10)
    held = await farm.add(node)
    await farm.visit(held)
    taken = await farm.store.backlog("index", 100)
    node.change("p3", file_name="x")
    farm.clock.ahead += 1
    await farm.visit(held)
    await farm.store.worked("index", taken)
    assert [pid for pid, _ in await farm.store.backlog("index", 100)] == ["p3"]


async def test_versions_in_a_circle_are_followed_once(farm: Farm, node: MemberNode) -> None:
    fill(node, 3)
    for pid, before, after in (("p0", "p2", "p1"), ("p1", "p0", "p2"), ("p2", "p1", "p0")):
        node.change(pid, obsoletes=before, obsoleted_by=after)
    assert await farm.visit(await farm.add(node)) is None
    assert set(await farm.store.versions("p0")) == {"p0", "p1", "p2"}
    one = await farm.store.get("p0")
    assert one is not None and replace(one.meta, serial_version=1, replica=()) == node.meta("p0")


async def test_what_a_slow_node_gave_waits_for_no_others(
    farm: Farm, node: MemberNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skep.dataone.harvest._SECONDS", 0.0)
    fill(node)
    await farm.visit(await farm.add(node))
    assert farm.asks["Bring"] >= len(node.pids)
    assert await farm.same_as(node)


async def test_what_is_in_hand_for_very_long_is_not_taken_twice(farm: Farm, node: MemberNode) -> None:
    fill(node, 5)
    held = await farm.add(node)
    given: list[int] = []

    async def take(body: object) -> None:
        if isinstance(body, Bring):
            farm.clock.ahead += 1_000
            more = TakeObjects(held.source, held.epoch, ticket=body.ticket, most=100)
            answer = await farm.harvests.answer(more)
            assert isinstance(answer, Objects)
            given.append(len(answer.wanted))

    farm.before = take
    await farm.visit(held)
    assert set(given) == {0}
    assert await farm.same_as(node)


class Crowded(MemberNode):
    """Gives nothing before so many ask at once, and knows how many ever did."""

    wanted, most, _open = 1, 0, 0

    def find(self, pid: str, trusted: bool) -> tuple[SystemMetadata, bytes]:
        with self._crowd:
            self._open += 1
            self.most = max(self.most, self._open)
            self._crowd.notify_all()
            self._crowd.wait_for(lambda: self.most >= self.wanted, 60)
        try:
            return super().find(pid, trusted)
        finally:
            with self._crowd:
                self._open -= 1

    _crowd = threading.Condition()


async def test_a_node_is_asked_by_as_many_as_it_can_bear_and_that_may_change_meanwhile(farm: Farm) -> None:
    with Crowded() as node:
        fill(node)
        held = await farm.add(node)
        limited = False

        async def change(body: object) -> None:
            nonlocal limited
            if isinstance(body, PlanHarvest) and not limited and await farm.db.read("SELECT urn FROM member_node"):
                limited = True
                await farm.nodes.set(SYSTEM, node.id, NodeEdit(connections=1))
            if isinstance(body, Bring) and node.wanted == 1:
                assert node.most == 1
                await farm.nodes.set(SYSTEM, node.id, NodeEdit(connections=4))
                node.wanted = 4

        farm.before = change
        await farm.visit(held)
        assert node.most == 4
        assert await farm.same_as(node)


class Together(NodeClient):
    """Answers when four have asked, all of them at one moment."""

    def __init__(self) -> None:
        self.gate = Gate()
        self._asked, self._answer = 0, asyncio.Event()

    async def meta(self, pid: str) -> SystemMetadata:
        self._asked += 1
        if self._asked == 4:
            self.gate.limits = Limits(connections=1)
            self._answer.set()
        await self._answer.wait()
        raise Refused(404, pid)


async def test_hands_that_end_together_do_not_all_leave(tmp_path: Path) -> None:
    waiting = [Objects(tuple(Wanted(f"p{n}") for n in range(6)), limits=Limits(connections=4))]
    brought: list[str] = []

    async def ask(body: object) -> Objects | Queued:
        if isinstance(body, Bring):
            brought.extend(one.pid for one in body.objects)
            return Queued(0, limits=Limits(connections=1))
        return waiting.pop() if waiting else Objects()

    held = Held("src_1", 1, "dataone", "https://node.example/mn", 1)
    visit = Visit(held, Harvest(), Together(), ask, SystemClock(), Formats(), tmp_path)
    await visit.bring(0.0, lambda done, total: None)
    assert sorted(brought) == [f"p{n}" for n in range(6)]


async def test_bytes_under_way_are_bounded() -> None:
    gate, inside = Gate(), list[int]()
    gate.limits = Limits(bytes=15)

    async def go(size: int, leave: asyncio.Event) -> None:
        async with gate.room(size):
            inside.append(size)
            await leave.wait()

    events = [asyncio.Event() for _ in range(3)]
    tasks = [asyncio.create_task(go(size, event)) for size, event in zip((10, 5, 100), events, strict=True)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert inside == [10, 5], "the third waits"
    for event in events:
        event.set()
    await asyncio.gather(*tasks)
    assert inside == [10, 5, 100], "and what is larger than all goes alone"
