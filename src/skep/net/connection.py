"""An HTTP connection that stays open and carries one exchange at a time, with nothing between socket and parser.

Whoever answers may be hostile, so what comes besides the body is bounded; the body is bounded by who takes it.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import httptools

#: bytes that may come without any of the body among them
_MOST_HEAD = 512 << 10
#: who sends fewer bytes a second than this, for as long as one is patient, does not answer
_SLOW = 100
Take = Callable[[bytes], object]


class NetworkError(Exception):
    """No answer came; the text is for people."""


class Closed(NetworkError):
    """Before anything came: as happens to a connection that was idle for too long."""


class Connection(asyncio.Protocol):
    """Its `on_…` are called by the parser."""

    def __init__(self) -> None:
        self.open = True
        self.head: list[bytes] = []
        self._heard = self._spare = 0
        self._in_body = False
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[int] | None = None
        self._transport: Any = None

    async def ask(self, request: bytes, take: Take, seconds: float, patience: float) -> int:
        """The status; what is said before the body is in `head` then. `take` is given the body: 0 from it ends it."""
        self._take, self._until = take, self._loop.time() + seconds
        self.head, self._heard, self._spare = [], 0, 0
        self._answer = self._loop.create_future()
        self._wait(patience)
        self._transport.write(request)
        try:
            return await self._answer
        except BaseException:
            # an answer that nobody waits for must not become the next one's
            self.abort()
            raise
        finally:
            self._timer.cancel()

    @property
    def status(self) -> int:
        """Of the answer that comes."""
        return int(self._parser.get_status_code())

    def abort(self) -> None:
        self.open = False
        self._transport.abort()

    def _wait(self, patience: float) -> None:
        self._timer = self._loop.call_later(patience, self._judge, self._heard, patience)

    def _judge(self, before: int, patience: float) -> None:
        if self._heard - before < _SLOW * patience or self._loop.time() >= self._until:
            self._fail(NetworkError("the host did not answer in time"))
        else:
            self._wait(patience)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._heard += len(data)
        self._spare += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail(NetworkError("the host does not speak HTTP as expected"))
        if self._spare > _MOST_HEAD:
            self._fail(NetworkError("the answer is larger than allowed"))

    def connection_lost(self, error: Exception | None) -> None:
        """Without a length, an answer ends with its connection."""
        self.open = False
        lengths = (b"content-length:", b"transfer-encoding:")
        if error is None and self._in_body and not any(line.lower().startswith(lengths) for line in self.head):
            self._end()
        else:
            broken = NetworkError("the answer broke off half-way")
            self._fail(broken if self._heard else Closed("the host closed the connection without an answer"))

    def on_message_begin(self) -> None:
        self._in_body = False
        if self._answer is None or self._answer.done():
            raise NetworkError("nobody asked for this one")  # ends the parser, and that the connection

    def on_header(self, name: bytes, value: bytes) -> None:
        self.head.append(name + b": " + value)

    def on_headers_complete(self) -> None:
        self._in_body = self.status >= 200

    def on_body(self, chunk: bytes) -> None:
        self._spare = 0
        try:
            if self._take(chunk) == 0:
                self._fail(NetworkError("the answer is larger than allowed"))
        except OSError as error:  # a full disk is not the host's fault
            self._fail(error)

    def on_message_complete(self) -> None:
        if self._in_body:
            self._end()
        else:
            self.head.clear()  # the answer itself is yet to come

    def _end(self) -> None:
        self._in_body = False
        self.open = self.open and self._parser.should_keep_alive()
        if self._answer and not self._answer.done():
            self._answer.set_result(self.status)

    def _fail(self, error: NetworkError | OSError) -> None:
        self.abort()
        if self._answer and not self._answer.done():
            self._answer.set_exception(error)
