"""More sources than memory keeps: those due soon are in memory, the others in the file, and none is forgotten."""

import asyncio
import random
from pathlib import Path

import msgspec
import pytest

from skep.base.clock import SystemClock
from skep.rpc.messages import Hold, Order, Release
from skep.sources.model import Failure, Held, SourceSettings
from skep.sources.polling.poller import Watches
from skep.sources.polling.schedule import Rest
from skep.sources.polling.store import Store, Watch
from skep.storage.sqlite import Sqlite
from tests.worker.test_poller import BUSY, QUIET, Bench, bench, of
from tests.worker.upstreams import MemoryKind

NAMES = [f"s{n:03}" for n in range(120)]
KEEP = 12


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "worker.db"


@pytest.fixture
def kind() -> MemoryKind:
    kind = MemoryKind()
    kind.upstream = {name: {"m": "A"} for name in NAMES}
    return kind


async def hold_all(one: Bench) -> None:
    helds = [Held(name, n, "memory", f"x://{name}/", 1) for n, name in enumerate(NAMES)]
    await one.store.obey([Order(n, Hold(held)) for n, held in enumerate(helds)])
    for name in NAMES:
        await one.poller.hold(name)


def near(one: Bench) -> set[str]:
    return {watch.source for watch in one.poller._watches}


async def all_told(file: Path, kind: MemoryKind) -> str:
    """Everybody is held and fetched; the name of one that is far at the next start."""
    async with bench(file, kind, keep=KEEP) as one:
        await hold_all(one)
        await one.until(lambda box: len(box) == len(NAMES))
        assert len(near(one)) < len(NAMES)
        await one.store.settle([outcome.n for outcome in await one.outbox()])
    async with bench(file, kind, keep=KEEP) as one:
        assert len(near(one)) < 2 * KEEP
        return min(set(NAMES) - near(one))


async def test_all_come_in_turn_though_few_are_in_memory(file: Path, kind: MemoryKind) -> None:
    slow = msgspec.structs.replace(BUSY, poll_min=0.4, poll_max=0.8)
    async with bench(file, kind, slow, keep=KEEP) as one:
        await hold_all(one)
        await one.until(lambda box: len(box) == len(NAMES))
        async with asyncio.timeout(120):
            while min(kind.looks.get(name, 0) for name in NAMES) < 3:
                await asyncio.sleep(0.01)


async def test_a_far_one_is_asked_for(file: Path, kind: MemoryKind) -> None:
    far = await all_told(file, kind)
    kind.upstream[far] = {"m": "B"}
    async with bench(file, kind, keep=KEEP) as one:
        await one.ask(far)
        (told,) = await one.until(lambda box: box)
        assert told.source == far
    watch = await _stored(file, far)
    assert watch is not None
    assert not watch.asks


async def test_a_far_one_is_released_and_another_address_is_looked_at(file: Path, kind: MemoryKind) -> None:
    far = await all_told(file, kind)
    async with bench(file, kind, keep=KEEP) as one:
        other = max(set(NAMES) - near(one))
        await one.store.obey([Order(1, Release(far))])
        await one.poller.drop(far)
        async with asyncio.timeout(60):
            while await one.store.released() or far in kind.mirror:
                await asyncio.sleep(0.002)
        looks = kind.looks[other]
        await one.hold(other, url="x://elsewhere/")
        await one.until(lambda box: of(box, other))
        assert kind.looks[other] == looks + 1


async def test_a_far_one_hears_of_other_settings(file: Path, kind: MemoryKind) -> None:
    far = await all_told(file, kind)
    async with bench(file, kind, keep=KEEP) as one:
        looks = kind.looks[far]
        changed = Held(far, 1, "memory", f"x://{far}/", 1, settings=SourceSettings(poll_max=9000.0))
        for n in range(3):  # orders are repeated
            await one.store.obey([Order(n, Hold(changed))])
            await one.poller.hold(far)
        async with asyncio.timeout(60):
            while kind.looks[far] == looks:
                await asyncio.sleep(0.01)
        assert kind.looks[far] == looks + 1


async def test_a_far_one_hears_of_keys_and_interest(file: Path, kind: MemoryKind) -> None:
    far = await all_told(file, kind)
    async with bench(file, kind, keep=KEEP) as one:
        refused = await one.store.watch(far)
        assert refused is not None
        refused.failure, refused.failures = "auth", 1
        one.store.note(refused)
        await one.store.flush()
        one.poller.unlocked({far})
        await one.until(lambda box: of(box, far))
        interesting = max(set(NAMES) - near(one))
        before = await one.store.watch(interesting)
        one.poller.interest([interesting])
        async with asyncio.timeout(60):
            while interesting not in near(one):
                await asyncio.sleep(0.01)
        watch = await one.poller.find(interesting)
        assert watch is not None
        assert before is not None
        assert watch.next_look <= before.next_look


async def test_estimate_bounds_and_rests_survive_a_restart(file: Path, kind: MemoryKind) -> None:
    budget = msgspec.structs.replace(QUIET, poll_budget=5.0)
    kind.failing["s001"] = Failure("rate_limited", "slow down", retry_after=500.0)
    async with bench(file, kind, budget) as one:
        await hold_all(one)
        await one.until(lambda box: len(box) == len(NAMES))
        await one.ask("s000")
        await one.until(lambda box: len(box) == len(NAMES) + 1)
        watch = one.poller._watches.get("s000")
        assert watch is not None
        load, cells = one.poller._policy.load(), one.poller._policy._cells
        assert load > 0
    async with bench(file, kind, budget) as one:
        again = one.poller._watches.get("s000")
        assert again is not None
        names = ("changes", "observed", "wait", "bounds", "last_changed", "next_look")
        assert [getattr(again, name) for name in names] == [getattr(watch, name) for name in names]
        kept = one.poller._policy._cells
        assert {key: cell.count for key, cell in kept.items()} == {key: cell.count for key, cell in cells.items()}
        rests = await one.store.rests()
        assert rests.keys() == {"s001"}
        assert isinstance(rests["s001"], Rest)
        assert rests["s001"].pace == 0.5


async def test_a_budget_holds_the_looks_back(file: Path, kind: MemoryKind) -> None:
    """120 are due; the budget of ten minutes is 30."""
    async with bench(file, kind, msgspec.structs.replace(QUIET, poll_budget=0.05)) as one:
        await hold_all(one)
        await one.until(lambda box: len(box) >= 30)
        await one.poller.ask("s119", 1)
        assert sum(kind.looks.values()) <= 31


async def _stored(file: Path, source: str) -> Watch | None:
    db = Sqlite(file, full="OFF", runtime="OFF")
    try:
        return await Store(db, SystemClock()).watch(source)
    finally:
        await db.close()


class Hand:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def random(self) -> float:
        return 0.5


@pytest.mark.parametrize("seed", range(12))
async def test_whoever_comes_before_the_horizon_is_in_memory(file: Path, seed: int) -> None:
    """A walk: sources come, go, are looked at and written, pages are read meanwhile."""
    chance, clock = random.Random(seed), Hand()
    db = Sqlite(file, full="OFF", runtime="OFF")
    try:
        store = Store(db, clock)
        await store.start()
        watches = Watches(store, keep=8)
        held: dict[str, float] = {}
        for step in range(250):
            await _step(chance, clock, store, watches, held, step)
            for name, due in held.items():
                assert name in watches or (due, name) > watches._horizon, (step, name)
            assert all(watch.source in held for watch in watches)
        await watches.tidy(lambda _: True)
        clock.time += 1e6
        await watches.more(clock.time)
        assert {watch.source for watch in watches} == set(held), "with time, everybody comes"
    finally:
        await db.close()


async def _step(
    chance: random.Random, clock: Hand, store: Store, watches: Watches, held: dict[str, float], step: int
) -> None:
    match chance.randrange(6):
        case 0 | 1:
            reading = asyncio.create_task(watches.more(clock.time)) if chance.random() < 0.5 else None
            for name in (f"{chance.randrange(99):02}-{step}-{n}" for n in range(chance.randrange(9))):
                await store.obey([Order(1, Hold(Held(name, 1, "memory", "x://h/", 1)))])
                fresh = await store.watch(name)
                assert fresh is not None
                held[name] = fresh.next_look
                watches.offer(fresh)
            if reading:
                await reading
        case 2 if held:
            name = chance.choice(sorted(held))
            reading = asyncio.create_task(watches.more(clock.time))
            await asyncio.sleep(0)
            await store.obey([Order(1, Release(name))])
            watches.pop(name)
            del held[name]
            await reading
        case 3 | 4:
            for watch in chance.sample(sorted(watches, key=lambda watch: watch.source), k=min(4, len(list(watches)))):
                watch.next_look = held[watch.source] = clock.time + chance.choice([1.0, 30.0, 900.0, 9000.0])
                store.note(watch)
                watches.moved(watch.source)
            await watches.tidy(lambda _: chance.random() < 0.9)
        case _:
            clock.time += chance.choice([0.0, 10.0, 400.0])
            await watches.more(clock.time)
