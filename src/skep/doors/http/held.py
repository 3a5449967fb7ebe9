"""uvicorn's protocol with fewer calls of the kernel: what one turn of the loop writes goes out together.

uvicorn writes the head of an answer and its body apart, and each write is dear.
"""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: more than this goes out at once, so that a handler that never waits does not fill the memory
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
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        self._waiting.append(data)
        if len(data) > _MOST:
            self._flush()
        elif len(self._waiting) == 1:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._waiting:
            data = b"".join(self._waiting)
            self._waiting.clear()
            self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
