"""A kept-alive connection for asyncio that carries one request at a time, with nothing between socket and parser."""

import asyncio
import http.client
import ssl
from contextlib import suppress
from typing import TypeVar, cast

import httptools

from skep.client.transport import Transport
from skep.client.whereabouts import port_of

T = TypeVar("T")


class Line:
    """For requests that may be repeated: one that met a connection at its end goes out again on a new one."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._kept: _Connection | None = None

    async def post(self, path: str, content: bytes, answer: type[T]) -> T:
        with self._transport.explained(self._transport.timeout) as seconds:
            async with asyncio.timeout(seconds):
                status, data = await self._exchange(self._head(path, len(content)) + content)
        if status >= 300:
            raise self._transport.error(status, data)
        return self._transport.decoded(data, answer)

    def close(self) -> None:
        if self._kept:
            self._kept.abort()

    async def _exchange(self, request: bytes) -> tuple[int, bytes]:
        if self._kept and not self._kept.ended:
            with suppress(ConnectionError):
                return await self._kept.ask(request)
        self._kept = await self._connected()
        return await self._kept.ask(request)

    async def _connected(self) -> "_Connection":
        url = self._transport.url
        secure = ssl.create_default_context() if url.scheme == "https" else None
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(_Connection, url.hostname or "", port_of(url), ssl=secure))[1]

    def _head(self, path: str, length: int) -> bytes:
        host = self._transport.url.netloc.rpartition("@")[2].encode("idna").decode()
        lines = [f"POST {self._transport.target(path, None)} HTTP/1.1", f"Host: {host}"]
        headers = {**self._transport.headers(), "Content-Type": "application/json", "Content-Length": length}
        return ("\r\n".join(lines + [f"{name}: {value}" for name, value in headers.items()]) + "\r\n\r\n").encode()


class _Connection(asyncio.Protocol):
    """Its `on_…` are called by the parser."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.ended = False

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._answer
        except BaseException:
            # an answer that nobody waits for must not become the next one's
            self.abort()
            raise

    def abort(self) -> None:
        self.ended = True
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(http.client.HTTPException(str(error)))

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(error or ConnectionResetError("the server closed the connection"))

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        body, self._body = b"".join(self._body), []
        status = self._parser.get_status_code()
        if status < 200:  # the answer itself is yet to come
            return
        self.ended = self.ended or not self._parser.should_keep_alive()
        if self._answer and not self._answer.done():
            self._answer.set_result((status, body))
        if self.ended:
            self._transport.close()

    def _fail(self, error: Exception) -> None:
        self.ended = True
        if self._answer and not self._answer.done():
            self._answer.set_exception(error)
