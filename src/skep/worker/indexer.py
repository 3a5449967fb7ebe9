"""Builds the indexes that were ordered, a few at a time, and puts each into the outbox once it is durable."""

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from skep.clock import Clock
from skep.config import Settings
from skep.errors import SkepError
from skep.link.messages import Built, Failed
from skep.model.ids import new_id
from skep.model.source import Failure, Progress
from skep.sources.git.mirror import folder_of
from skep.worker.builders import Builders, BuildFailed
from skep.worker.jobs import Job
from skep.worker.poller import Poller
from skep.worker.store import Store, Want
from skep.worker.watch import Watch

log = logging.getLogger(__name__)

_TRIES = 5
_FIRST_PAUSE, _PAUSE_FACTOR = 5.0, 4
_LONGEST_NAP = 10.0


class Indexer:
    def __init__(
        self,
        store: Store,
        poller: Poller,
        settings: Settings,
        data: Path,
        clock: Clock,
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._poller = poller
        self._data = data.absolute()
        self._deltas = self._data / "worker" / "deltas"
        self._clock = clock
        self._size = settings.index_processes or os.cpu_count() or 1
        self._max_file = settings.index_max_file
        self._on_progress = on_progress
        self._builders = Builders()
        self._running: set[str] = set()
        self._wake = asyncio.Event()
        self.progress: dict[str, Progress] = {}

    def kick(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        await self._sweep()
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._wake.clear()
                    for want in await self._next():
                        self._running.add(want.source)
                        group.create_task(self._build(want))
                    try:
                        async with asyncio.timeout(_LONGEST_NAP):
                            await self._wake.wait()
                    except TimeoutError:
                        continue
        finally:
            await self._builders.close()

    async def clear(self, folders: Sequence[Path]) -> None:
        """The aggregator has taken these deltas, or never will."""
        for folder in folders:
            if folder.parent == self._deltas:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _next(self) -> list[Want]:
        room = self._size - len(self._running)
        if room <= 0 or self._store.full:
            return []
        wants = await self._store.wants(self._clock.now(), room + len(self._running))
        return [want for want in wants if want.source not in self._running][:room]

    async def _build(self, want: Want) -> None:
        try:
            watch = self._poller.find(want.source)
            if watch is not None and not watch.last_looked:
                await self._store.postpone(want, self._clock.now() + _FIRST_PAUSE, failures=want.failures)
            elif watch is not None:
                await self._build_one(want, watch)
            else:
                await self._store.unwant(want)
        except SkepError as error:
            log.error("cannot note the index of %s: %s", want.source, error.message)
        finally:
            self._running.discard(want.source)
            self.progress.pop(want.source, None)
            self._wake.set()
            self._on_progress()

    async def _build_one(self, want: Want, watch: Watch) -> None:
        """The upstream was as `fetched_at` says before the mirror is read, so the index is at least that fresh."""
        fetched_at, out = watch.last_looked, self._deltas / new_id("dlt", self._clock.now())
        mirror, held = folder_of(self._data, want.source), watch.held
        job = Job(want.source, held.number, str(mirror), want.base, self._max_file, str(out))

        def report(done: int, total: int) -> None:
            self.progress[want.source] = Progress("index", done, total)
            self._on_progress()

        kept = False
        try:
            delta = await self._builders.build(job, report)
            body = Built(delta, fetched_at)
            kept = await self._store.built(
                want, body, at=self._clock.now(), next_poll=watch.next_look, folder="" if delta is None else str(out)
            )
            kept = kept and delta is not None
        except BuildFailed as error:
            await self._failed(want, watch, error)
        finally:
            if not kept:
                shutil.rmtree(out, ignore_errors=True)

    async def _failed(self, want: Want, watch: Watch, error: BuildFailed) -> None:
        failures = want.failures + 1
        log.warning("building the index of %s failed (%d): %s", watch.held.url, failures, error.message)
        now = self._clock.now()
        if failures < _TRIES:
            await self._store.postpone(want, now + _FIRST_PAUSE * _PAUSE_FACTOR**want.failures, failures=failures)
            return
        failure = Failure("internal", f"its index cannot be built: {error.message}")
        # so that the next good look tells that it is current again
        watch.failure, watch.failures = failure.kind, failures
        await self._store.built(want, Failed(failure, failures), at=now, next_poll=watch.next_look, folder="")

    async def _sweep(self) -> None:
        """Deltas that a killed process left and no outcome names."""
        self._deltas.mkdir(parents=True, exist_ok=True)
        named = await self._store.folders()
        await self.clear([folder for folder in self._deltas.iterdir() if str(folder) not in named])
