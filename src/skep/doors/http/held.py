"""uvicorn's protocol with fewer calls of the kernel: what one turn of the loop writes goes out together.

uvicorn writes the head of an answer and its body apart; each write is dear, and wakes the client for nothing.
"""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: more than this goes out at once, so that the transport can tell a handler that never waits to do so
_MOST = 65_536


class HeldProtocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(cast(asyncio.Transport, _Held(transport, self.loop)))


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
