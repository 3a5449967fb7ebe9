"""Reading topics: `for message in Consumer(["news"])`. Each message comes at least once and in its partition's order.

Alone, a consumer keeps its own place for as long as it lives. In a group the server keeps the place: a message counts
as handled when the next one is asked for, or at `commit`; what a crashed member had not handled comes to another.
"""

import contextlib
from collections.abc import Iterable
from typing import Any, Self

import msgspec

from skep.client.client import Client
from skep.client.keeper import Keeper
from skep.client.patience import Patience, persist
from skep.client.producer import connect, names
from skep.client.readings import Reading, Readings
from skep.errors import BadInput, Conflict, SkepError
from skep.model.topic import TopicMessage

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
