"""What hooks, credentials and interest do to the schedule."""

import asyncio
from pathlib import Path

import pytest

from skep.fleet.members import MOST, Interest
from skep.rpc.messages import Fetched
from skep.sources.model import Failure, Held
from skep.sources.polling.schedule import Bounds, sooner
from skep.sources.source_type import Look
from tests.worker.test_poller import QUIET, bench, of
from tests.worker.upstreams import MemoryKind


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "worker.db"


async def test_a_burst_during_a_fetch_is_one_look_more(file: Path) -> None:
    kind = MemoryKind()
    kind.upstream["s"] = {"m": "A"}
    async with bench(file, kind) as one:
        kind.hang = "before"
        await one.hold("s")
        await kind.hung.wait()
        looks = kind.looks["s"]
        kind.upstream["s"] = {"m": "B"}
        for _ in range(500):
            await one.ask("s")
        kind.hang = ""
        one.poller._fetching["s"].cancel()  # the one that hangs; asked 500 times, it is looked at once more
        await one.until(lambda box: [o for o in box if isinstance(o.body, Fetched) and o.body.moves])
        assert kind.looks["s"] == looks + 1
        assert kind.history["s"] == [{"m": "B"}]


async def test_whoever_was_refused_is_asked_again_when_there_are_keys(file: Path) -> None:
    kind = MemoryKind()
    kind.upstream = {name: {"m": "A"} for name in ("s", "t", "u")}
    kind.failing = {"s": Failure("auth", "no"), "t": Failure("auth", "no"), "u": Failure("gone", "no")}
    async with bench(file, kind) as one:
        for name in "stu":
            await one.hold(name, f"https://{name}.org/x")
        # told is not yet in its queue
        await one.until(lambda box: len(box) == 3 and all(name in one.poller._turns.looks for name in "stu"))
        kind.failing = {}
        one.poller.unlocked({"s.org", "u.org"})
        await one.until(lambda box: len(box) == 4)
        assert kind.looks == {"s": 2, "t": 1, "u": 1}


class Slow(MemoryKind):
    """Looks end when they may, with what they began with."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: set[str] = set()
        self.may_end = asyncio.Event()

    async def look(self, source: Held, *, asked: bool = False) -> Look:
        found = await super().look(source, asked=asked)
        self.begun.add(source.source)
        await self.may_end.wait()
        return found


async def test_keys_that_come_while_it_is_being_refused_are_tried_at_once(file: Path) -> None:
    kind = Slow()
    kind.upstream = {name: {"m": "A"} for name in "stu"}
    kind.failing = {"s": Failure("auth", "no"), "t": Failure("auth", "no"), "u": Failure("gone", "no")}
    async with bench(file, kind) as one:
        for name, host in {"s": "s.org", "t": "t.org", "u": "s.org"}.items():
            await one.hold(name, f"https://{host}/{name}")
        await one.until(lambda box: len(kind.begun) == 3)
        del kind.failing["s"], kind.failing["u"]
        one.poller.unlocked({"s.org"})
        kind.may_end.set()
        box = await one.until(lambda box: len(box) == 4)
        assert [isinstance(outcome.body, Fetched) for outcome in of(box, "s")] == [False, True]
        assert kind.looks == {"s": 2, "t": 1, "u": 1}


async def test_interest_brings_the_next_look_forward(file: Path) -> None:
    kind = MemoryKind()
    kind.upstream = {"s": {"m": "A"}, "t": {"m": "A"}}
    async with bench(file, kind) as one:
        for name in "st":
            await one.hold(name)
        await one.until(lambda box: len(box) == 2)
        watches = [watch for name in "st" if (watch := await one.poller.find(name)) is not None]
        for watch in watches:
            watch.next_look = watch.last_looked + 40_000.0
            one.poller._queue(watch)
        one.poller.interest(["s", "elsewhere"])
        assert [round(watch.next_look - watch.last_looked) for watch in watches] == [10_000, 40_000]
        assert one.poller._turns.looks.due() == watches[0].next_look
        for _ in range(9):
            one.poller.interest(["s"])
        assert round(watches[0].next_look - watches[0].last_looked) == QUIET.poll_min


def test_never_sooner_than_the_bounds() -> None:
    bounds = Bounds(60.0, 3600.0)
    assert sooner(1000.0, 5000.0, bounds) == 2000.0
    assert sooner(1000.0, 1100.0, bounds) == 1060.0


def test_interest_is_bounded_and_told_once() -> None:
    interest = Interest()
    count, _ = interest.since(0)
    interest.note(["a", "b", "a"])
    count, found = interest.since(count)
    assert found == ["b", "a"]
    assert interest.since(count) == (count, [])
    interest.note(f"s{n}" for n in range(10 * MOST))
    assert len(interest.since(0)[1]) == MOST
