"""A worker: holds sources, keeps their mirrors current, builds their indexes, and tells its coordinator of all that."""

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from skep.clock import Clock, MemberClock, behind
from skep.config import Settings
from skep.engines.db.base import Database
from skep.engines.db.sqlite import open_sqlite
from skep.link.client import LinkClient
from skep.link.dial import Dial
from skep.link.lines import LineBuffer
from skep.link.messages import PROTOCOL, Beat, FetchNow, Hello, Hold, Open, Order, Outcome, Refused, Release
from skep.loops import kept
from skep.manager.service import manage
from skep.model.credential import Key
from skep.model.task import Run, TaskHold
from skep.runtime.facts import machine_class
from skep.runtime.leftovers import end_marked
from skep.runtime.service import Runtime
from skep.sources.base import Kind
from skep.sources.git.mirror import folder_of
from skep.sources.git.process import OWNER
from skep.worker.benchmarking import Benchmarking, evaluated
from skep.worker.checking import Checking
from skep.worker.commanding import Commanding
from skep.worker.doer import Doer, Doing
from skep.worker.giving import Giving
from skep.worker.indexing import Indexing
from skep.worker.offering import Offering
from skep.worker.packages import Packages
from skep.worker.poller import Poller
from skep.worker.recording import Recording
from skep.worker.replicating import KIND, Replicating
from skep.worker.store import Store

log = logging.getLogger(__name__)

#: how long a start waits for the credentials
_KEYS_SECONDS = 10.0
#: seconds that a clock may be set back and nobody need notice
_UNNOTICED = 10.0


class _SetBack(Exception):
    """What this process believes to be due lies hours ahead, perhaps."""


class Worker:
    def __init__(
        self,
        settings: Settings,
        data: Path,
        link: Dial | str,
        token: str,
        clock: Clock,
        kinds: Mapping[str, Kind],
        lines: LineBuffer | None = None,
    ) -> None:
        self._settings = settings
        self._data = data.absolute()
        self._link = link
        self._token = token
        self._clock = clock
        self._kinds = kinds
        self._lines = lines

    async def run(self) -> None:
        """Until cancelled, or its clock was set back: then children are ended and nothing is half told."""
        db = await open_sqlite("sqlite:worker/worker.db", data=self._data, durability="delayed")
        try:
            await self._run(db)
        except ExceptionGroup as errors:
            if errors.subgroup(_SetBack) is None:
                raise errors.exceptions[0] from None
        finally:
            for kind in self._kinds.values():
                await kind.close()
            await db.close()

    async def _run(self, db: Database) -> None:
        store = Store(db, self._clock)
        await store.start()
        post = _Post(store, self._token, self._kinds, self._clock)
        link = LinkClient(post, self._link, self._clock)
        for kind in self._kinds.values():
            kind.connect(link.ask)
        post.poller = Poller(store, self._kinds, self._settings, self._clock, link.hurry)
        indexing = Indexing(store, post.poller, self._settings, self._data, self._clock, link.ask, link.hurry)
        post.indexing = indexing
        mirror = partial(folder_of, self._data)
        recording = Recording(db, link.ask, machine_class())
        await recording.start()
        folder = self._data / "worker"
        packages = Packages(self._settings, folder / "packages", store.member, link.ask, lambda: link.here)
        await packages.start()
        commanding = Commanding(self._settings, folder / "tasks", self._clock, link.ask, recording, packages, mirror)
        # nothing that an earlier process of this worker started may be alive when it says hello
        await commanding.runtime.start()
        if left := await asyncio.to_thread(end_marked, f"{OWNER}={self._data}"):
            log.warning("ended git processes of a worker that was killed", extra={"processes": left})
        await indexing.start()
        own: dict[str, Doing] = {"noop": _noop}
        post.benchmarking = Benchmarking(link.ask, mirror, commanding.do)
        if self._settings.run_tasks:
            own |= {"benchmark": post.benchmarking.generate, "evaluate": partial(evaluated, ask=link.ask)}
        checking = Checking(post.poller, self._kinds, store, self._clock, self._settings.fsck_every)
        if self._settings.mirror:
            replicating = Replicating(
                self._settings, store.member, self._kinds, link.ask, lambda: link.here, self._clock
            )
            post.poller.visits.copy, post.poller.visits.follow = replicating.recover, replicating.follow
            copied = partial(replicating.replicate, find=store.watch)
            own |= {**indexing.kinds, "fsck": checking.fsck, KIND: copied}
        post.offering = Offering(self._settings, self._data, self._clock, own, commanding.runtime.isolation)
        kinds, lease = {**own, "command": commanding.do}, commanding.runtime.lease
        post.doer = Doer(kinds, link.ask, post.offering.offer, post.refusal, self._clock, lease)
        post.commands = commanding.runtime
        post.giving = Giving(store, self._data, lambda: link.here, indexing.made)
        post.poller.removal.giving = post.giving
        store.on_outcome = link.ring
        if not (self._data / "mirrors").exists():
            await store.look_now()  # it is a new worker, or its disk was lost
        await post.poller.load()
        try:
            await self._loops(store, post, link, checking, recording)
        finally:
            await post.giving.close()
            await indexing.close()
            await commanding.runtime.close()

    async def _loops(
        self, store: Store, post: "_Post", link: LinkClient, checking: Checking, recording: Recording
    ) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_poll(post))
            group.create_task(kept(checking.patrol))
            group.create_task(kept(post.doer.run))
            group.create_task(link.run())
            group.create_task(_watch_clock(post, store))
            group.create_task(kept(recording.run))
            if self._lines is not None:
                group.create_task(kept(partial(self._lines.run, link.ask)))
            if "manager" in self._settings.roles:
                group.create_task(manage(self._link, self._token, self._clock, f"man_{store.member[4:]}"))


class _Post:
    """The worker as the link sees it."""

    poller: Poller
    indexing: Indexing
    doer: Doer
    offering: Offering
    commands: Runtime
    benchmarking: Benchmarking
    giving: Giving

    def __init__(self, store: Store, token: str, kinds: Mapping[str, Kind], clock: Clock) -> None:
        self._clock = clock
        self.set_back = asyncio.Event()
        self._store = store
        self._token = token
        self._kinds = kinds
        self._keys: set[Key] = set()
        self.unlocked = asyncio.Event()

    def hello(self) -> Hello:
        return Hello(
            PROTOCOL,
            self._store.member,
            self._token,
            self._store.boot,
            offer=self.offering.offer(),
            running=self.doer.running,
            at=self._clock.now(),
        )

    def refusal(self, run: Run) -> str:
        return self.offering.refusal(run, len(self.commands.running) - self.benchmarking.children)

    def begin(self, runs: Sequence[Run]) -> None:
        self.doer.begin(runs)

    def stop(self, tasks: Sequence[TaskHold]) -> None:
        self.doer.stop(tasks)

    def unlock(self, keys: Sequence[Key]) -> None:
        for kind in self._kinds.values():
            kind.unlock(keys)
        fresh = set(keys) - self._keys
        self._keys = set(keys)
        self.unlocked.set()
        self.poller.unlocked({key.host for key in fresh})

    def interest(self, sources: Sequence[str]) -> None:
        self.poller.interest(sources)

    def set_clock(self, now: float, said: float) -> None:
        forward = behind(said, self._clock.now(), now)
        if not forward or not isinstance(self._clock, MemberClock):
            return
        self._clock.move(forward)
        message = "the clock of this machine is off; the coordinator's is followed"
        log.warning(message, extra={"seconds": -round(forward)})
        if forward < -_UNNOTICED:
            self.set_back.set()

    def share(self, start: float, end: float) -> None:
        self.poller.share(start, end)

    def open(self, asked: Open) -> None:
        self.giving.open(asked)

    def beat(self) -> Beat:
        load = os.getloadavg()[0] / (os.cpu_count() or 1)
        progress = {**self.poller.progress, **self.indexing.progress}
        ill = self.offering.ill()
        status = f"draining: {ill}" if ill else self._status()
        return Beat(status, load, self.poller.looked(), progress, ill, self._clock.now())

    async def obey(self, orders: Sequence[Order]) -> None:
        for order in orders:
            if isinstance(order.body, FetchNow):
                await self.poller.ask(order.body.source, order.body.epoch)
        await self._store.obey(orders)
        for order in orders:
            match order.body:
                case Hold(held):
                    await self.poller.hold(held.source)
                case Release(source):
                    await self.poller.drop(source)
        await self.poller.rest()

    async def outcomes(self, after: int, limit: int) -> list[Outcome]:
        return await self._store.outcomes(after, limit)

    async def settle(self, acked: Sequence[int], refused: Sequence[Refused]) -> None:
        numbers = [*acked, *(answer.n for answer in refused if answer.n is not None)]
        await self._store.settle(numbers)
        self.poller.kick()

    def _status(self) -> str:
        doing = [f"fetching {url}" for url in self.poller.fetching()]
        doing += [f"indexing {source}" for source in self.indexing.progress]
        doing += [f"running {task}" for task, _ in self.commands.running]
        more = f" and {len(doing) - 1} more" if len(doing) > 1 else ""
        return f"{doing[0]}{more}" if doing else "idle"


async def _poll(post: _Post) -> None:
    """Credentials come with the link; without a coordinator, what needs none is polled all the same."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_KEYS_SECONDS):
            await post.unlocked.wait()
    await post.poller.run()


async def _watch_clock(post: _Post, store: Store) -> None:
    await post.set_back.wait()
    await store.set_back()
    raise _SetBack


async def _noop(run: Run) -> None:
    """Does nothing: for trying out, and for measuring what a task costs."""
