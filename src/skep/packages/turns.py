"""Turns: the same bytes are stored or deleted by one at a time, of all processes that share a database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from skep.clock import Clock
from skep.engines.db.base import Database, Tx
from skep.errors import Unavailable
from skep.loops import kept
from skep.model.ids import new_id

STEP = "CREATE TABLE package_turn (blob TEXT PRIMARY KEY, holder TEXT NOT NULL, until DOUBLE PRECISION NOT NULL)"
#: seconds; whoever did not say meanwhile that it goes on is gone
_HELD = 30.0
_ASK_AGAIN = 0.05
_TAKE = """
    INSERT INTO package_turn (blob, holder, until) VALUES (:blob, :holder, :until)
    ON CONFLICT (blob) DO UPDATE SET holder = excluded.holder, until = excluded.until
    WHERE package_turn.until <= :now OR package_turn.holder = excluded.holder RETURNING holder
"""


class Turns:
    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    @asynccontextmanager
    async def of(self, blob: str) -> AsyncIterator[str]:
        """Who has it, for `need`."""
        holder = new_id("trn", self._clock.now())
        while not await self._take(blob, holder):  # noqa: ASYNC110  # another process may have it
            await asyncio.sleep(_ASK_AGAIN)
        keeping = asyncio.create_task(kept(lambda: self._keep(blob, holder)))
        try:
            yield holder
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            sql = "DELETE FROM package_turn WHERE blob = :blob AND holder = :holder"
            await self._db.write(lambda tx: tx.rows(sql, blob=blob, holder=holder))

    async def need(self, tx: Tx, blob: str, holder: str) -> None:
        """Whoever was away for so long that another came may have lost what it stored."""
        sql = "SELECT 1 AS x FROM package_turn WHERE blob = :blob AND holder = :holder FOR UPDATE"
        if not await tx.rows(sql, blob=blob, holder=holder):
            raise Unavailable("storing this archive took too long", hint="push it again")

    async def _take(self, blob: str, holder: str) -> bool:
        async def work(tx: Tx) -> bool:
            now = self._clock.now()
            return bool(await tx.rows(_TAKE, blob=blob, holder=holder, now=now, until=now + _HELD))

        return await self._db.write(work)

    async def _keep(self, blob: str, holder: str) -> None:
        held = True
        while held:
            await asyncio.sleep(_HELD / 3)
            held = await self._take(blob, holder)
