"""The partitions a consumer reads, kept supplied by long polls in a few threads."""

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from math import inf

from skep.client.patience import Patience
from skep.client.topics import Topics
from skep.errors import SkepError, Unavailable
from skep.model.topic import TopicMessage

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
