"""A mirror that nobody else changes for as long as one holds it. Git children inherit the lock."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from skep.errors import Busy
from skep.sources.git.pktline import to_bytes
from skep.sources.git.process import Result, environment, run

_PATIENCE = 10.0
_QUICK = 600.0
#: refs are flushed once, when they are packed, and not one by one
_CONFIG = (("core.fsync", "all"),)


class Locked:
    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self.lock = lock

    async def git(self, *args: str, input: bytes = b"", seconds: float = _QUICK) -> Result:
        args = ("-C", str(self.folder), *args)
        return await run(args, environment(_CONFIG), seconds=seconds, input=input, keep=(self.lock,))

    async def delete(self, names: Iterable[str]) -> bool:
        """All of them or, when False, none."""
        return await self._update(b"".join(b"delete %s\0\0" % to_bytes(name) for name in names))

    async def create(self, refs: Iterable[tuple[str, str]]) -> bool:
        return await self._update(b"".join(b"update %s\0%s\0\0" % (to_bytes(name), oid.encode()) for name, oid in refs))

    async def _update(self, lines: bytes) -> bool:
        return not lines or (await self.git("update-ref", "--stdin", "-z", input=lines)).code == 0


@asynccontextmanager
async def locked(folder: Path) -> AsyncIterator[Locked]:
    """Busy when another process, perhaps the orphan of a killed worker, does not let go."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for _ in range(int(_PATIENCE / 0.05)):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(0.05)
        else:
            raise Busy(f"another git process is at work in {folder.name}", hint="it will be tried again")
        if os.fstat(lock).st_ino != os.stat(folder).st_ino:  # noqa: PTH116 - beside fstat
            raise Busy(f"{folder.name} was made anew meanwhile", hint="it will be tried again")
        yield Locked(folder, lock)
    finally:
        os.close(lock)
