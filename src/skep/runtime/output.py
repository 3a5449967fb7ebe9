"""What a run writes: told live in chunks, written to files, bounded, and never faster than it is taken."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import get_args

from skep.model.task import Stream

log = logging.getLogger("skep.runtime")

OnOutput = Callable[[Stream, bytes], Awaitable[None] | None]
_CHUNK = 1 << 16
_GATHER_SECONDS = 0.1
#: for the last of it to come, once nothing is left that could write
_LINGER_SECONDS = 5.0
#: whoever writes so many times what is kept is ended
_FLOOD = 10


class Outputs:
    """Both streams of a run. `end` is called with a reason when it should not go on."""

    def __init__(self, folder: Path, limit: int, on_output: OnOutput, end: Callable[[str], None]) -> None:
        self._streams = [_Stream(name, folder / name, limit, on_output, end) for name in get_args(Stream)]
        self._pumps: list[asyncio.Task[None]] = []
        self._end = end

    @contextmanager
    def open(self) -> Iterator[list[int]]:
        """The descriptors to write to; whoever needs them longer has copied them by the end of this."""
        writing: list[int] = []
        try:
            for stream in self._streams:
                reading, write = os.pipe()
                writing.append(write)
                pump = asyncio.create_task(stream.pump(reading))
                # not in `pump`: what is cancelled before its first step never gets to its `finally`
                pump.add_done_callback(partial(_close, reading))
                pump.add_done_callback(self._check)
                self._pumps.append(pump)
            yield writing
        finally:
            for file in writing:
                os.close(file)

    def stop(self) -> None:
        """Nobody listens any more."""
        for pump in self._pumps:
            pump.cancel()

    async def drain(self) -> list[int]:
        """The sizes of all that came, once all of it was told. Raises what the listener raised."""
        # a descriptor handed to somebody else may stay open for ever; a slow listener may take its time
        while self._pumps and (await asyncio.wait(self._pumps, timeout=_LINGER_SECONDS))[1]:
            if not any(stream.telling for stream in self._streams):
                self.stop()
        for pump in self._pumps:
            if not pump.cancelled():
                pump.result()
        return [stream.size for stream in self._streams]

    def _check(self, pump: asyncio.Task[None]) -> None:
        if not pump.cancelled() and pump.exception() is not None:
            self._end("cancelled")


class _Stream:
    def __init__(self, name: Stream, path: Path, limit: int, on_output: OnOutput, end: Callable[[str], None]) -> None:
        self.name = name
        #: bytes that came, kept or not
        self.size = 0
        #: somebody is being told at this moment
        self.telling = False
        self._path: Path | None = path
        self._limit = limit
        self._on_output = on_output
        self._end = end

    async def pump(self, file: int) -> None:
        """Until the last writer has closed it. The caller closes `file`.

        No transport: under uvloop a transport closes the descriptor, and then the file object that it was made of
        closes the same number again.
        """
        os.set_blocking(file, False)
        while chunk := await _gathered(file):
            await self._take(chunk)

    async def _take(self, chunk: bytes) -> None:
        before = self.size
        self.size += len(chunk)
        if before < self._limit:
            await self._tell(chunk[: self._limit - before])
        if before <= self._limit < self.size:
            await self._tell(f"\n[skep: {self.name} beyond {self._limit:,} bytes is dropped]\n".encode())
        if before <= self._limit * _FLOOD < self.size:
            self._end("output")

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


def _close(file: int, _: asyncio.Task[None]) -> None:
    os.close(file)


async def _gathered(file: int) -> bytes:
    """A full chunk, or what there is after a moment. Empty: the end."""
    chunk = await _read(file, _CHUNK)
    try:
        async with asyncio.timeout(_GATHER_SECONDS if chunk else None):
            while chunk and len(chunk) < _CHUNK and (more := await _read(file, _CHUNK - len(chunk))):
                chunk += more
    except TimeoutError:
        pass  # `_read` was waiting: it takes nothing before it returns
    return chunk


async def _read(file: int, size: int) -> bytes:
    """What is there, once there is something. The loop only watches the descriptor."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    while True:
        ready.clear()
        loop.add_reader(file, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(file)
        try:
            return os.read(file, size)
        except BlockingIOError:
            continue
