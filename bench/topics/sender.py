"""Many producers of one program that share a client, as they do with nats-py: what they send meanwhile goes together.

Each waits until its own message is stored. Two requests are under way, so that neither end waits for the other.
"""

import asyncio
from typing import Self, cast
from urllib.parse import urlsplit

import msgspec

from bench.topics.load import request

_LINES = 2
_encode = msgspec.json.Encoder().encode
Waiting = list[tuple[object, "asyncio.Future[int]"]]


class _Posted(msgspec.Struct):
    partition: int
    offset: int


class _Answer(msgspec.Struct):
    posted: list[_Posted]


_decode = msgspec.json.Decoder(_Answer).decode


class _Line(asyncio.Protocol):
    """One connection; a request and its answer at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._buffer = b""

    def ask(self, wanted: bytes) -> "asyncio.Future[bytes]":
        self._answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._transport.write(wanted)
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, blank, body = self._buffer.partition(b"\r\n\r\n")
        if blank and len(body) >= int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]):
            self._buffer = b""
            if head[9:10] == b"2":
                self._answer.set_result(body)
            else:
                self._answer.set_exception(RuntimeError(body.decode()))

    def close(self) -> None:
        self._transport.close()


class Sender:
    def __init__(self, url: str, token: str, path: str) -> None:
        self._to = url, token, "POST", path
        self._waiting: Waiting = []
        self._bell = asyncio.Event()

    async def __aenter__(self) -> Self:
        loop, place = asyncio.get_running_loop(), urlsplit(self._to[0])
        self._lines = [
            (await loop.create_connection(_Line, place.hostname or "", place.port or 80))[1] for _ in range(_LINES)
        ]
        self._tasks = [asyncio.create_task(self._carry(line)) for line in self._lines]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for line in self._lines:
            line.close()

    async def send(self, body: object) -> int:
        """The offset, once it is stored."""
        stored: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((body, stored))
        self._bell.set()
        return await stored

    async def _carry(self, line: _Line) -> None:
        while True:
            await self._bell.wait()
            group, self._waiting = self._waiting, []
            self._bell.clear()
            if group:
                await self._store(line, group)

    async def _store(self, line: _Line, group: Waiting) -> None:
        body = _encode({"messages": [{"body": body} for body, _ in group]})
        answer = _decode(await line.ask(request(*self._to, body)))
        for (_, stored), posted in zip(group, answer.posted, strict=True):
            stored.set_result(posted.offset)
