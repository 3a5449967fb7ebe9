"""Messages over one gRPC stream, on either end."""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import msgspec

from skep.link.frames import Joiner, pack


class Wire:
    def __init__(self, stream: Any, joiner: Joiner[Any]) -> None:
        self._stream = stream
        self._joiner = joiner
        self._writing = asyncio.Lock()

    def limit(self, size: int) -> None:
        self._joiner.limit = size

    async def read(self) -> list[Any]:
        """The next frame; empty at the end of the stream."""
        while True:
            part = await self._stream.read()
            if part is grpc.aio.EOF:
                return []
            messages = self._joiner.feed(part)
            if messages is not None:
                return messages

    async def write(self, messages: Sequence[msgspec.Struct]) -> None:
        """Goes on when it is cancelled: gRPC takes nothing more, nor an end, while something is half written."""
        writing = asyncio.ensure_future(self._write(messages))
        writing.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(writing)

    async def _write(self, messages: Sequence[msgspec.Struct]) -> None:
        async with self._writing:
            for part in pack(messages):
                await self._stream.write(part)
