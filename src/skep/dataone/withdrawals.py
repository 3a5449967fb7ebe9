"""What fewer may find than before leaves an index before the next answer, whenever it is indexed again."""

import asyncio
from collections.abc import Collection

from skep.clock import Clock
from skep.dataone.fields import KIND
from skep.dataone.tables import WAIT
from skep.engines.db.base import Database, Tx, upsert
from skep.engines.records.base import OneOf, Records

#: numbers that are gone through at a time
_AT_ONCE = 1_000
#: what is narrowed once more has another number: whoever looks for all that was narrowed up to now looks up to here
_ANY = (1 << 63) - 1
_NEWEST = "SELECT narrowed FROM sysmeta WHERE narrowed > :since ORDER BY narrowed DESC LIMIT 1"
#: the objects themselves; and whatever a map that is private now says something of, and the versions before and after
#: an object that is: their records tell of it
_NARROWED = """
    WITH fewer AS (SELECT pid, public, obsoletes, obsoleted_by FROM sysmeta
        WHERE narrowed > :since AND narrowed <= :upto),
    said AS (SELECT one, other FROM relation JOIN fewer ON fewer.pid = relation.map WHERE fewer.public = 0),
    named AS (SELECT one AS id FROM said UNION SELECT other FROM said UNION SELECT obsoletes FROM fewer WHERE public = 0
        UNION SELECT obsoleted_by FROM fewer WHERE public = 0)
    SELECT pid FROM fewer UNION SELECT pid FROM sysmeta WHERE pid IN (SELECT id FROM named)
    UNION SELECT pid FROM sysmeta WHERE series IN (SELECT id FROM named)
"""


class Withdrawals:
    def __init__(self, db: Database, clock: Clock, records: Records, work: str) -> None:
        """`work`: by which objects wait for this index."""
        self._db = db
        self._clock = clock
        self._records = records
        self._work = work
        #: everything up to this number has left the index
        self._done = 0
        #: whoever puts records holds it: what was read before something was withdrawn must not come after that
        self.lock = asyncio.Lock()

    async def start(self) -> None:
        """An index that is not known yet begins with the first of all."""
        rows = await self._db.read("SELECT upto FROM withdrawn WHERE work = :work", work=self._work)
        self._done = rows[0]["upto"] if rows else 0

    async def catch_up(self) -> int:
        """Withdraw what was narrowed since the last time; the number of the last."""
        newest = await self._newest(self._done)
        while self._done < newest:
            async with self.lock:
                upto = min(newest, self._done + _AT_ONCE)
                if self._done < upto:
                    pids = await self._between(self._done, upto if upto < newest else _ANY)
                    await self._withdraw(pids, upto)
        return self._done

    async def take(self, pids: Collection[str]) -> None:
        """These, whose records tell more than they should."""
        async with self.lock:
            await self._withdraw(pids, self._done)

    async def since(self, number: int) -> set[str]:
        """Objects that must not have a record made of what was known at this number."""
        return await self._between(number, _ANY) if await self._newest(number) > number else set()

    async def _newest(self, since: int) -> int:
        rows = await self._db.read(_NEWEST, since=since)
        return int(rows[0]["narrowed"]) if rows else since

    async def _between(self, since: int, upto: int) -> set[str]:
        return {row["pid"] for row in await self._db.read(_NARROWED, since=since, upto=upto)}

    async def _withdraw(self, pids: Collection[str], upto: int) -> None:
        """They wait for those who may still find them."""
        await self._records.delete(KIND.name, OneOf("id", sorted(pids)))

        async def work(tx: Tx) -> None:
            now = self._clock.now()
            await tx.many(WAIT, [{"work": self._work, "pid": pid, "now": now} for pid in sorted(pids)])
            await upsert(tx, "withdrawn", "work", work=self._work, upto=upto)

        await self._db.write(work)
        self._done = upto
