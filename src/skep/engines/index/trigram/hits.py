"""A running search: the work is in a thread, the hits come out of an async iterator."""

import asyncio
import time
from collections.abc import Callable
from typing import Self

from skep.engines.index.base import Gains, Standing, Visible
from skep.engines.index.books import Books
from skep.engines.index.trigram.compiled import Shelf
from skep.engines.index.trigram.lanes import Lanes, Ride
from skep.engines.index.trigram.search import OutOfTime, Search
from skep.engines.index.trigram.snapshot import Snapshot
from skep.model.search import Counted, FileHit, Limits, Query

#: hits cross from the thread to the loop in batches: this many, or what was found in this many seconds
_BATCH, _BATCH_SECONDS = 64, 0.02
#: seconds a thread may be late in noticing that its time is over
_GRACE = 0.5


#: what a search needs besides the snapshot
Asked = tuple[Query, Visible, Gains | None, Limits, Shelf, Books]
#: told of damaged shards, by id, and what is wrong with them
Noticed = Callable[[dict[str, str]], None]


class _Work:
    """What the thread holds. Not the Hits: when its consumer is gone, Hits goes, and that stops the work."""

    def __init__(self, loop: asyncio.AbstractEventLoop, deadline: float, lanes: Lanes) -> None:
        #: hits; with the last of them the search that is over, or an error
        self.queue: asyncio.Queue[tuple[list[FileHit], Search | Exception | None]] = asyncio.Queue()
        self.deadline = deadline
        self.stopped = False
        self._loop = loop
        self._ride = Ride(lanes)
        self._batch: list[FileHit] = []
        self._sent = 0.0

    def run(self, snapshot: Snapshot, *asked: *Asked) -> None:
        query, visible, gains, limits, shelf, books = asked
        try:
            search = Search(query, limits, self._watch, shelf, books)
            self._ride.begin(self.deadline)
            self._sent = time.monotonic() if limits.rank else 0.0  # the first goes out at once, whatever follows
            for hit in search.run(snapshot, visible, gains):
                if self.stopped:
                    return
                self._batch.append(hit)
                self._send_what_waits()
            self._send(search)
        except Exception as error:
            self._send(error)
        finally:
            self._ride.end()

    def _watch(self) -> None:
        if self.stopped or time.monotonic() > self.deadline or not self._ride.go_on(self.deadline):
            raise OutOfTime
        self._send_what_waits()

    def _send_what_waits(self) -> None:
        if self._batch and (len(self._batch) >= _BATCH or time.monotonic() - self._sent > _BATCH_SECONDS):
            self._send()

    def _send(self, ended: Search | Exception | None = None) -> None:
        batch, self._batch, self._sent = self._batch, [], time.monotonic()
        if not self.stopped:
            try:
                self._loop.call_soon_threadsafe(self.queue.put_nowait, (batch, ended))
            except RuntimeError:  # the loop is closed: nobody waits
                self.stopped = True


class TrigramHits:
    def __init__(self, lanes: Lanes, snapshot: Snapshot, noticed: Noticed, *asked: *Asked) -> None:
        self._lanes = lanes
        self._snapshot = snapshot
        self._noticed = noticed
        self._asked = asked
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
                batch, ended = await work.queue.get()
        except TimeoutError:  # a thread deep inside one match; its hits so far have arrived
            self.partial = True
            self.stop()
            return
        except asyncio.CancelledError:
            self.stop()
            raise
        self._batch = batch[::-1]
        lines = sum(len(hit.lines) for hit in batch)
        self.counted = Counted(self.counted.files + len(batch), self.counted.lines + lines, exact=False)
        if isinstance(ended, Search):
            self._ended = True
            self.partial, self.counted = ended.partial, ended.counted
            if ended.damaged:
                self._noticed(ended.damaged)
        elif ended is not None:
            self._ended = True
            raise ended

    def _start(self) -> _Work:
        self._work = _Work(asyncio.get_running_loop(), time.monotonic() + self._asked[3].seconds, self._lanes)
        self._lanes.submit(self._work.run, self._snapshot, *self._asked)
        return self._work

    def stop(self) -> None:
        self._ended = True
        if self._work is not None:
            self._work.stopped = True

    def __del__(self) -> None:
        self.stop()
