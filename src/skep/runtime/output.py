"""One stream of a run: told live in chunks, written to a file, bounded, and never faster than it is taken."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from skep.model.task import Stream

log = logging.getLogger("skep.runtime")

OnOutput = Callable[[Stream, bytes], Awaitable[None] | None]
_CHUNK = 1 << 16
_GATHER_SECONDS = 0.1
#: whoever writes so many times what is kept is ended
_FLOOD = 10


class Output:
    def __init__(self, name: Stream, path: Path, limit: int, on_output: OnOutput, on_flood: Callable[[], None]) -> None:
        self.name = name
        #: bytes that came, kept or not
        self.size = 0
        #: somebody is being told at this moment
        self.telling = False
        self._path: Path | None = path
        self._limit = limit
        self._on_output = on_output
        self._on_flood = on_flood

    async def pump(self, pipe: int) -> None:
        """Until the last writer has closed it. `pipe` is closed here."""
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(_CHUNK)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb", buffering=0)
        )
        try:
            while chunk := await _gathered(reader):
                await self._take(chunk)
        finally:
            transport.close()

    async def _take(self, chunk: bytes) -> None:
        before = self.size
        self.size += len(chunk)
        if before < self._limit:
            await self._tell(chunk[: self._limit - before])
        if before <= self._limit < self.size:
            await self._tell(f"\n[skep: {self.name} beyond {self._limit:,} bytes is dropped]\n".encode())
        if before <= self._limit * _FLOOD < self.size:
            self._on_flood()

    async def _tell(self, part: bytes) -> None:
        self.telling = True
        try:
            # a thread, as a disk that a task keeps busy would stop the worker's heart
            await asyncio.to_thread(self._write, part)
            if (taking := self._on_output(self.name, part)) is not None:
                await taking
        finally:
            self.telling = False

    def _write(self, part: bytes) -> None:
        if self._path is None:
            return
        try:
            with self._path.open("ab") as file:
                file.write(part)
        except OSError as error:
            log.warning(
                "output of a run is not written any more", extra={"path": str(self._path), "reason": str(error)}
            )
            self._path = None


async def _gathered(reader: asyncio.StreamReader) -> bytes:
    """A full chunk, or what there is after a moment."""
    try:
        async with asyncio.timeout(_GATHER_SECONDS):
            return await reader.readexactly(_CHUNK)
    except TimeoutError:
        return await reader.read(_CHUNK)
    except asyncio.IncompleteReadError as rest:
        return rest.partial
