"""How many bytes all mirrors of a worker may have together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from skep.errors import NoSpace
from skep.sources.git.upkeep import pack_bytes

_UNBOUNDED = 1 << 62


class Quota:
    def __init__(self, mirrors: Path, most: int) -> None:
        """`most` 0: no limit, and nothing is counted."""
        self._mirrors = mirrors
        self._most = most
        self._used: int | None = None

    @asynccontextmanager
    async def room(self, folder: Path, *, need: bool = True) -> AsyncIterator[int]:
        """Bytes that the mirror may grow by while this is open; NoSpace when there are none and they are needed."""
        if not self._most:
            yield _UNBOUNDED
            return
        if self._used is None:
            self._used = await asyncio.to_thread(self._count)
        if need and self._used >= self._most:
            raise NoSpace(f"the mirrors have {self._used:,} bytes; `max_mirrors` permits {self._most:,}")
        before = pack_bytes(folder)
        try:
            yield max(1, self._most - self._used)
        finally:
            self._used += pack_bytes(folder) - before

    def _count(self) -> int:
        return sum(pack_bytes(folder) for folder in self._mirrors.glob("*/*/*.git"))
