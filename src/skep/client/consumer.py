"""Reading topics: `for message in Consumer(["news"])`. Each message comes at least once and in its partition's order.

Alone, a consumer keeps its own place for as long as it lives. In a group the server keeps the place: a message counts
as handled when the next one is asked for, or at `commit`; what a crashed member had not handled comes to another.
"""

import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from typing import Any, Self

import msgspec

from skep.base.errors import BadInput, Conflict, SkepError, Unavailable
from skep.base.ids import new_id
from skep.client.client import Client
from skep.client.producer import connect, names
from skep.client.topics import Group, Topics
from skep.client.transport import Patience, persist
from skep.topics.api import Commit, Membership, TopicMessage

# The partitions a consumer reads, kept supplied by long polls in a few threads.

log = logging.getLogger(__name__)

_THREADS = 8
#: messages asked for at once; more are fetched when fewer than half are left
_PAGE = 100
_WAIT = 5.0


class Reading:
    """One partition: `done` <= `handed` <= what was fetched."""

    def __init__(self, topic: str, partition: int, offset: int, generation: int = 0) -> None:
        self.topic = topic
        self.partition = partition
        self.generation = generation
        #: the next offset to hand out
        self.handed = offset
        #: all below was handled
        self.done = offset
        #: all below is known to the server as handled
        self.committed = offset
        self.waiting: deque[TopicMessage] = deque()
        #: another member waits for it: nothing more is handed out
        self.leaving = False
        self.gone = False
        self.fetching = False

    @property
    def tail(self) -> int:
        return self.waiting[-1].offset + 1 if self.waiting else self.handed

    @property
    def idle(self) -> bool:
        """Nothing of it is in somebody's hands."""
        return self.done == self.handed


class Readings:
    """Shared by the threads of a consumer; everything in it is guarded by `changed`."""

    def __init__(self, topics: Topics, clock: Callable[[], float] = time.monotonic) -> None:
        self._topics = topics
        self._clock = clock
        self.changed = threading.Condition()
        self.all: dict[tuple[str, int], Reading] = {}
        self.stopped = threading.Event()
        self.failure: SkepError | None = None
        #: the last that went while something it had handed out was not known to the server as handled
        self.lost: Reading | None = None
        #: messages that were trimmed before they were read
        self.missed = 0
        #: past this moment the partitions may be somebody else's
        self.until = inf
        self._ready: deque[Reading] = deque()
        self._wanted: queue.SimpleQueue[Reading | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        #: polls wanted or under way, also for partitions that are gone by now
        self._polls = 0
        self._away = False

    def add(self, reading: Reading) -> None:
        self.all[reading.topic, reading.partition] = reading
        self._want(reading)

    def drop(self, reading: Reading) -> None:
        reading.gone = True
        if reading.handed > reading.committed:
            self.lost = reading
        if self.all.get((reading.topic, reading.partition)) is reading:
            del self.all[reading.topic, reading.partition]

    def leave(self, reading: Reading, leaving: bool) -> None:
        reading.leaving = leaving
        if not leaving and reading.waiting and reading not in self._ready:
            self._ready.append(reading)
            self.changed.notify_all()

    def take(self) -> tuple[Reading, TopicMessage] | None:
        """The next message; partitions take turns."""
        if self._clock() > self.until:
            return None
        while self._ready:
            reading = self._ready.popleft()
            if reading.gone or reading.leaving:
                continue
            message = reading.waiting.popleft()
            reading.handed = message.offset + 1
            if reading.waiting:
                self._ready.append(reading)
            self._want(reading)
            return reading, message
        return None

    def fail(self, error: SkepError) -> None:
        with self.changed:
            self.failure = self.failure or error
            self.changed.notify_all()

    def stop(self) -> None:
        with self.changed:
            self.stopped.set()
            self.changed.notify_all()

    def end(self) -> None:
        """After the client was closed, which ends the polls under way."""
        for _ in self._threads:
            self._wanted.put(None)
        for thread in self._threads:
            thread.join()

    def _want(self, reading: Reading) -> None:
        if not reading.fetching and len(reading.waiting) <= _PAGE // 2:
            reading.fetching = True
            self._polls += 1
            self._wanted.put(reading)
            if len(self._threads) < min(_THREADS, self._polls):
                thread = threading.Thread(target=self._run, name="skep-consumer", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _run(self) -> None:
        patience = Patience(None)
        while (reading := self._wanted.get()) is not None and not self.stopped.is_set():
            try:
                self._fetch(reading)
                self._away = False
                patience.restart()
            except Unavailable as error:
                self._tell_once(error)
                self.stopped.wait(patience.pause(error))
                self._wanted.put(reading)
            except SkepError as error:
                self.fail(error)

    def _tell_once(self, error: Unavailable) -> None:
        """Not with every attempt of every thread."""
        if not self._away and not self.stopped.is_set():
            self._away = True
            log.warning("%s; trying again until it is back", error.message)

    def _fetch(self, reading: Reading) -> None:
        with self.changed:
            offset, gone = reading.tail, reading.gone
            wait = _WAIT * min(1.0, len(self._threads) / max(1, self._polls))
        found = None
        if not gone:
            found = self._topics.read(reading.topic, offset, partition=reading.partition, max=_PAGE, wait=wait)
        with self.changed:
            self._polls -= 1
            reading.fetching = False
            if reading.gone or found is None:
                return
            if found.messages:
                self._arrived(reading, offset, found.messages)
            self._want(reading)

    def _arrived(self, reading: Reading, offset: int, messages: list[TopicMessage]) -> None:
        if missed := messages[0].offset - offset:
            self.missed += missed
            log.warning("%d messages of %s/%d were trimmed unread", missed, reading.topic, reading.partition)
        if not reading.waiting and not reading.leaving:
            self._ready.append(reading)
        reading.waiting.extend(messages)
        self.changed.notify_all()


# Keeps a consumer in its group: comes back in time, tells how far it is, takes and gives back partitions.


class Keeper:
    def __init__(
        self, topics: Topics, names: Iterable[str], group: str, start: str, readings: Readings, every: float
    ) -> None:
        self.member = new_id("mem", time.time())
        self._groups = {name: topics.group(name, group) for name in names}
        self._start = start
        self._readings = readings
        self._every = every
        #: one request of this member at a time, so that an answer is never older than what we know
        self._turn = threading.Lock()
        self._wake = threading.Event()
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="skep-keeper", daemon=True)

    def start(self) -> None:
        self.beat()
        self._thread.start()

    def wake(self) -> None:
        """Something was handled."""
        self._wake.set()

    def beat(self) -> None:
        begun = until = time.monotonic()
        for topic, group in self._groups.items():
            with self._turn:
                membership = group.join(self.member, start=self._start)
                self._apply(topic, membership)
            self._every = min(self._every, membership.expires_in / 3)
            until = begun + membership.expires_in
        with self._readings.changed:
            self._readings.until = until
            self._readings.changed.notify_all()

    def commit(self) -> None:
        """Everything that is done; and gives back what is waited for and in nobody's hands. Conflict when something
        of it is another member's by now."""
        for topic, group in self._groups.items():
            with self._turn:
                self._commit(topic, group)

    def leave(self) -> None:
        self._leaving.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()
        with contextlib.suppress(Conflict):
            self.commit()
        for group in self._groups.values():
            group.leave(self.member)

    def _apply(self, topic: str, membership: Membership) -> None:
        leases = {lease.partition: lease for lease in membership.leases}
        with self._readings.changed:
            for reading in self._of(topic):
                lease = leases.get(reading.partition)
                if lease is None or lease.generation != reading.generation:
                    self._readings.drop(reading)
                else:
                    del leases[reading.partition]
                    self._readings.leave(reading, reading.partition in membership.give_back)
            for lease in leases.values():
                reading = Reading(topic, lease.partition, lease.offset, lease.generation)
                # taken in the same answer that asks for it: whoever waits gets it when we come back
                reading.leaving = lease.partition in membership.give_back
                self._readings.add(reading)

    def _commit(self, topic: str, group: Group) -> None:
        with self._readings.changed:
            moved = {
                reading: Commit(reading.partition, reading.generation, reading.done, reading.leaving and reading.idle)
                for reading in self._of(topic)
                if reading.done > reading.committed or (reading.leaving and reading.idle)
            }
        if not moved:
            return
        try:
            group.commit(self.member, list(moved.values()))
        except Conflict:
            # joining tells which; the rest is told next time
            self._apply(topic, group.join(self.member, start=self._start))
            self._wake.set()
            raise
        with self._readings.changed:
            for reading, commit in moved.items():
                reading.committed = commit.offset
                if commit.give_back:
                    self._readings.drop(reading)

    def _of(self, topic: str) -> list[Reading]:
        return [reading for reading in self._readings.all.values() if reading.topic == topic]

    def _run(self) -> None:
        patience = Patience(None)
        due = time.monotonic() + self._every
        while not self._leaving.is_set():
            self._wake.wait(max(0.0, due - time.monotonic()))
            self._wake.clear()
            try:
                if time.monotonic() >= due:
                    self.beat()
                    due = time.monotonic() + self._every
                self.commit()
                patience.restart()
            except Unavailable as error:
                self._leaving.wait(patience.pause(error))
                self._wake.set()
            except Conflict:
                continue
            except SkepError as error:
                self._readings.fail(error)
                return


#: how long an explicit commit waits for a server that is away
_COMMIT_SECONDS = 60.0


class Received(TopicMessage, frozen=True, kw_only=True, gc=True):
    topic: str

    def json(self) -> Any:
        """The body; when it is text, the JSON in it."""
        if not isinstance(self.body, str):
            return self.body
        try:
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError as error:
            where = f"message {self.offset} of {self.topic}/{self.partition}"
            raise BadInput(f"{where} is no JSON: {error}", hint="its text is in `body`") from error


class Consumer:
    """Iterate in one thread; `stop` and `commit` may come from others."""

    def __init__(
        self,
        topics: str | Iterable[str],
        broker: str | Client | None = None,
        *,
        token: str | None = None,
        group: str | None = None,
        start: str = "beginning",
        auto_commit: bool = True,
        heartbeat: float = 3.0,
    ) -> None:
        """`start`: where to begin, in a group only if it is new: `beginning`, `end`, `offset:N` or `time:SECONDS` since
        1970. `heartbeat`: seconds between two signs of life to the group."""
        self.topics = names(topics)
        self._client = connect(broker, token)
        self._readings = Readings(self._client.topics)
        self._auto = auto_commit
        self._in_hand: Reading | None = None
        self._keeper: Keeper | None = None
        self._closed = False
        try:
            if group is None:
                self._begin(start)
            else:
                self._keeper = Keeper(self._client.topics, self.topics, group, start, self._readings, heartbeat)
                self._keeper.start()
        except BaseException:
            self._end()
            raise

    @property
    def missed(self) -> int:
        """Messages that were trimmed before this consumer came to them."""
        return self._readings.missed

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """What it reads at the moment."""
        with self._readings.changed:
            return sorted(self._readings.all)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Received:
        readings = self._readings
        with readings.changed:
            self._handled()
            while not readings.stopped.is_set():
                if readings.failure:
                    raise readings.failure
                if found := readings.take():
                    self._in_hand, message = found
                    return Received(topic=self._in_hand.topic, **msgspec.structs.asdict(message))
                readings.changed.wait(1.0)
        self.close()
        raise StopIteration

    def commit(self) -> None:
        """What was handed out so far is handled; in a group the server knows it on return. Conflict when a partition
        of it has gone to another member, who reads it again, whoever noticed that first."""
        with self._readings.changed:
            for reading in self._readings.all.values():
                reading.done = reading.handed
            self._in_hand = None
        if self._keeper:
            try:
                persist(self._keeper.commit, Patience(_COMMIT_SECONDS))
            except Conflict:
                self._lost()
                raise
            if lost := self._lost():
                raise Conflict(
                    f"partition {lost.partition} of {lost.topic!r} has gone to another member",
                    hint="what was not committed is read again where it went",
                )

    def unhandled(self) -> None:
        """The message in hand does not count as handled when the consumer is closed."""
        with self._readings.changed:
            self._in_hand = None

    def stop(self) -> None:
        """Ends the iteration, from any thread or signal handler."""
        self._readings.stop()

    def close(self) -> None:
        """Leaves the group. The message in hand counts as handled, unless an exception ended the `with` block."""
        if self._closed:
            return
        with self._readings.changed:
            self._handled()
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.unhandled()
        self.close()

    def _handled(self) -> None:
        reading, self._in_hand = self._in_hand, None
        if reading is None or not self._auto:
            return
        reading.done = reading.handed
        if self._keeper:
            self._keeper.wake()

    def _lost(self) -> Reading | None:
        """What has gone since this was asked last, to be told once."""
        with self._readings.changed:
            lost, self._readings.lost = self._readings.lost, None
        return lost

    def _begin(self, start: str) -> None:
        for topic in self.topics:
            for place in self._client.topics.places(topic, start):
                with self._readings.changed:
                    self._readings.add(Reading(topic, place.partition, place.offset))

    def _end(self) -> None:
        self._closed = True
        self._readings.stop()
        try:
            if self._keeper:
                # who cannot say goodbye is missed after a while
                with contextlib.suppress(SkepError):
                    self._keeper.leave()
        finally:
            self._client.close()
            self._readings.end()
