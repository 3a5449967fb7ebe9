"""Is everything that a mirror's refs lead to there and readable? Asked by a task, and for each mirror in its turn."""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from zlib import crc32

from skep.clock import Clock
from skep.errors import SkepError
from skep.model.source import Failure
from skep.model.task import Run
from skep.sources.base import Kind
from skep.worker.doer import TaskFailed
from skep.worker.poller import Poller
from skep.worker.store import Store
from skep.worker.watch import Watch

log = logging.getLogger(__name__)

_PACE = 60.0


class Checking:
    def __init__(self, poller: Poller, kinds: Mapping[str, Kind], store: Store, clock: Clock, every: float) -> None:
        self._poller = poller
        self._kinds = kinds
        self._store = store
        self._clock = clock
        self._every = every
        self._pace = min(_PACE, every / 10)

    async def fsck(self, run: Run) -> dict[str, Any]:
        """The kind of task."""
        watch = await self._poller.find(run.spec.source)
        if watch is None:
            raise TaskFailed(f"{run.spec.source or 'no source'} is not mirrored here")
        failure = await self._check(watch)
        if failure is not None:
            raise TaskFailed(failure.message)
        return {"source": watch.source, "sound": True}

    async def patrol(self) -> None:
        """Until cancelled. Each mirror has a moment of its own in every `every` seconds, wherever that began."""
        since = await self._store.checked()
        since = self._clock.now() if since is None else since
        while True:
            await asyncio.sleep(self._pace)
            until = self._clock.now()
            for source in await asyncio.to_thread(due, await self._store.sources(), self._every, since, until):
                watch = await self._poller.find(source)
                if watch is not None:
                    with self._grumble(watch.held.url):
                        await self._check(watch)
            since = until
            with self._grumble("the time of the last check"):
                await self._store.note_checked(until)

    @contextmanager
    def _grumble(self, what: str) -> Iterator[None]:
        """One that cannot be checked now has its next turn; the others do not wait for it."""
        try:
            yield
        except (SkepError, OSError) as error:
            log.warning("checking mirrors: %s: %s", what, error)

    async def _check(self, watch: Watch) -> Failure | None:
        """What is damaged is fetched again at once."""
        failure = await self._kinds[watch.held.kind].check(watch.held)
        if failure is not None:
            log.warning("%s: %s", watch.held.url, failure.message)
            await self._poller.ask(watch.source, watch.held.epoch)
        return failure


def due(sources: list[str], every: float, since: float, until: float) -> list[str]:
    """Those whose moment lies after `since` and not after `until`; each once, however long that is."""
    found = []
    for source in sources:
        moment = crc32(source.encode()) / 2**32 * every
        if (until - moment) // every > (since - moment) // every:
            found.append(source)
    return found
