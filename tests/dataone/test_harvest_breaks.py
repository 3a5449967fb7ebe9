"""Whatever breaks in the middle: afterwards what we have is what the node has, whole, and each change is told once."""

import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from skep.dataone.asks import Bring, PlanHarvest
from skep.dataone.types import AccessPolicy, AccessRule
from skep.engines.db.base import Database
from skep.model.source import Failure, Held
from skep.testing.membernode import OPEN, Faults, MemberNode
from tests.dataone.farm import Farm, nothing
from tests.dataone.objects import EML
from tests.house.disk import filled


@pytest.fixture(autouse=True)
def small_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"harvest._OBJECTS": 7, "harvest._TAKE": 14, "listing.PAGE": 9, "kind.PAGE": 9}.items():
        monkeypatch.setattr(f"skep.dataone.{name}", value)
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
    subprocess.run(["umount", str(place)], check=True)


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
