"""A kept-alive connection for asyncio that carries one request at a time, with nothing between socket and parser."""

import asyncio
import ssl
from contextlib import suppress
from typing import TypeVar

from skep.client.transport import Transport
from skep.client.whereabouts import port_of
from skep.connection import Connection, NetworkError

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
