"""Bytes both ways, each way with an end of its own: what a tunnel is made of."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

#: bytes taken at once; few of them are in memory at a time, however slow a reader is
BLOCK = 1 << 18


class Stream(Protocol):
    async def read(self) -> bytes:
        """Empty: the other side has said everything."""
        ...

    async def write(self, data: bytes) -> None:
        """Waits while the other side is slow to read."""
        ...

    async def end(self) -> None:
        """Nothing more will be written."""
        ...


class SocketStream:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        return await self._reader.read(BLOCK)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def end(self) -> None:
        self._writer.write_eof()

    def close(self) -> None:
        self._writer.transport.abort()


@asynccontextmanager
async def socket_pair() -> AsyncIterator[tuple[SocketStream, socket.socket]]:
    """A stream, and the socket at its other side for a child process to inherit; close it once the child has it."""
    ours, theirs = socket.socketpair()
    with theirs:
        stream = SocketStream(*await asyncio.open_connection(sock=ours, limit=BLOCK))
        try:
            yield stream, theirs
        finally:
            stream.close()


async def pump(one: Stream, other: Stream) -> None:
    """Until both have said everything, or one of them fails."""
    ways = [asyncio.create_task(_copy(one, other)), asyncio.create_task(_copy(other, one))]
    try:
        done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
    for way in done:
        way.result()


async def _copy(source: Stream, sink: Stream) -> None:
    while data := await source.read():
        await sink.write(data)
    await sink.end()
