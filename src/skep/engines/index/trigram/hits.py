"""A running search: the work is in a thread, the hits come out of an async iterator."""

import asyncio
import time
from concurrent.futures import Executor
from typing import Self

from skep.engines.index.base import Standing, Visible
from skep.engines.index.trigram.search import Search
from skep.engines.index.trigram.snapshot import Snapshot
from skep.model.search import Counted, FileHit, Limits, Query

#: hits cross from the thread to the loop in batches: this many, or what was found in this many seconds
_BATCH, _BATCH_SECONDS = 64, 0.02
#: seconds a thread may be late in noticing that its time is over
_GRACE = 0.5


class _OutOfTime(Exception):
    """The deadline has passed, or nobody waits any more."""


class _Work:
    """What the thread holds. Not the Hits: when its consumer is gone, Hits goes, and that stops the work."""

    def __init__(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        self.queue: asyncio.Queue[list[FileHit] | BaseException | None] = asyncio.Queue()
        self.deadline = deadline
        self.stopped = False
        self.partial = False
        self.counted = Counted(exact=False)
        self._loop = loop

    def run(self, snapshot: Snapshot, query: Query, visible: Visible, limits: Limits) -> None:
        last: BaseException | None = None
        batch: list[FileHit] = []
        try:
            search = Search(query, limits, self._watch)
            sent = time.monotonic()
            for hit in search.run(snapshot, visible):
                batch.append(hit)
                if len(batch) >= _BATCH or time.monotonic() - sent > _BATCH_SECONDS:
                    self._send(batch)
                    batch, sent = [], time.monotonic()
            self.partial, self.counted = search.partial, search.counted
        except _OutOfTime:
            self.partial = True
        except Exception as error:
            last = error
        self._send(batch)
        self._send(last)

    def _watch(self) -> None:
        if self.stopped or time.monotonic() > self.deadline:
            raise _OutOfTime

    def _send(self, item: list[FileHit] | BaseException | None) -> None:
        if not self.stopped:
            try:
                self._loop.call_soon_threadsafe(self.queue.put_nowait, item)
            except RuntimeError:  # the loop is closed: nobody waits
                self.stopped = True


class TrigramHits:
    def __init__(self, executor: Executor, snapshot: Snapshot, query: Query, visible: Visible, limits: Limits) -> None:
        self._executor = executor
        self._snapshot = snapshot
        self._asked = (query, visible, limits)
        self._work: _Work | None = None
        self._batch: list[FileHit] = []
        self._ended = False
        self.partial = False
        self.counted = Counted(exact=False)

    def standing(self, number: int) -> Standing:
        return self._snapshot.standings[number]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> FileHit:
        while not self._batch:
            if self._ended:
                raise StopAsyncIteration
            await self._next_batch()
        return self._batch.pop()

    async def _next_batch(self) -> None:
        work = self._work or self._start()
        try:
            async with asyncio.timeout(max(0.0, work.deadline + _GRACE - time.monotonic())):
                item = await work.queue.get()
        except TimeoutError:  # a thread deep inside one match; its hits so far have arrived
            self.partial = True
            self.stop()
            return
        except asyncio.CancelledError:
            self.stop()
            raise
        if isinstance(item, list):
            self._batch = item[::-1]
            return
        self._ended = True
        self.partial, self.counted = work.partial, work.counted
        if item is not None:
            raise item

    def _start(self) -> _Work:
        query, visible, limits = self._asked
        self._work = _Work(asyncio.get_running_loop(), time.monotonic() + limits.seconds)
        self._executor.submit(self._work.run, self._snapshot, query, visible, limits)
        return self._work

    def stop(self) -> None:
        self._ended = True
        if self._work is not None:
            self._work.stopped = True

    def __del__(self) -> None:
        self.stop()
