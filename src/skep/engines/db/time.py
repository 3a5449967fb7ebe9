"""Time as the database has it, which is what all who share it go by, however their machines' clocks differ."""

import asyncio

from skep.clock import Clock
from skep.engines.db.base import Database

_EVERY_SECONDS = 300.0
#: smaller differences are not worth a step
_LEAST_SECONDS = 1.0


class SharedClock:
    def __init__(self, clock: Clock, db: Database) -> None:
        self._clock = clock
        self._db = db
        self._ahead = 0.0

    def now(self) -> float:
        return self._clock.now() + self._ahead

    def random(self) -> float:
        return self._clock.random()

    async def measure(self) -> None:
        before = self._clock.now()
        there = await self._db.now()
        ahead = there - (before + self._clock.now()) / 2
        if abs(ahead - self._ahead) >= _LEAST_SECONDS:
            self._ahead = ahead

    async def follow(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            await self.measure()
