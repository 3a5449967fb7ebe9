"""Sending to topics without losing or doubling a message.

`send` returns when the message is stored. `buffer` returns at once and stores in the background: the explicit choice of
speed over knowing. Both repeat an attempt whose answer did not come; the server knows the producer's id and the
message's number, so that a repeat is stored once.
"""

import asyncio
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Self

from skep.client.client import Client
from skep.client.patience import Patience, persist
from skep.client.sending import Failed, Sending, full, item, stopped
from skep.client.topics import Outgoing
from skep.errors import Conflict
from skep.model.topic import Posted


class Producer:
    """`with Producer() as producer: producer.send("news", {"hello": "world"})`; threads may share one, and what they
    send at the same time goes together."""

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
        `room`: messages on their way at most; `on_error` hears, in the background, what was buffered and not stored."""
        self._client = with_topics(broker, token, topics or (), patience)
        self._room = room
        self._places = threading.Semaphore(room)
        self._sending = Sending(self._client.transport, patience, on_error, self._places.release)
        self.id = self._sending.id
        self._stopped = False
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="skep-producer", daemon=True)
        self._thread.start()

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
        answer: Future[Posted] = Future()
        self._put(topic, Outgoing(message, key, headers or {}, partition), answer)
        return answer.result()

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
        """Stored some time later. Without room the caller waits, or Busy is raised unless it may `block`."""
        self._put(topic, Outgoing(message, key, headers or {}, partition), None, block)

    def flush(self) -> None:
        """Returns when all that was buffered is stored; raises the first error that happened since the last flush."""
        if self._stopped:
            raise stopped()
        asyncio.run_coroutine_threadsafe(self._sending.flush(), self._loop).result()

    def stop(self) -> None:
        """Stores what is buffered and ends; raises as `flush` does."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        try:
            asyncio.run_coroutine_threadsafe(self._sending.stop(), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _put(self, topic: str, message: Outgoing, answer: Future[Posted] | None, block: bool = True) -> None:
        wanted = item(topic, message, answer)
        if not self._places.acquire(block):
            raise full(self._room)
        with self._lock:
            if self._stopped:
                self._places.release()
                raise stopped()
            self._loop.call_soon_threadsafe(self._sending.put, wanted)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()


def with_topics(broker: str | Client | None, token: str | None, topics: str | Iterable[str], patience: float) -> Client:
    """Connected, and the topics that were missing are made."""
    client = connect(broker, token)
    try:
        for name in names(topics):
            with suppress(Conflict):
                persist(partial(client.topics.create, name), Patience(patience))
    except BaseException:
        client.close()
        raise
    return client


def connect(broker: str | Client | None, token: str | None) -> Client:
    """Connections of our own, also to the server of somebody's client."""
    return broker.twin() if isinstance(broker, Client) else Client(broker, token)


def names(topics: str | Iterable[str]) -> list[str]:
    """One name is a list of one, not of its letters."""
    return [topics] if isinstance(topics, str) else list(dict.fromkeys(topics))
