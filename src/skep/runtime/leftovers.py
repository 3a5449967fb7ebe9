"""What is left when a keeper died with its worker: found by the keeper's notes and by a variable, and ended."""

import asyncio
import fcntl
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from skep.runtime.keeping import MARK, NOTES
from skep.runtime.processes import Table, boot, end_all, mark, tree

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
