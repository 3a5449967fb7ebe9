"""The worker role: mirrors and indexes what it holds, and speaks only the link."""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
import uvloop

from skep.base.clock import Clock, MemberClock, SystemClock, behind
from skep.base.errors import BadInput, NewerSchema, Replaced, SkepError
from skep.base.logs import LineBuffer, set_up_logs
from skep.base.loops import CHILD_SECONDS, kept, on_signals, run_until
from skep.benchmarks.worker import Benchmarking, evaluated
from skep.config.settings import Settings
from skep.dataone.source_type import DataoneKind
from skep.fleet.api import Offer
from skep.fleet.tunnels import keep_id
from skep.indexing.manager import manage
from skep.indexing.worker import Indexing
from skep.mirrors.replication import KIND, Checking, Replicating
from skep.packages.service import WorkerPackagesPackages
from skep.processes.tunnel_sender import Giving
from skep.processes.up import Start, locked
from skep.results.worker import Recording
from skep.rpc.client import LinkClient
from skep.rpc.connect import Dial, joined
from skep.rpc.messages import PROTOCOL, Beat, FetchNow, Hello, Hold, Open, Order, Outcome, Refused, Release
from skep.runtime.command_task import Commanding
from skep.runtime.commands import Machine, allowed, full, machine_class, offered
from skep.runtime.runtime import Runtime
from skep.runtime.supervisor_client import end_marked
from skep.sources.git.mirror import folder_of
from skep.sources.git.process import OWNER
from skep.sources.git.source_type import GitKind
from skep.sources.model import Key
from skep.sources.polling.poller import Poller
from skep.sources.polling.store import Store
from skep.sources.source_type import Kind
from skep.storage.database import Database
from skep.storage.sqlite import open_sqlite
from skep.tasks.model import Run, Sample, TaskHold
from skep.tasks.worker import Doer, Doing

# What a worker offers to tasks: the kinds it does, its places for them, and what its machine is like.

#: less cannot come between two tasks that are asked for at once
_LEAST_OWN_SLOTS = 2
#: tasks that wait for what others do
_WAITING = 1000
#: no more than this part of a disk is kept free
_SMALLEST_PART = 8


class Offering:
    def __init__(self, settings: Settings, folder: Path, clock: Clock, kinds: Iterable[str], isolation: str) -> None:
        self._settings = settings
        self._isolation = isolation
        self._folder = folder
        self._full = False
        self._clock = clock
        self._machine = Machine(folder, settings, clock)
        self._facts = self._machine.facts()
        self._sample = self._machine.sample()
        self._kinds = (*kinds, *(offered(settings) if settings.run_tasks else ()))

    def offer(self) -> Offer:
        facts, sample = self._facts, self.sample()
        cores = os.cpu_count() or 1
        processes = self._settings.index_processes or cores
        return Offer(
            kinds=self._kinds,
            slots={
                "own": max(_LEAST_OWN_SLOTS, processes),
                "background": processes,
                "command": self._settings.task_slots or max(2, cores),
                "waiting": _WAITING,
            },
            labels=self._settings.labels,
            tools=tuple(sorted(facts.tools)),
            facts={
                "os": facts.os,
                "kernel": facts.kernel,
                "arch": facts.arch,
                "machine": facts.machine,
                "python": facts.python,
                "isolation": self._isolation,
                "network": "yes" if self._settings.task_network else "no",
                "cpu": float(facts.cpus),
                "memory": float(facts.memory),
                "disk": float(facts.disk_total),
                "disk_free": float(sample.disk_free),
                "memory_used": float(sample.memory_used),
                "load": sample.load[0],
                "cpu_percent": round(sample.cpu_percent, 1),
                "network_in": float(sample.network_in),
                "network_out": float(sample.network_out),
                "processes": float(sample.processes),
                "sampled_at": sample.at,
                **{f"limit.{name}": how for name, how in facts.limits.items()},
            },
            mirror=self._settings.mirror,
            name=self._settings.name or socket.gethostname(),
            capacity=self._settings.capacity,
        )

    def sample(self) -> Sample:
        if self._clock.now() - self._sample.at >= self._settings.sample_every:
            self._sample = self._machine.sample()
        return self._sample

    def ill(self) -> str:
        """Why nothing can be mirrored here; asked with each beat."""
        try:
            found = os.statvfs(self._folder)
        except OSError as error:
            return f"its disk cannot be read: {error.strerror}"
        free = found.f_bavail * found.f_frsize
        if found.f_flag & os.ST_RDONLY:
            return "its disk cannot be written to"
        # of a small disk a part; and once it began to give away, a little more room must come before it stops
        reserve = min(self._settings.disk_reserve, found.f_blocks * found.f_frsize // _SMALLEST_PART)
        self._full = free < reserve * (2 if self._full else 1)
        return f"{free:,} bytes are left on its disk, of {reserve:,} to be kept" if self._full else ""

    def refusal(self, run: Run, running: int) -> str:
        """Why a command is not run here and now; the dispatcher may know less than this machine does."""
        if run.spec.kind != "command":
            return ""
        return allowed(run.spec, self._settings) or full(self._settings, running, self.sample())


# A worker: holds sources, keeps their mirrors current, builds their indexes, and tells its coordinator of all that.

service_log = logging.getLogger(__name__)

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
        packages = WorkerPackagesPackages(
            self._settings, folder / "packages", store.member, link.ask, lambda: link.here
        )
        await packages.start()
        commanding = Commanding(self._settings, folder / "tasks", self._clock, link.ask, recording, packages, mirror)
        # nothing that an earlier process of this worker started may be alive when it says hello
        await commanding.runtime.start()
        if left := await asyncio.to_thread(end_marked, f"{OWNER}={self._data}"):
            service_log.warning("ended git processes of a worker that was killed", extra={"processes": left})
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
        service_log.warning(message, extra={"seconds": -round(forward)})
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


log = logging.getLogger("skep.worker")


def main() -> None:
    """As a child of `skep up`: settings from the first line of stdin, until stdin ends."""
    start = msgspec.json.decode(sys.stdin.buffer.readline(), type=Start)
    lines = set_up_logs(start.settings.log_level)
    try:
        # the worker of a server that was killed may still be on its way out
        folder = locked(Path(start.settings.data) / "worker")
        with folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_as_child(start, lines))
    except SkepError as error:
        log.error("the worker cannot run", extra={"reason": error.message, "hint": error.hint})
        sys.exit(1)


async def _as_child(start: Start, lines: LineBuffer) -> None:
    loop, stop = asyncio.get_running_loop(), on_signals(signal.SIGTERM)
    # Ctrl-C reaches the whole terminal: the parent decides, and closes the pipe
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    loop.add_reader(sys.stdin.fileno(), _at_end, stop)
    try:
        await run_until(stop, work(start.settings, start.link, start.token, lines), CHILD_SECONDS)
    finally:
        loop.remove_reader(sys.stdin.fileno())


async def work(settings: Settings, link: Dial, token: str, lines: LineBuffer) -> None:
    """Until a newer process of the same worker comes; one that fails begins anew, in the same process."""
    gc.freeze()  # what was imported stays: to look through it for garbage would stop the loop
    await kept(partial(_work, settings, link, token, lines), final=(BadInput, NewerSchema, Replaced))


async def _work(settings: Settings, link: Dial, token: str, lines: LineBuffer) -> None:
    data, clock = Path(settings.data), MemberClock()
    while True:  # it returns when its clock was set back
        kinds: dict[str, Kind] = {"git": GitKind(settings, data, clock), "dataone": DataoneKind(settings, data, clock)}
        await Worker(settings, data, link, token, clock, kinds, lines).run()


def _at_end(stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        stop.set()


# A worker or a manager by itself, on a machine of its own: no port, no database of others, only the link.


def member_main(settings: Settings) -> None:
    """Until SIGTERM or Ctrl-C. Ends with an error when a newer process of the same member has come."""
    settings = msgspec.structs.replace(settings, data=str(Path(settings.data).resolve()))
    dial, token = joined(settings)
    lines = set_up_logs(settings.log_level)
    folder = Path(settings.data) / ("worker" if "worker" in settings.roles else "manager")
    with locked(folder), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(settings, folder, dial, token, lines))


async def _run(settings: Settings, folder: Path, dial: Dial, token: str, lines: LineBuffer) -> None:
    stop = on_signals()
    if "worker" in settings.roles:
        await run_until(stop, work(settings, dial, token, lines))
    else:
        clock = SystemClock()
        name = settings.name or socket.gethostname()
        # a manager keeps nothing but who it is: its token is bound to that
        await run_until(stop, manage(dial, token, clock, keep_id(folder, "man", clock), name, lines))


if __name__ == "__main__":
    main()
