"""Sending to topics without losing or doubling a message.

`send` returns when the message is stored. `buffer` returns at once and stores in the background: the explicit choice of
speed over knowing. Both repeat an attempt whose answer did not come; the server knows the producer's id and the
message's number, so that a repeat is stored once.
"""

import asyncio
import copy
import logging
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Self, TypeVar

import msgspec

from skep.base.errors import BadInput, Busy, Conflict, SkepError, TooLarge, Unavailable
from skep.base.ids import new_id
from skep.client.client import Client
from skep.client.topics import Outgoing, messages_path
from skep.client.transport import Patience, Transport, persist, port_of
from skep.net.connection import Connection, NetworkError
from skep.topics.api import Posted, PostedAnswer

# A kept-alive connection for asyncio that carries one request at a time, with nothing between socket and parser.

T = TypeVar("T")


class Line:
    """For requests that may be repeated: one that met a connection at its end goes out again on a new one."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._kept: Connection | None = None

    async def post(self, path: str, content: bytes, answer: type[T]) -> T:
        with self._transport.explained(self._transport.timeout) as seconds:
            async with asyncio.timeout(seconds):
                status, data = await self._exchange(self._head(path, len(content)) + content, seconds)
        if status >= 300:
            raise self._transport.error(status, data)
        return self._transport.decoded(data, answer)

    def close(self) -> None:
        if self._kept:
            self._kept.abort()

    async def _exchange(self, request: bytes, seconds: float) -> tuple[int, bytes]:
        if self._kept and self._kept.open:
            with suppress(NetworkError):
                return await _ask(self._kept, request, seconds)
        self._kept = await self._connected()
        try:
            return await _ask(self._kept, request, seconds)
        except NetworkError as error:
            raise ConnectionError(str(error)) from error

    async def _connected(self) -> Connection:
        url = self._transport.url
        secure = ssl.create_default_context() if url.scheme == "https" else None
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(Connection, url.hostname or "", port_of(url), ssl=secure))[1]

    def _head(self, path: str, length: int) -> bytes:
        host = self._transport.url.netloc.rpartition("@")[2].encode("idna").decode()
        lines = [f"POST {self._transport.target(path, None)} HTTP/1.1", f"Host: {host}"]
        headers = {**self._transport.headers(), "Content-Type": "application/json", "Content-Length": length}
        return ("\r\n".join(lines + [f"{name}: {value}" for name, value in headers.items()]) + "\r\n\r\n").encode()


async def _ask(connection: Connection, request: bytes, seconds: float) -> tuple[int, bytes]:
    parts: list[bytes] = []
    return await connection.ask(request, parts.append, seconds, seconds), b"".join(parts)


# What producers send, gathered: messages that come while a request is under way go together in the next.
#
# Everything here runs on one event loop: the caller's own, or that of a producer's thread. Two requests are under way
# at
# once, so that neither end waits for the other: who waits for a message's answer cannot tell in which order it was
# stored
# with messages of others. Buffered messages keep their order, so nothing is sent beside them.

log = logging.getLogger(__name__)

#: called with the error, the topic and the buffered messages that were not stored
Failed = Callable[[SkepError, str, Sequence[Outgoing]], object]

_LINES = 2
#: messages and bytes that go into one request
_MOST = 500
_BYTES = 500_000
_encode = msgspec.json.Encoder().encode


class Item(msgspec.Struct, frozen=True, gc=False):
    """A message on its way. Who waits for it holds its `answer`; without one it is buffered."""

    topic: str
    message: Outgoing
    content: bytes
    answer: "Future[Posted] | asyncio.Future[Posted] | None"
    at: float


def item(topic: str, message: Outgoing, answer: "Future[Posted] | asyncio.Future[Posted] | None") -> Item:
    try:
        return Item(topic, message, _encode(message), answer, time.monotonic())
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"a message is text or a JSON value: {error}") from error


class Sending:
    def __init__(
        self, transport: Transport, patience: float, on_error: Failed | None, settled: Callable[[int], object]
    ) -> None:
        """`settled` is told how many messages make room for others."""
        self.id = new_id("prd", time.time())
        self._sequence = 0
        self._patience = patience
        self._on_error = on_error
        self._settled = settled
        self._waiting: deque[Item] = deque()
        self._free = [Line(transport) for _ in range(_LINES)]
        self._tasks: set[asyncio.Task[None]] = set()
        self._rung = False
        #: a batch with buffered messages is under way
        self._in_order = False
        self._buffered = 0
        self._drained = asyncio.Event()
        self._untold: list[tuple[SkepError, str, list[Outgoing]]] = []
        self._error: SkepError | None = None
        self._lost = 0
        self._stopping = False

    def put(self, item: Item) -> None:
        if self._stopping:
            raise stopped()
        self._waiting.append(item)
        if item.answer is None:
            self._buffered += 1
        self._ring()

    async def flush(self) -> None:
        while self._buffered:
            self._drained.clear()
            await self._drained.wait()
        error, self._error = self._error, None
        lost, self._lost = self._lost, 0
        if error:
            error.add_note(f"{lost} of the buffered messages were not stored")
            raise error

    async def stop(self) -> None:
        """After what is buffered; whoever still waits for an answer is told that there will be none."""
        self._stopping = True
        try:
            await self.flush()
        finally:
            self._give_up(stopped())
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for line in self._free:
                line.close()

    def _ring(self) -> None:
        """Not at once: whoever is about to put something, does so first."""
        if not self._rung:
            self._rung = True
            asyncio.get_running_loop().call_soon(self._go)

    def _go(self) -> None:
        self._rung = False
        while self._waiting and self._free and not self._in_order:
            batch = self._take()
            buffered = sum([one.answer is None for one in batch])
            self._in_order = buffered > 0
            task = asyncio.create_task(self._carry(self._free.pop(), batch, buffered))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _take(self) -> list[Item]:
        """As many as go into one request."""
        topic, size = self._waiting[0].topic, 0
        batch: list[Item] = []
        while self._waiting and self._waiting[0].topic == topic and len(batch) < _MOST:
            size += len(self._waiting[0].content)
            if batch and size > _BYTES:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _carry(self, line: Line, batch: list[Item], buffered: int) -> None:
        sequence, self._sequence = self._sequence, self._sequence + len(batch)
        try:
            await self._store(line, batch, sequence)
        except BaseException:
            self._failed(stopped(), batch)
            raise
        finally:
            self._free.append(line)
            self._in_order = self._in_order and not buffered
            self._settled(len(batch))
            self._ring()
            await self._finish(buffered)

    async def _store(self, line: Line, batch: list[Item], sequence: int) -> None:
        """A message that the server refuses must not take its neighbours with it."""
        try:
            posted = await self._post(line, batch, sequence)
        except (BadInput, TooLarge) as error:
            if len(batch) == 1:
                self._failed(error, batch)
                return
            half = len(batch) // 2
            await self._store(line, batch[:half], sequence)
            await self._store(line, batch[half:], sequence + half)
        except SkepError as error:
            self._failed(error, batch)
            if self._stopping and isinstance(error, Unavailable):
                # a server that is away is not waited for once more with every batch
                self._give_up(error)
        else:
            for one, place in zip(batch, posted, strict=True):
                if one.answer and not one.answer.done():
                    one.answer.set_result(place)

    async def _post(self, line: Line, batch: list[Item], sequence: int) -> Sequence[Posted]:
        """Repeated with the same numbers until it is answered, so that it is stored once."""
        messages = b",".join([one.content for one in batch])
        content = b'{"producer":"%b","sequence":%d,"messages":[%b]}' % (self.id.encode(), sequence, messages)
        path = messages_path(batch[0].topic)
        patience = Patience(self._patience, begun=batch[-1].at)
        while True:
            try:
                return (await line.post(path, content, PostedAnswer)).posted
            except Unavailable as error:
                await asyncio.sleep(patience.pause(error))

    def _give_up(self, error: SkepError) -> None:
        while self._waiting:
            batch = self._take()
            self._failed(error, batch)
            self._buffered -= sum([one.answer is None for one in batch])
            self._settled(len(batch))

    def _failed(self, error: SkepError, batch: list[Item]) -> None:
        lost = [one.message for one in batch if one.answer is None]
        if lost:
            self._error = self._error or error
            self._lost += len(lost)
            self._untold.append((error, batch[0].topic, lost))
        for one in batch:
            if one.answer and not one.answer.done():
                one.answer.set_exception(copy.copy(error))

    async def _finish(self, buffered: int) -> None:
        """In a thread and with the lines free, so that whoever hears of it may send something."""
        while self._untold:
            told = self._untold.pop(0)
            if self._on_error:
                try:
                    await asyncio.to_thread(self._on_error, *told)
                except Exception:
                    log.exception("on_error of a producer failed")
        self._buffered -= buffered
        if not self._buffered:
            self._drained.set()


def stopped() -> Unavailable:
    return Unavailable("the producer was stopped", hint="make another one")


def full(room: int) -> Busy:
    return Busy(f"{room} messages are on their way already", hint="flush, or wait")


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
