"""Who changed what, written in the same transaction as the change; kept for a quarter of a year, for admins to read."""

import asyncio

from skep.base.answers import Audited, Page, shown_before
from skep.base.caller import Caller
from skep.base.clock import Clock
from skep.storage.database import Database, Tx, insert

_KEEP_SECONDS, _SWEEP_SECONDS = 90 * 86_400.0, 3_600.0


async def note(tx: Tx, now: float, caller: Caller, verb: str, what: str) -> None:
    await insert(tx, "audit", at=now, caller=caller.subject, verb=verb, what=what)


class Audit:
    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def list(self, caller: Caller, *, about: str = "", page: str = "", limit: int = 100) -> Page[Audited]:
        """The newest first. `about`: a verb such as `source.move`, or part of what it is about."""
        caller.need("admin")
        skip = shown_before(page)
        rows = await self._db.read(
            "SELECT * FROM audit WHERE :about = '' OR verb = :about OR caller = :about OR what LIKE :part "
            "ORDER BY at DESC, verb, what LIMIT :limit OFFSET :skip",
            about=about,
            part=f"%{about}%",
            limit=limit + 1,
            skip=skip,
        )
        items = [Audited(row["at"], row["caller"], row["verb"], row["what"]) for row in rows[:limit]]
        return Page(items, str(skip + limit) if len(rows) > limit else "")

    async def keep(self) -> None:
        """For ever: forget what is old."""
        while True:
            await self._db.write(self._forget)
            await asyncio.sleep(_SWEEP_SECONDS)

    async def _forget(self, tx: Tx) -> None:
        await tx.rows("DELETE FROM audit WHERE at < :old", old=self._clock.now() - _KEEP_SECONDS)
