"""What producers send, gathered: messages that come while a request is under way go together in the next.

Everything here runs on one event loop: the caller's own, or that of a producer's thread. Two requests are under way at
once, so that neither end waits for the other: who waits for a message's answer cannot tell in which order it was stored
with messages of others. Buffered messages keep their order, so nothing is sent beside them.
"""

import asyncio
import copy
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import msgspec

from skep.client.line import Line
from skep.client.patience import Patience
from skep.client.topics import Outgoing, messages_path
from skep.client.transport import Transport
from skep.errors import BadInput, Busy, SkepError, TooLarge, Unavailable
from skep.model.ids import new_id
from skep.model.topic import Posted, PostedAnswer

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
