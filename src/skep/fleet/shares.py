"""What upstream hosts permit, divided: each worker has the part of it that it has of all capacity."""

from skep.clock import Clock
from skep.engines.db.base import Database


class Shares:
    def __init__(self, db: Database, clock: Clock, every: float) -> None:
        self._db = db
        self._clock = clock
        self._every = every
        self._parts: dict[str, float] = {}
        self._counted = 0.0

    async def of(self, member: str) -> float:
        """Counted anew so often, whoever asks."""
        now = self._clock.now()
        if now >= self._counted + self._every:
            rows = await self._db.read("SELECT id, capacity FROM member WHERE mirror = 1 AND state = 'alive'")
            total = sum(row["capacity"] for row in rows)
            self._parts, self._counted = {row["id"]: row["capacity"] / total for row in rows}, now
        return self._parts.get(member, 1.0)
