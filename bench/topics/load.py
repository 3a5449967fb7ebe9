"""A cheap HTTP client for load: one connection for each producer, the next request as soon as the last is answered."""

import asyncio
import time
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

#: from the body of the last answer to the next request; None: enough
Next = Callable[[bytes], bytes | None]


def request(url: str, token: str, verb: str, path: str, body: bytes = b"", media: str = "application/json") -> bytes:
    head = (
        f"{verb} {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: {media}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class _Asking(asyncio.Protocol):
    def __init__(self, turn: Next) -> None:
        self._turn = turn
        self._head = b""
        self._body: list[bytes] = []
        #: bytes of the body that are still to come
        self._left = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._go_on(b"")

    def data_received(self, data: bytes) -> None:
        if not self._left:
            self._head, end, data = (self._head + data).partition(b"\r\n\r\n")
            if not end:
                return
            place = self._head.lower().index(b"content-length: ") + 16
            self._left = int(self._head[place:].partition(b"\r\n")[0])
        self._body.append(data)
        self._left -= len(data)
        if self._left:
            return
        head, body, self._head, self._body = self._head, b"".join(self._body), b"", []
        if head[9:10] != b"2":
            self.done.set_exception(RuntimeError((head + body).decode("latin-1")))
            self._transport.close()
            return
        self._go_on(body)

    def _go_on(self, answer: bytes) -> None:
        wanted = self._turn(answer)
        if wanted is None:
            self._transport.close()
        else:
            self._transport.write(wanted)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None) if error is None else self.done.set_exception(error)


async def asked(url: str, turn: Next, connections: int = 1) -> float:
    """Seconds until every connection had enough."""
    loop, place = asyncio.get_running_loop(), urlsplit(url)
    began = time.perf_counter()
    all_asking = [
        (await loop.create_connection(lambda: _Asking(turn), place.hostname or "", place.port or 80))[1]
        for _ in range(connections)
    ]
    await asyncio.gather(*(asking.done for asking in all_asking))
    return time.perf_counter() - began


async def flood(url: str, wanted: bytes, *, producers: int, total: int) -> float:
    """The same request `total` times; how many a second."""
    left = total

    def turn(_: bytes) -> bytes | None:
        nonlocal left
        left -= 1
        return wanted if left >= 0 else None

    return total / await asked(url, turn, producers)
