"""Messages over one gRPC stream, on either end."""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import msgspec

from skep.errors import Unavailable
from skep.link.frames import Joiner, pack

#: what gRPC says, on either end, of a stream that is no more
BREAKS = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError)


class Broken(Unavailable):
    """The stream has ended under whoever was reading from it or writing to it."""

    @classmethod
    def of(cls, what: str, error: Exception) -> "Broken":
        details = error.details() if isinstance(error, grpc.aio.AioRpcError) else ""
        return cls(f"{what} broke off: {details}" if details else f"{what} broke off")


_LINK = "the link"


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
            try:
                part = await self._stream.read()
            except BREAKS as error:
                raise Broken.of(_LINK, error) from None
            if part is grpc.aio.EOF:
                return []
            messages = self._joiner.feed(part)
            if messages is not None:
                return messages

    async def write(self, messages: Sequence[msgspec.Struct]) -> None:
        """Goes on when it is cancelled: gRPC takes nothing more, nor an end, while something is half written."""
        writing = asyncio.ensure_future(self._write(messages))
        writing.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await asyncio.shield(writing)
        except BREAKS as error:
            raise Broken.of(_LINK, error) from None

    async def _write(self, messages: Sequence[msgspec.Struct]) -> None:
        async with self._writing:
            for part in pack(messages):
                await self._stream.write(part)
