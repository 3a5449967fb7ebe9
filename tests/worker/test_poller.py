"""The poller with a real file, and upstreams in memory."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.rpc.messages import Failed, Fetched, FetchNow, Hold, Order, Outcome, Release
from skep.sources.model import Failure, Held, SourceSettings
from skep.sources.polling.poller import KEEP, Poller
from skep.sources.polling.store import Store
from skep.storage.sqlite import Sqlite
from tests.worker.upstreams import MemoryKind

QUIET = Settings(poll_min=3600.0, poll_max=7200.0, host_rate=1e6)
BUSY = msgspec.structs.replace(QUIET, poll_min=0.001, poll_max=0.002)


class Bench:
    """A store and a poller on one file; leaving the block is as sudden as a kill to what was not committed."""

    def __init__(self, store: Store, poller: Poller) -> None:
        self.store = store
        self.poller = poller
        self._n = 0

    async def hold(self, source: str, url: str = "", epoch: int = 1) -> None:
        self._n += 1
        await self.store.obey([Order(self._n, Hold(Held(source, 1, "memory", url or f"x://{source}/", epoch)))])
        await self.poller.hold(source)

    async def ask(self, source: str, epoch: int = 1) -> None:
        await self.poller.ask(source, epoch)
        await self.store.obey([Order(0, FetchNow(source, epoch))])

    async def outbox(self) -> list[Outcome]:
        return await self.store.outcomes(0, 1_000_000)

    async def until(self, ready: Callable[[list[Outcome]], object]) -> list[Outcome]:
        async with asyncio.timeout(60):
            while not ready(box := await self.outbox()):
                await asyncio.sleep(0.01)
        return box


@asynccontextmanager
async def bench(
    path: Path, kind: MemoryKind, chosen: Settings = QUIET, limit: int = 1000, keep: int = KEEP
) -> AsyncIterator[Bench]:
    db = Sqlite(path, full="OFF", runtime="OFF")
    clock = SystemClock()
    store = Store(db, clock, limit)
    await store.start()
    poller = Poller(store, {"memory": kind}, chosen, clock, keep=keep)
    await poller.load()
    task = asyncio.create_task(poller.run())
    try:
        yield Bench(store, poller)
        assert not task.done()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await db.close()


def of(box: list[Outcome], source: str) -> list[Outcome]:
    return [outcome for outcome in box if outcome.source == source]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "worker.db"


async def test_there_and_back_and_there_again_is_three_batches(file: Path) -> None:
    kind = MemoryKind()
    kind.upstream["s"] = {"m": "A"}
    async with bench(file, kind) as one:
        await one.hold("s")
        for n, version in enumerate("ABAB", start=1):
            kind.upstream["s"] = {"m": version}
            await one.ask("s")
            await one.until(lambda box, n=n: len([o for o in box if o.body.moves]) == n)  # type: ignore[misc]
        moves = [o.body.moves[0] for o in await one.outbox() if isinstance(o.body, Fetched) and o.body.moves]
        assert [(move.old, move.new) for move in moves] == [(None, "A"), ("A", "B"), ("B", "A"), ("A", "B")]
        batches = [o.body.batch for o in await one.outbox() if isinstance(o.body, Fetched)]
        assert len(set(batches)) == len(batches)


async def test_a_full_outbox_stops_everything_and_drops_nothing(file: Path) -> None:
    kind = MemoryKind()
    names = [f"s{n}" for n in range(50)]
    kind.upstream = {name: {"m": "A"} for name in names}
    async with bench(file, kind, limit=10) as one:
        for name in names:
            await one.hold(name)
        box = await one.until(lambda box: len(box) >= 10 and one.store.full)  # which is counted after it is stored
        seen: set[str] = set()
        while len(seen) < 50:
            # beyond the limit: what was under way, and what is stored but was settled before it was counted
            assert len(box) <= 10 + 2 * QUIET.fetch_concurrency
            seen |= {outcome.source for outcome in box}
            await one.store.settle([outcome.n for outcome in box])
            one.poller.kick()
            if len(seen) < 50:
                box = await one.until(lambda box: box)
        assert seen == set(names)


async def test_what_takes_long_has_a_lane_of_its_own(file: Path) -> None:
    kind = MemoryKind()
    names = [f"s{n}" for n in range(30)]
    kind.upstream = {name: {"m": "A"} for name in (*names, "huge0", "huge1", "huge2", "huge3", "huge4")}
    kind.slow = {name for name in kind.upstream if name.startswith("huge")}
    async with bench(file, kind, msgspec.structs.replace(QUIET, fetch_concurrency=2)) as one:
        for name in sorted(kind.upstream):
            await one.hold(name)
        box = await one.until(lambda box: len(box) >= 30)
        assert {outcome.source for outcome in box} == set(names), "nothing waits behind the huge ones"
        kind.slow = set()
        kind.released.set()
        await one.until(lambda box: len(box) == 35)


async def test_other_settings_and_an_accepted_loss_are_looked_at_at_once(file: Path) -> None:
    kind = MemoryKind()
    kind.upstream["s"] = {"m": "A"}
    async with bench(file, kind) as one:
        await one.hold("s")
        await one.until(lambda box: len(box) == 1)
        held = Held("s", 1, "memory", "x://s/", 1)
        for n, changed in enumerate(
            (
                msgspec.structs.replace(held, settings=SourceSettings(force_push="ask")),
                msgspec.structs.replace(held, settings=SourceSettings(force_push="ask"), accepted="emptied:1"),
            ),
            start=2,
        ):
            for _ in range(3):  # orders are repeated
                await one.store.obey([Order(n, Hold(changed))])
                await one.poller.hold("s")
            await one.until(lambda box, n=n: len(box) == n)  # type: ignore[misc]
            watch = await one.poller.find("s")
            assert watch is not None and watch.held.accepted == changed.accepted
            assert kind.looks["s"] == n


async def test_hundreds_of_sources_take_turns(file: Path) -> None:
    kind = MemoryKind()
    names = [f"s{n}" for n in range(200)]
    kind.upstream = {name: {"m": "A"} for name in names}
    async with bench(file, kind, BUSY) as one:
        orders = [Order(n, Hold(Held(name, n, "memory", f"x://h{n % 9}/", 1))) for n, name in enumerate(names)]
        await one.store.obey(orders)
        for name in names:
            await one.poller.hold(name)
        await one.until(lambda box: len(box) == 200)
        before = dict(kind.looks)
        async with asyncio.timeout(60):
            while sum(kind.looks.values()) < sum(before.values()) + 4000:
                await asyncio.sleep(0.01)
        since = [kind.looks[name] - before[name] for name in names]
        assert min(since) > 0
        assert max(since) < 4 * min(since) + 8
        # a fetch whose announcement was not kept looks again
        assert kind.most <= BUSY.poll_concurrency + BUSY.fetch_concurrency


async def test_one_host_is_not_asked_by_more_than_its_share(file: Path) -> None:
    kind = MemoryKind()
    names = [f"s{n}" for n in range(100)]
    kind.upstream = {name: {"m": "A"} for name in names}
    async with bench(file, kind, msgspec.structs.replace(BUSY, host_concurrency=3)) as one:
        for name in names:
            await one.hold(name, url="x://one/")
        await one.until(lambda box: len(box) == 100)
    assert kind.most <= 3


async def test_a_failure_is_told_when_it_begins_and_when_it_ends(file: Path) -> None:
    kind = MemoryKind()
    kind.upstream["s"] = {"m": "A"}
    async with bench(file, kind) as one:
        await one.hold("s")
        await one.until(lambda box: len(box) == 1)
        kind.failing["s"] = Failure("network", "no route")
        await one.ask("s")
        # told is not yet in its queue
        box = await one.until(lambda box: len(box) == 2 and "s" in one.poller._turns.looks)
        assert isinstance(box[1].body, Failed)
        del kind.failing["s"]
        watch = one.poller._watches.get("s")
        assert watch is not None
        assert watch.failures == 1
        one.poller._turns.bump("s")
        one.poller.kick()
        box = await one.until(lambda box: len(box) == 3)
        assert box[2].body == Fetched(box[2].body.batch, (), False, "")  # type: ignore[union-attr]


async def test_a_host_that_wants_rest_gets_it_over_a_restart(file: Path) -> None:
    kind = MemoryKind()
    kind.upstream = {"s": {"m": "A"}, "t": {"m": "A"}}
    kind.failing["s"] = Failure("rate_limited", "slow down", retry_after=500.0)
    async with bench(file, kind) as one:
        await one.hold("s", url="x://one/s")
        box = await one.until(lambda box: len(box) == 1)
        assert box[0].next_poll >= box[0].at + 500
    async with bench(file, kind) as one:
        await one.hold("t", url="x://one/t")
        await one.hold("u", url="x://two/u")
        kind.upstream["u"] = {}
        await one.until(lambda box: of(box, "u"))
        assert kind.looks.get("t") is None


async def test_another_epoch_forgets_and_an_old_one_is_ignored(file: Path) -> None:
    kind = MemoryKind()
    kind.upstream["s"] = {"m": "A"}
    async with bench(file, kind) as one:
        await one.hold("s", epoch=3)
        await one.until(lambda box: len(box) == 1)
        await one.hold("s", epoch=2)
        await one.hold("s", epoch=3)
        await one.hold("s", epoch=4)
        box = await one.until(lambda box: len(box) == 2)
        assert [(o.epoch, o.body.first) for o in box] == [(3, True), (4, True)]  # type: ignore[union-attr]


async def test_a_new_address_is_looked_at_and_batches_go_on(file: Path) -> None:
    kind = MemoryKind()
    kind.upstream["s"] = {"m": "A"}
    async with bench(file, kind) as one:
        kind.hang = "before"
        await one.hold("s", url="x://old/")
        await kind.hung.wait()
        kind.hang = ""
        await one.hold("s", url="x://new/")
        box = await one.until(lambda box: len(box) == 1)
        await one.hold("s", url="x://newer/")
        box = await one.until(lambda box: len(box) == 2)
        assert len({o.body.batch for o in box if isinstance(o.body, Fetched)}) == 2
        assert [len(o.body.moves) for o in box if isinstance(o.body, Fetched)] == [1, 0]


async def test_release_and_hold_again_while_the_fetch_still_runs(file: Path) -> None:
    kind = MemoryKind()
    kind.upstream["s"] = {"m": "A"}
    async with bench(file, kind) as one:
        kind.hang = "after"
        await one.hold("s")
        await kind.hung.wait()
        kind.hang = ""
        await one.store.obey([Order(5, Release("s"))])
        await one.poller.drop("s")
        await one.hold("s", epoch=2)
        box = await one.until(lambda box: box)
        assert box[0].epoch == 2
        await one.store.obey([Order(6, Release("s"))])
        await one.poller.drop("s")
        async with asyncio.timeout(60):
            while await one.store.released() or kind.mirror:
                await asyncio.sleep(0.002)
        assert await one.store.next((-1.0, ""), 10) == []


async def test_a_bug_in_a_kind_is_a_failure_of_one_source(file: Path) -> None:
    kind = MemoryKind()
    kind.upstream["good"] = {"m": "A"}
    async with bench(file, kind) as one:
        await one.hold("bad")
        await one.hold("good")
        box = await one.until(lambda box: len(box) == 2)
        (failed,) = of(box, "bad")
        assert isinstance(failed.body, Failed)
        assert failed.body.failure.kind == "internal"


async def test_the_schedule_goes_on_where_it_was(file: Path) -> None:
    kind = MemoryKind()
    kind.upstream["s"] = {"m": "A"}
    async with bench(file, kind) as one:
        await one.hold("s")
        box, boot = await one.until(lambda box: box), one.store.boot
    async with bench(file, kind) as one:
        (watch,) = await one.store.next((-1.0, ""), 10)
        assert watch.next_look == box[0].next_poll
        assert one.store.boot > boot
    assert kind.looks["s"] == 1


class NothingIsSwallowed(RuleBasedStateMachine):
    """However a worker is killed, everything its mirror ever was is told, in order, at least once."""

    def __init__(self) -> None:
        super().__init__()
        self.told: dict[str, Fetched] = {}
        self.file = Path(tempfile.mkdtemp(dir=self.folder)) / "worker.db"

    folder = ""

    async def _start(self) -> None:
        if not hasattr(self, "kind"):
            self.kind = MemoryKind()
            self.kind.upstream["s"] = {"m": "0"}
            async with bench(self.file, self.kind) as one:
                await one.store.obey([Order(1, Hold(Held("s", 1, "memory", "x://h/", 1)))])

    @rule(version=st.sampled_from("ABC"), other=st.booleans())
    def upstream_moves(self, version: str, other: bool) -> None:
        asyncio.run(self._start())
        self.kind.upstream["s"] = {"m": version, "n": version} if other else {"m": version}

    @rule(place=st.sampled_from(["before", "after", ""]), ack=st.booleans())
    def poll(self, place: str, ack: bool) -> None:
        asyncio.run(self._poll(place, ack))

    async def _poll(self, place: str, ack: bool) -> None:
        await self._start()
        kind = self.kind
        kind.hang, kind.hung = place, asyncio.Event()
        async with bench(self.file, kind) as one:
            have = len(await one.outbox())
            await one.ask("s")
            hung = asyncio.create_task(kind.hung.wait())
            told = asyncio.create_task(one.until(lambda box: len(box) > have and not _asked(one)))
            await asyncio.wait([hung, told], return_when=asyncio.FIRST_COMPLETED)
            for task in (hung, told):
                task.cancel()
            await asyncio.wait([hung, told])
            await self._deliver(one, ack)
        kind.hang = ""

    async def _deliver(self, one: Bench, ack: bool) -> None:
        box = await one.outbox()
        for outcome in box:
            assert isinstance(outcome.body, Fetched)
            known = self.told.setdefault(outcome.body.batch, outcome.body)
            assert known == outcome.body
        if ack:
            await one.store.settle([outcome.n for outcome in box])

    def teardown(self) -> None:
        asyncio.run(self._poll("", True))
        asyncio.run(self._poll("", True))
        state: dict[str, str] = {}
        states = []
        for body in self.told.values():
            for move in body.moves:
                assert state.get(move.entry) == move.old
                if move.new is None:
                    del state[move.entry]
                else:
                    state[move.entry] = move.new
            if body.moves:
                states.append(dict(state))
        assert states == self.kind.history["s"]
        assert state == self.kind.upstream["s"]


def _asked(one: Bench) -> bool:
    watch = one.poller._watches.get("s")
    return watch is None or bool(watch.asks)


def test_nothing_is_swallowed(tmp_path: Path) -> None:
    NothingIsSwallowed.folder = str(tmp_path)
    run_state_machine_as_test(
        NothingIsSwallowed,
        settings=settings(
            max_examples=20,
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        ),
    )
