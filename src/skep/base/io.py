"""Bytes both ways, each way with an end of its own: what a tunnel is made of."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

# Putting things on disk so that they are there after a power cut. A file's own flush does not cover its name.


def sync_file(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def sync_folders(*folders: Path) -> None:
    for folder in folders:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_private(path: Path, data: bytes) -> None:
    """Whole or not at all, and from its first byte on readable by this user alone."""
    aside = path.with_name(f"{path.name}.new")
    aside.unlink(missing_ok=True)
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        sync_file(file)
    aside.replace(path)


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
