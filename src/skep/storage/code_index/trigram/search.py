"""Answers a query on a snapshot. Runs in a thread."""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from threading import Semaphore
from typing import Self

import numpy as np

from skep.base.errors import Damaged
from skep.base.lazy import lazy_property
from skep.storage.code_index.analysis_files import Books, keys_of
from skep.storage.code_index.base import Gains, Standing, Visible
from skep.storage.code_index.model import Counted, FileHit, Limits, Query
from skep.storage.code_index.ranking import per_file
from skep.storage.code_index.trigram.candidates import Masks, Part, Snapshot
from skep.storage.code_index.trigram.excerpts import Show
from skep.storage.code_index.trigram.matchers import Compiled, Shelf, Watch
from skep.storage.code_index.trigram.scan import Light, Reading, Sieve, readings
from skep.storage.code_index.trigram.shard import Ids, Keys, Mask, Shard

# The threads of searches, of which few run at once: as many as there are processors, and of long ones one less.
#
# They share the interpreter with the event loop. If all of them ran, it would wait for its turn among them, and a short
# search would take as long as the long ones beside it.

_THREADS = 32
#: seconds after which a search is a long one
_LONG = 0.02


class Lanes(ThreadPoolExecutor):
    def __init__(self, at_once: int = max(2, os.cpu_count() or 1)) -> None:
        super().__init__(_THREADS, thread_name_prefix="search")
        self.short, self.long = Semaphore(at_once), Semaphore(max(1, at_once - 1))


class Ride:
    """One search on the lanes: its thread waits here until it may go on. False: `until` came first."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._lane: Semaphore | None = None
        self._since = 0.0

    def begin(self, until: float) -> bool:
        return self._enter(self._lanes.short, until)

    def go_on(self, until: float) -> bool:
        if self._lane is self._lanes.short and time.monotonic() - self._since > _LONG:
            self.end()
            return self._enter(self._lanes.long, until)
        return True

    def _enter(self, lane: Semaphore, until: float) -> bool:
        if not lane.acquire(timeout=max(0.0, until - time.monotonic())):
            return False
        self._lane, self._since = lane, time.monotonic()
        return True

    def end(self) -> None:
        if self._lane is not None:
            self._lane.release()
            self._lane = None


#: lines of one file that count as looked at: one file of a thousand hits must not be all that is ranked
LOOK_PER_FILE = 20
#: bytes of text that are read for the sake of the order alone, when enough was found to fill the answer: of one term
#: the best files are read first, but where several come together on a line has to be found out
_LOOK_BYTES, _LOOK_TOGETHER = 400_000, 8_000_000
#: so many times as many lines are looked at for them
_TOGETHER = 4
#: bytes that are read at once, at least and at most
_LEAST_READ, _MOST_READ = 1 << 16, 940_000
#: what comes of reading a shard that is not what it was when it was opened
_UNREADABLE = (Damaged, OSError, IndexError, ValueError)
#: in this order: files that define what is asked for or have a name that promises it, all others, then tests, copies
#: and generated ones; those of sources set before or behind others a turn sooner or later
_TURNS = range(3)
_NONE: Ids = np.zeros(0, np.int64)


class OutOfTime(Exception):
    """The deadline has passed, or nobody waits any more."""


class _Field:
    """A shard with the documents that may match, and in which turn each is read."""

    def __init__(
        self,
        compiled: Compiled,
        part: Part,
        snapshot: Snapshot,
        allowed: Mask,
        gains: Gains | None,
        defining: Keys,
        watch: Watch,
    ) -> None:
        watch()
        shard = self.shard = part.shard
        shard.look()
        self.masks = Masks(compiled, shard, snapshot.standings, watch)
        self.sieve = Sieve(compiled, self.masks, shard, gains)
        self._dead, self._allowed, self._gains = part.dead, allowed, gains
        self._compiled, self._watch = compiled, watch
        self._defining = defining

    @lazy_property
    def ids(self) -> Ids:
        """Found out when they are wanted: enough may have been found in the shards before."""
        mask = self.masks.candidates(self._compiled.query)
        ids = np.flatnonzero(~self._dead if mask is None else mask & ~self._dead)
        allowed: Ids = ids[self._allowed[self.shard.sources[ids]]]
        return allowed

    def read(self, documents: Ids, books: Books) -> Reading:
        self._watch()
        return Reading(self._compiled, self.masks, self.shard, books, documents, self._watch)

    @lazy_property
    def _promising(self) -> Mask | None:
        """None: nothing is."""
        likely = self.sieve.likely
        defining = self.shard.holding(self._defining) if len(self._defining) else _NONE
        if not len(defining):
            return likely if likely is not None and likely.any() else None
        mask = np.zeros(self.shard.documents, bool) if likely is None else likely.copy()
        mask[defining] = True
        return mask

    def turn(self, turn: int) -> Ids:
        if turn == _TURNS[0] and self._gains is None and self._promising is None:
            return _NONE
        ids: Ids = self.ids[self._turns == turn]
        return ids

    @lazy_property
    def _turns(self) -> Ids:
        """Of each document that may match."""
        turns: Ids = 1 + (self.shard.marks[self.ids] > 0)
        if self._promising is not None:
            turns = turns - self._promising[self.ids]
        if self._gains is not None:
            turns = np.clip(turns - np.sign(self._gains[self.shard.sources[self.ids]]), _TURNS[0], _TURNS[-1])
        return turns


class Search:
    def __init__(self, query: Query, limits: Limits, watch: Watch, shelf: Shelf, books: Books) -> None:
        self._compiled = Compiled(query, shelf)
        self._books = books
        #: keys of git blobs that define what is asked for
        self._defining: Keys = keys_of(books.defining(self._compiled.names if limits.rank else ()))
        self._limits = limits
        self._watch = watch
        several = len(self._compiled.shown) > 1
        #: lines that are looked at, and bytes of text, for the sake of the order
        self._look = _TOGETHER * limits.look if several else limits.look
        self._look_bytes = _LOOK_TOGETHER if several else _LOOK_BYTES
        if self._compiled.by_path:  # nothing is read
            self._look_bytes = sys.maxsize
        self._sizes = self._reads()
        self._files = self._lines = self._looked = self._bytes = 0
        self._is_whole = True
        self._is_cut = False
        #: shards that could not be read, and why
        self.damaged: dict[str, str] = {}

    @property
    def partial(self) -> bool:
        """Not everything that matches was shown."""
        return self._is_cut or not self._is_whole

    @property
    def counted(self) -> Counted:
        return Counted(self._files, self._lines, self._is_whole)

    def run(self, snapshot: Snapshot, visible: Visible, gains: Gains | None = None) -> Iterator[FileHit]:
        try:
            lights = self._lights(snapshot, visible, snapshot.gains(gains))
            if not self._limits.rank:
                yield from self._shown(lights, self._limits.lines_per_file)
                return
            ranked = sorted(lights, key=lambda light: light.order(snapshot.standings))
            sizes = [max(1, light.facts.lines) for light in ranked]
            yield from self._shown(iter(ranked), per_file(sizes, self._limits))
        finally:
            self._compiled.done()

    def _shown(self, lights: Iterator[Light], most: int) -> Iterator[FileHit]:
        show = Show(self._compiled, self._limits)
        left, files = self._limits.lines, self._limits.files or self._limits.lines
        for light in lights:
            if left <= 0 or files <= 0:
                self._is_cut = True
                continue
            try:
                hit = show.hit(light, min(left, most))
            except _UNREADABLE as error:
                self._set_aside(light.shard, error)
                continue
            left -= max(1, len(hit.lines))
            files -= 1
            self._is_cut |= hit.more
            yield hit

    def _lights(self, snapshot: Snapshot, visible: Visible, gains: Gains | None) -> Iterator[Light]:
        """What is found until time is over. A shard that cannot be read does not keep the others from answering."""
        self._is_whole = not snapshot.misses(visible)
        try:
            for field, ids in self._fields(snapshot, visible, gains):
                try:
                    yield from self._read(field, ids)
                except _UNREADABLE as error:
                    self._set_aside(field.shard, error)
        except OutOfTime:
            self._is_whole = False

    def _set_aside(self, shard: Shard, error: Exception) -> None:
        """Only when it is damaged indeed: an error of ours must not cost anybody a shard."""
        try:
            shard.verify()
        except (Damaged, OSError) as found:
            self.damaged[shard.id] = str(found)
            self._is_whole = False
        else:
            raise error

    def _fields(self, snapshot: Snapshot, visible: Visible, gains: Gains | None) -> Iterator[tuple[_Field, Ids]]:
        """What is to be read, in its order: in turns when the best are wanted, else shard by shard."""
        allowed = snapshot.allowed(visible)
        parts = (part for part in snapshot.parts if allowed[part.shard.numbers].any())
        fields = (field for part in parts if (field := self._field(part, snapshot, allowed, gains)) is not None)
        if not self._limits.rank:
            for field in fields:
                yield field, self._ids(field, None)
            return
        kept = list(fields)
        for turn, field in product(_TURNS, kept):
            if self._is_done():
                self._is_whole = False
                return
            ids = self._ids(field, turn)
            if len(ids):
                yield field, ids

    def _field(self, part: Part, snapshot: Snapshot, allowed: Mask, gains: Gains | None) -> _Field | None:
        """None: it cannot be read."""
        try:
            return _Field(self._compiled, part, snapshot, allowed, gains, self._defining, self._watch)
        except _UNREADABLE as error:
            self._set_aside(part.shard, error)
            return None

    def _ids(self, field: _Field, turn: int | None) -> Ids:
        try:
            return field.ids if turn is None else field.turn(turn)
        except _UNREADABLE as error:
            self._set_aside(field.shard, error)
            return _NONE

    def _read(self, field: _Field, ids: Ids) -> Iterator[Light]:
        for documents, size in readings(field.shard, ids, self._sizes):
            if self._is_done():
                self._is_whole = False
                return
            is_enough = self._is_enough()
            reading = field.read(documents, self._books)
            self._bytes += size
            true = np.flatnonzero(reading.true(self._compiled.query))
            self._files += len(true)
            self._is_whole &= not reading.is_cut
            if not len(true):
                continue
            if is_enough:
                self._is_cut = True
                self._lines += reading.count(true)
                continue
            for light in field.sieve.lights(reading, true):
                self._lines += light.facts.lines
                self._looked += max(1, min(light.facts.lines, self._most_per_file))
                yield light

    @property
    def _most_per_file(self) -> int:
        most = self._limits.lines_per_file
        return min(LOOK_PER_FILE, most) if self._limits.rank else most

    def _is_done(self) -> bool:
        return self._is_enough() and self._lines >= self._limits.count

    def _is_enough(self) -> bool:
        """Has as much been found as is looked at?"""
        if self._looked < self._limits.lines:
            return False
        return self._looked >= self._look or self._bytes >= self._look_bytes or not self._limits.rank

    def _reads(self) -> Iterator[int]:
        """How many bytes to read at once: few at first, then what it takes to find enough if they go on like that."""
        while True:
            left = self._look - self._looked
            more = self._bytes * left // max(1, self._looked) if left > 0 else _MOST_READ
            for_order = self._look_bytes - self._bytes  # beyond that it is read for want of lines
            most = max(for_order, _LEAST_READ) if for_order > 0 else _MOST_READ
            yield min(_LEAST_READ + more, most, _MOST_READ)


# A running search: the work is in a thread, the hits come out of an async iterator.

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
