"""A coordinator's desk that gives nothing and wants nothing: what desks under test have in common."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from skep.rpc.messages import Beat, Hello, Open
from skep.sources.model import Key
from skep.storage.database import Bell, Bells

_PATIENCE = 120.0


class QuietDesk:
    def __init__(self) -> None:
        self.bells = Bells()
        self.beats: list[Beat] = []
        self.held_keys: tuple[Key, ...] = ()
        #: sources that people asked for
        self.wanted: list[str] = []
        self.changed = asyncio.Condition()

    async def until(self, ready: Callable[[], object]) -> None:
        async with self.changed, asyncio.timeout(_PATIENCE):
            await self.changed.wait_for(lambda: bool(ready()))

    async def tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def watch(self, hello: Hello) -> None:
        await asyncio.Event().wait()

    async def beat(self, member: str, boot: int, beat: Beat) -> None:
        self.beats.append(beat)
        await self.tell()

    @asynccontextmanager
    async def bell(self, member: str) -> AsyncIterator[Bell]:
        async with self.bells.listen("orders") as bell:
            yield bell

    @asynccontextmanager
    async def runs_bell(self, member: str) -> AsyncIterator[Bell]:
        async with self.bells.listen("runs") as bell:
            yield bell

    async def keys(self) -> tuple[Key, ...]:
        return self.held_keys

    @asynccontextmanager
    async def keys_bell(self) -> AsyncIterator[Bell]:
        async with self.bells.listen("keys") as bell:
            yield bell

    async def openings(self, member: str) -> list[Open]:
        return []

    @asynccontextmanager
    async def openings_bell(self, member: str) -> AsyncIterator[Bell]:
        async with self.bells.listen("openings") as bell:
            yield bell

    async def share(self, member: str) -> tuple[float, float]:
        return 0.0, 1.0

    def now(self) -> float:
        return time.time()

    def interest(self, after: int) -> tuple[int, list[str]]:
        return len(self.wanted), self.wanted[after:]
