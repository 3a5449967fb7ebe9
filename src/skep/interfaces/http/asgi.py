"""uvicorn's protocol with fewer calls of the kernel: what one turn of the loop writes goes out together.

uvicorn writes the head of an answer and its body apart; each write is dear, and wakes the client for nothing. It also
reads heads without end, and says in one sentence of its own whatever is wrong with them.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl

import msgspec
from litestar.types import HTTPScope, Receive, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from skep.base.answers import ErrorAnswer, ErrorBody
from skep.base.errors import BadInput
from skep.base.loops import racing

# What routes past Litestar share: how they read a query, answer, and end when nobody waits any more.

T = TypeVar("T")
#: headers of what is read as it comes
STREAMED = {"cache-control": "no-store", "x-accel-buffering": "no"}


def query_of(scope: HTTPScope, shape: type[T]) -> T:
    query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    try:
        return msgspec.convert(query, shape, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(f"this cannot be read: {error}", hint="/docs lists every operation and its fields") from error


async def respond(
    send: Send, status: int, body: bytes, media: str = "application/json", more: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    headers = [(b"content-type", media.encode()), (b"content-length", b"%d" % len(body)), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def left(receive: Receive) -> None:
    """The client went away."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless(ending: Coroutine[Any, Any, object], work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` gives; None when `ending` is over before."""
    async with racing(work, ending) as (doing, _):
        given: T | None = doing.result() if doing.done() else None
    return given


#: more than this goes out at once, so that the transport can tell a handler that never waits to do so
_MOST = 65_536
#: bytes of an address that its parser takes, and of a head that is read
_MOST_URL, _MOST_HEAD = 65_535, 4_000_000
#: seconds for which the rest of a body is dropped after the answer
_LINGER = 30.0
_LONG_URL = ErrorBody(
    "too_large", f"the address is longer than {_MOST_URL:,} bytes", "ask for less at a time; a query may have 10,000"
)
_LONG_HEAD = ErrorBody("too_large", f"the request's head is longer than {_MOST_HEAD:,} bytes")
_NO_HTTP = ErrorBody("bad_input", "this is no HTTP request", "https:// where http:// is meant?")


class HeldProtocol(HttpToolsProtocol):
    #: bytes of a head that is not whole yet; None: none has begun
    _head: int | None = None
    #: all of the request has arrived
    _is_whole = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(cast(asyncio.Transport, _Held(transport, self.loop)))

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head is not None:
            self._head += len(data)
            if self._head > _MOST_HEAD:
                self._refuse(b"431 Request Header Fields Too Large", _LONG_HEAD)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = 0
        self._is_whole = False

    def on_message_complete(self) -> None:
        self._is_whole = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """An answer may be given before the body was read, and most clients send all of it before they look for the
        answer: it is dropped as it comes, for a while."""
        super().on_response_complete()
        if not self._is_whole and not self.transport.is_closing():
            self.loop.call_later(_LINGER, self._hang_up, self.cycle)

    def _hang_up(self, answered: Any) -> None:
        if self.cycle is answered and not self._is_whole:
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._head = None
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        if len(getattr(self, "url", b"")) > _MOST_URL:
            self._refuse(b"414 URI Too Long", _LONG_URL)
        else:
            self._refuse(b"400 Bad Request", _NO_HTTP)

    def _refuse(self, status: bytes, error: ErrorBody) -> None:
        body = msgspec.json.encode(ErrorAnswer(error))
        head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (status, len(body)) + body)
        self.transport.close()


class _Held:
    """A transport that writes when the loop turns."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._waiting: list[bytes] = []
        self._size = 0
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)
        self._size += len(data)
        if self._size > _MOST:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        waiting, self._waiting, self._size = self._waiting, [], 0
        if waiting and not self._transport.is_closing():
            self._transport.writelines(waiting)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
