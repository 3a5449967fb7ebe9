"""Sending to topics without losing or doubling a message.

`send` returns when the message is stored. `buffer` returns at once and stores in the background: the explicit choice of
speed over knowing. Both repeat an attempt whose answer did not come; the server knows the producer's id and the
message's number, so that a repeat is stored once.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self

from skep.client.buffer import Buffer, Failed
from skep.client.client import Client
from skep.client.patience import Patience, persist
from skep.client.topics import Outgoing
from skep.errors import Conflict
from skep.model.ids import new_id
from skep.model.topic import Posted


class Producer:
    """`with Producer() as producer: producer.send("news", {"hello": "world"})`; threads may share one."""

    def __init__(
        self,
        topics: str | Iterable[str] | None = None,
        broker: str | Client | None = None,
        *,
        token: str | None = None,
        patience: float = 60.0,
        room: int = 10_000,
        on_error: Failed | None = None,
    ) -> None:
        """`topics` are made where they are missing. `patience`: seconds for which a server that is away is waited for.
        `room`: messages that `buffer` holds; `on_error` hears, in the background, what could not be stored."""
        self.id = new_id("prd", time.time())
        self._client = connect(broker, token)
        self._patience = patience
        self._sequence = 0
        self._lock = threading.Lock()
        self._buffer = Buffer(self._post, room, on_error)
        try:
            for name in names(topics or ()):
                self._make(name)
        except BaseException:
            self._client.close()
            raise

    def send(
        self,
        topic: str,
        message: object,
        *,
        key: str = "",
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
    ) -> Posted:
        """Stored on return; what cannot be stored raises."""
        return self._post(topic, [Outgoing(message, key, headers or {}, partition)])[0]

    def buffer(
        self,
        topic: str,
        message: object,
        *,
        key: str = "",
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
        block: bool = True,
    ) -> None:
        """Stored some time later. A full buffer makes the caller wait, or raises Busy unless it may `block`."""
        self._buffer.put(topic, Outgoing(message, key, headers or {}, partition), block)

    def flush(self) -> None:
        """Returns when all that was buffered is stored; raises the first error that happened since the last flush."""
        self._buffer.flush()

    def stop(self) -> None:
        """Stores what is buffered and ends; raises as `flush` does."""
        try:
            self._buffer.stop()
        finally:
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _make(self, topic: str) -> None:
        try:
            persist(lambda: self._client.topics.create(topic), Patience(self._patience))
        except Conflict:
            return

    def _post(self, topic: str, messages: Sequence[Outgoing]) -> Sequence[Posted]:
        with self._lock:
            sequence, self._sequence = self._sequence, self._sequence + len(messages)
        publish: Callable[[], Sequence[Posted]] = lambda: self._client.topics.publish_batch(  # noqa: E731
            topic, messages, producer=self.id, sequence=sequence
        )
        return persist(publish, Patience(self._patience))


def connect(broker: str | Client | None, token: str | None) -> Client:
    """Connections of our own, also to the server of somebody's client."""
    return broker.twin() if isinstance(broker, Client) else Client(broker, token)


def names(topics: str | Iterable[str]) -> list[str]:
    """One name is a list of one, not of its letters."""
    return [topics] if isinstance(topics, str) else list(dict.fromkeys(topics))
