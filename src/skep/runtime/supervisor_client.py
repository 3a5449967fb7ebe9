"""The worker's end of the keeper: starts one, tells it what to start and what to end, hears what has ended."""

import asyncio
import fcntl
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from skep.runtime.kernel import Table, boot, end_all, mark, tree

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
                *(sys.executable, "-I", "-m", "skep.runtime.supervisor", str(its.fileno()), str(folder / NOTES)),
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


# What is left when a keeper died with its worker: found by the keeper's notes and by a variable, and ended.

#: a keeper that has lost its worker needs milliseconds; one that was stopped needs help
_PATIENCE_SECONDS = 15.0


async def end_left_overs(folder: Path) -> int:
    """Waits for a keeper of `folder` to finish; then ends what it did not. How many processes that were."""
    async with _no_keeper(folder):
        return await asyncio.to_thread(_end, folder)


def _end(folder: Path) -> int:
    return end_marked(f"{MARK}={folder}", frozenset(_noted(folder)))


def end_marked(variable: str, noted: frozenset[str] = frozenset()) -> int:
    """What was started with this in its environment, and what is noted, with all that they started."""

    def ours(pid: int) -> bool:
        return mark(pid) in noted or variable.encode() in _environment(pid)

    def find(table: Table) -> set[int]:
        return tree(table, filter(ours, table)) - {os.getpid()}

    ended = 0
    while found := end_all(find):
        ended += found
    return ended


def _noted(folder: Path) -> list[str]:
    """Marks, the keeper's first. Those of an earlier start of the machine say nothing."""
    since, *marks = (folder / NOTES).read_text().splitlines() or [""]
    return [mark for mark in marks if mark] if since == boot() else []


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


@asynccontextmanager
async def _no_keeper(folder: Path) -> AsyncIterator[None]:
    """Begins once every keeper of `folder` has ended; another one waits until this is over."""
    notes = os.open(folder / NOTES, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    loop = asyncio.get_running_loop()
    patience = loop.time() + _PATIENCE_SECONDS
    try:
        while not _locked(notes):
            if loop.time() > patience:
                _kill_keeper(folder)
            await asyncio.sleep(0.01)
        yield
    finally:
        os.close(notes)


def _locked(notes: int) -> bool:
    try:
        fcntl.flock(notes, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _kill_keeper(folder: Path) -> None:
    for first in _noted(folder)[:1]:
        pid = int(first.split()[0])
        if mark(pid) == first:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
