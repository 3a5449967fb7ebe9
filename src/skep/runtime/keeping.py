"""The worker's end of the keeper: starts one, tells it what to start and what to end, hears what has ended."""

import asyncio
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

#: in the environment of the keeper and of all that it starts
MARK = "SKEP_RUNTIME"
NOTES = "keeper"


#: one message, and the descriptors that came with it, which the hearer closes
Hear = Callable[[dict[str, Any], list[int]], None]


class Keeping:
    """One keeper, from its start to its death."""

    def __init__(self, line: socket.socket, child: asyncio.subprocess.Process) -> None:
        self._line = line
        self._child = child
        self._turn = asyncio.Lock()
        #: there while a message waits for room in the socket
        self._room: asyncio.Event | None = None

    @classmethod
    async def start(cls, folder: Path, hear: Hear, gone: Callable[[], None]) -> "Keeping":
        """`hear` gets every message; `gone` is called once, when the keeper has ended without being asked to."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-m", "skep.runtime.keeper", str(its.fileno()), str(folder / NOTES)),
                env={MARK: str(folder)},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=(its.fileno(),),
                start_new_session=True,
            )
        ours.setblocking(False)
        keeping = cls(ours, child)
        asyncio.get_running_loop().add_reader(ours, keeping._read, hear, gone)
        return keeping

    def _read(self, hear: Hear, gone: Callable[[], None]) -> None:
        try:
            while True:
                data, files, *_ = socket.recv_fds(self._line, 1 << 16, 1)
                if not data:
                    break
                hear(msgspec.json.decode(data), files)
        except BlockingIOError:
            return
        except ConnectionError:
            pass
        asyncio.get_running_loop().remove_reader(self._line)
        gone()

    async def tell(self, message: bytes, files: Sequence[int] = ()) -> None:
        """In the order of the calls. A keeper that is gone hears nothing, and `gone` says so."""
        async with self._turn:
            while True:
                try:
                    socket.send_fds(self._line, [message], files)
                except BlockingIOError:
                    await self._writable()
                except OSError:
                    return
                else:
                    return

    @property
    def blocked(self) -> bool:
        """A message waits because the keeper does not read."""
        return self._room is not None

    async def _writable(self) -> None:
        self._room = asyncio.Event()
        asyncio.get_running_loop().add_writer(self._line, self._room.set)
        try:
            await self._room.wait()
        finally:
            self._room = None
            if self._line.fileno() >= 0:
                asyncio.get_running_loop().remove_writer(self._line)

    async def close(self) -> None:
        """Returns when the keeper and all that it kept have ended."""
        loop = asyncio.get_running_loop()
        if self._line.fileno() >= 0:
            # the loop must watch a number no longer once it is closed: another file may get it
            loop.remove_reader(self._line)
            loop.remove_writer(self._line)
            self._line.close()
        if self._room is not None:
            self._room.set()  # sending fails now, and who waits to send learns it
        await self._child.wait()
