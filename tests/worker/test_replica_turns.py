"""A replica in the poller: it follows its holder and nobody else, in the same hands as everything that is held."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.mirrors.replication import Replicating
from skep.rpc.connect import Dial
from skep.rpc.messages import Hold, Order, Release
from skep.sources.model import Held
from skep.sources.polling.store import Watch
from skep.tasks.model import Run, TaskSpec
from tests.worker.test_poller import Bench, bench
from tests.worker.upstreams import MemoryKind


class Holder:
    """Of replicas; says why it cannot give, or waits."""

    def __init__(self) -> None:
        self.followed: list[str] = []
        self.reason = ""
        self.open = asyncio.Event()
        self.open.set()

    async def follow(self, watch: Watch) -> str:
        self.followed.append(watch.source)
        await self.open.wait()
        return self.reason

    async def asked(self, times: int) -> None:
        await eventually(lambda: len(self.followed) >= times)


async def eventually(ready: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not ready():
            await asyncio.sleep(0.01)


async def order(one: Bench, n: int, epoch: int = 1, *, primary: bool) -> None:
    await one.store.obey([Order(n, Hold(Held("src_1", 1, "memory", "x://host/", epoch, primary=primary)))])
    await one.poller.hold("src_1")


async def test_a_replica_follows_when_it_is_told_to_and_tells_nothing(tmp_path: Path) -> None:
    kind, holder = MemoryKind(), Holder()
    async with bench(tmp_path / "w.db", kind) as one:
        one.poller.visits.follow = holder.follow
        await order(one, 1, primary=False)
        await holder.asked(1)
        await order(one, 2, primary=False)
        await holder.asked(2)
        holder.open.clear()
        await order(one, 3, primary=False)
        await holder.asked(3)
        await order(one, 4, primary=False)  # it changed again while it was copied
        holder.open.set()
        await holder.asked(4)
        watch = await one.poller.find("src_1")
        assert watch is not None
        await eventually(lambda: watch.next_look > watch.last_looked + 3600)
        one.poller.interest(["src_1"])
        assert not kind.looks and not await one.outbox() and not one.poller.looked()
    # a restart forgets nothing, and what was not brought is brought
    async with bench(tmp_path / "w.db", kind) as one:
        one.poller.visits.follow = holder.follow
        holder.reason = "its holder is away"
        await order(one, 5, primary=False)
        await holder.asked(5)
        later = await one.poller.find("src_1")
        assert later is not None and not later.held.primary
        await eventually(lambda: later.failures == 1 and later.next_look > later.last_looked)
        assert not await one.outbox()


async def test_at_one_epoch_the_later_order_says_what_it_is(tmp_path: Path) -> None:
    """An order may be put together a moment after the source has got another holder."""
    kind, holder = MemoryKind(), Holder()
    kind.upstream["src_1"] = {"refs/heads/main": "a"}
    async with bench(tmp_path / "w.db", kind) as one:
        one.poller.visits.follow = holder.follow
        await order(one, 1, epoch=2, primary=False)
        await order(one, 2, epoch=2, primary=True)
        assert await one.until(lambda box: box)
        await order(one, 3, epoch=3, primary=True)
        await order(one, 4, epoch=3, primary=False)
        watch = await one.store.watch("src_1")
        assert watch is not None and not watch.held.primary
        await order(one, 5, epoch=2, primary=True)  # an older one changes nothing
        watch = await one.store.watch("src_1")
        assert watch is not None and not watch.held.primary and watch.held.epoch == 3


async def test_a_replica_that_is_let_go_while_it_is_copied_is_removed(tmp_path: Path) -> None:
    kind, holder = MemoryKind(), Holder()
    holder.open.clear()
    async with bench(tmp_path / "w.db", kind) as one:
        one.poller.visits.follow = holder.follow
        await order(one, 1, primary=False)
        await holder.asked(1)
        await one.store.obey([Order(2, Release("src_1"))])
        await one.poller.drop("src_1")
        async with asyncio.timeout(60):
            while await one.store.released() or await one.store.sources():
                await asyncio.sleep(0.01)


async def test_what_a_replica_planned_is_not_the_plan_of_a_holder(tmp_path: Path) -> None:
    """It rests for a day; what becomes of it may be written when it is the holder already."""
    kind, holder = MemoryKind(), Holder()
    kind.upstream["src_1"] = {"m": "A"}
    async with bench(tmp_path / "w.db", kind) as one:
        one.poller.visits.follow = holder.follow
        for n, epoch in ((1, 1), (3, 2)):  # in an epoch of its own, or in the same
            await order(one, n, epoch=epoch, primary=False)
            await holder.asked(epoch)
            watch = await one.poller.find("src_1")
            assert watch is not None
            await eventually(lambda: watch.next_look > watch.last_looked + 3600)  # noqa: B023
            await one.store.obey([Order(n + 1, Hold(Held("src_1", 1, "memory", "x://host/", 2, primary=True)))])
            one.store.note(watch)
            await one.store.flush()
            fresh = await one.store.watch("src_1")
            assert fresh is not None and fresh.next_look < time.time() + 60


async def test_a_task_that_waits_for_its_copy_is_stopped_whatever_comes_at_that_moment(tmp_path: Path) -> None:
    async def nothing(_: object, __: object = None) -> None: ...

    settings = Settings(data=str(tmp_path))
    replicating = Replicating(settings, "wrk_1", {}, nothing, lambda: Dial(()), SystemClock())  # type: ignore[arg-type]
    spec = TaskSpec("copy", "replicate", arguments={"source": "src_1"})
    task = asyncio.create_task(replicating.replicate(Run("tsk_1", 1, "ctx_1", "copy", spec), nothing))
    await asyncio.sleep(0)  # it has begun to wait
    replicating._followed.set()
    replicating._followed = asyncio.Event()
    task.cancel()
    await asyncio.wait([task], timeout=0.5)
    assert task.cancelled()
