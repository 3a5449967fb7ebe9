"""Which tasks and contexts this coordinator acts on. Alone it acts on all; several divide them by key.

Each says every few seconds that it is alive. A bucket belongs to the living coordinator with the highest hash for it,
so when one dies only its own buckets move, and whoever gets them looks at everything in them.
"""

import hashlib
from collections.abc import Sequence

from skep.engines.db.base import Database, Tx, upsert
from skep.tasks.tables import BUCKETS

STEPS = ["CREATE TABLE coordinator (id TEXT PRIMARY KEY, last_alive DOUBLE PRECISION NOT NULL)"]
BEAT_SECONDS = 2.0
#: beats that may fail to come before a coordinator counts as dead
_BEATS = 5


def owner_of(bucket: int, living: Sequence[str]) -> str:
    """Pure. The same answer everywhere for the same living ones."""
    return max(living, key=lambda one: hashlib.blake2b(f"{one}/{bucket}".encode(), digest_size=8).digest())


class Owners:
    def __init__(self, db: Database, id: str, beat_every: float = BEAT_SECONDS) -> None:
        self._db = db
        self._id = id
        self.beat_every = beat_every
        self._dead_after = _BEATS * beat_every
        self.owned = frozenset(range(BUCKETS)) if not db.shared else frozenset()

    async def start(self) -> None:
        await self._db.migrate("coordinators", STEPS)
        await self.beat()

    @property
    def alone(self) -> bool:
        return len(self.owned) == BUCKETS

    @property
    def sql(self) -> str:
        """A condition on `bucket`."""
        if self.alone:
            return "1 = 1"
        return f"bucket IN ({', '.join(map(str, sorted(self.owned))) or '-1'})"

    async def beat(self) -> frozenset[int]:
        """Say that this one lives; returns the buckets that are newly its own."""
        if not self._db.shared:
            return frozenset()
        now = await self._db.now()

        async def work(tx: Tx) -> list[str]:
            await upsert(tx, "coordinator", "id", id=self._id, last_alive=now)
            await tx.rows("DELETE FROM coordinator WHERE last_alive < :long_ago", long_ago=now - 100 * self._dead_after)
            rows = await tx.rows("SELECT id FROM coordinator WHERE last_alive >= :since", since=now - self._dead_after)
            return [row["id"] for row in rows]

        living = await self._db.write(work, runtime=True)
        before, self.owned = self.owned, frozenset(b for b in range(BUCKETS) if owner_of(b, living) == self._id)
        return self.owned - before

    async def leave(self) -> None:
        """A stop in good order gives the buckets away at once."""
        if self._db.shared:
            await self._db.write(lambda tx: tx.rows("DELETE FROM coordinator WHERE id = :id", id=self._id))
