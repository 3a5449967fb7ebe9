"""What upstream hosts permit, divided: each worker has the part of it that it has of all capacity.

A part has a place in the whole, from where to where, so that parts of what cannot be divided add up too."""

from itertools import accumulate, pairwise

from skep.clock import Clock
from skep.engines.db.base import Database


class Shares:
    def __init__(self, db: Database, clock: Clock, every: float) -> None:
        self._db = db
        self._clock = clock
        self._every = every
        self._parts: dict[str, tuple[float, float]] = {}
        self._counted = 0.0

    async def of(self, member: str) -> tuple[float, float]:
        """Counted anew so often, whoever asks."""
        now = self._clock.now()
        if now >= self._counted + self._every:
            rows = await self._db.read(
                "SELECT id, capacity FROM member WHERE mirror = 1 AND state = 'alive' ORDER BY id"
            )
            ends = list(accumulate((row["capacity"] for row in rows), initial=0.0))
            cuts = [end / ends[-1] for end in ends] if rows else []
            self._parts = {row["id"]: cut for row, cut in zip(rows, pairwise(cuts), strict=True)}
            self._counted = now
        return self._parts.get(member, (0.0, 1.0))
