"""What is left to do for copies that we hold: pull the bytes, tell the Coordinating Node, read what changed.

A row of `dataone_copy` is taken for a while; who is killed loses nothing but what was in hand.
"""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from skep.dataone.catch import Catch
from skep.dataone.client import Refused
from skep.dataone.copies import Copies, columns
from skep.dataone.settle import pause
from skep.dataone.tables import decode_meta
from skep.dataone.types import D1Error
from skep.dataone.xml import render
from skep.engines.db.base import Row, Value
from skep.errors import BadInput, NoSpace, SkepError, Unavailable
from skep.model.ids import new_id

log = logging.getLogger(__name__)

#: seconds for which a row is taken, again and again while it is in hand; and between two looks
_LEASE, _PACE = 60.0, 1.0
#: rows in hand, and tries of a pull
_HANDS, _TRIES = 4, 4
_TAKE = """
    UPDATE dataone_copy SET due = :until, tries = tries + 1 WHERE due <= :now AND pid = (
        SELECT pid FROM dataone_copy WHERE due <= :now ORDER BY due LIMIT 1) RETURNING *
"""
#: nothing more to do, unless something came meanwhile
_REST = """
    UPDATE dataone_copy SET tries = 0, due = CASE WHEN told = 0 OR dirty > 0 THEN CAST(:now AS DOUBLE PRECISION) END
    WHERE pid = :pid
"""
_META = """
    UPDATE dataone_copy SET body = :body, format = :format, modified = :modified, public = :public,
        dirty = CASE WHEN dirty = :seen THEN 0 ELSE dirty END WHERE pid = :pid
"""


class Pulls:
    def __init__(self, copies: Copies, folder: Path) -> None:
        self._copies = copies
        self._packs = copies.store.packs
        self._db = copies.store.db
        self._clock = copies.store.clock
        self._folder = folder

    async def follow(self) -> None:
        """For ever, several at a time: one that is large keeps no other waiting."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        if not self._db.shared:
            # whoever had one in hand is no more
            sql = "UPDATE dataone_copy SET due = :now WHERE due > :now AND tries > 0"
            await self._db.write(lambda tx: tx.rows(sql, now=self._clock.now()))
        async with asyncio.TaskGroup() as hands:
            for _ in range(_HANDS):
                hands.create_task(self._work())

    async def _work(self) -> None:
        while True:
            if not await self.step():
                await asyncio.sleep(_PACE)

    async def step(self) -> bool:
        """One thing is done for one object; False: there was nothing to do."""
        now = self._clock.now()
        rows = await self._db.write(lambda tx: tx.rows(_TAKE, now=now, until=now + _LEASE))
        if not rows:
            return False
        row = rows[0]
        try:
            async with self._in_hand(row):
                await self._do(row)
            await self._set(row, _REST, now=self._clock.now())
        except (Refused, SkepError, OSError) as error:
            await self._later(row, error)
        return True

    @asynccontextmanager
    async def _in_hand(self, row: Row) -> AsyncIterator[None]:
        """Nobody else takes it, however large it is."""

        async def keep() -> None:
            while True:
                await asyncio.sleep(_LEASE / 3)
                sql = "UPDATE dataone_copy SET due = :until WHERE pid = :pid AND due IS NOT NULL"
                await self._set(row, sql, until=self._clock.now() + _LEASE)

        keeping = asyncio.create_task(keep())
        try:
            yield
        finally:
            keeping.cancel()

    async def _do(self, row: Row) -> None:
        if row["state"] == "wanted":
            await self._pull(row)
        elif not row["told"]:
            await self._tell(row)
        elif row["dirty"]:
            await self._refresh(row)

    async def _pull(self, row: Row) -> None:
        source = await self._copies.member(row["source"])
        if source is None:
            raise BadInput(f"{row['source']} is no Member Node any more")
        client = await self._copies.client(source.base_url)
        client.version = source.version
        file = self._folder / new_id("pck", self._clock.now())
        catch = Catch(decode_meta(row["body"]), file)
        try:
            if row["size"]:  # of nothing, the checksum says enough
                await client.replica(row["pid"], catch)
            if wrong := catch.wrong():
                raise BadInput(f"what {row['source']} gave is not it: {wrong}")
            blob = await self._packs.put(file)
        finally:
            file.unlink(missing_ok=True)
        await self._set(row, "UPDATE dataone_copy SET state = 'held', blob = :blob WHERE pid = :pid", blob=blob)

    async def _tell(self, row: Row) -> None:
        """Of what failed nothing is kept then."""
        failed = row["state"] == "failed"
        said: dict[str, str | bytes] = {"nodeRef": self._copies.urn, "status": "failed" if failed else "completed"}
        if failed:
            said["failure"] = render(D1Error("ServiceFailure", 500, "0", row["reason"], identifier=row["pid"]))
        status = await (await self._copies.client(self._copies.cn)).notify(row["pid"], said)
        if not (200 <= status < 300 or status in (400, 404)):  # (nobody asks for it any more)
            raise Refused(status, f"{self._copies.cn} does not want to hear of it")
        if failed:
            await self._set(row, "DELETE FROM dataone_copy WHERE pid = :pid AND state = 'failed'")
        else:
            await self._set(row, "UPDATE dataone_copy SET told = 1 WHERE pid = :pid")

    async def _refresh(self, row: Row) -> None:
        """Who is refused it here must not give it to others either."""
        try:
            meta = await (await self._copies.client(self._copies.cn)).meta(row["pid"])
        except Refused as error:
            if error.status in (401, 403):
                hidden = msgspec.structs.replace(decode_meta(row["body"]), access_policy=None)
                await self._set(row, _META, seen=-1, **columns(hidden))
            raise
        if meta.identifier != row["pid"] or not decode_meta(row["body"]).checksum.agrees(meta.checksum):
            raise BadInput(f"to {self._copies.cn} it is another object now")
        await self._set(row, _META, seen=row["dirty"], **columns(meta))

    async def _later(self, row: Row, error: Exception) -> None:
        """What cannot be pulled is told of; after some tries, if it may be passing."""
        log.warning("a copy has to wait", extra={"pid": row["pid"], "state": row["state"], "reason": str(error)})
        away = isinstance(error, Refused) and (not 0 < error.status < 500 or error.status in (408, 429))
        passing = away or isinstance(error, (OSError, Unavailable, NoSpace))
        if row["state"] == "wanted" and (not passing or row["tries"] >= _TRIES):
            sql = "UPDATE dataone_copy SET state = 'failed', reason = :why, due = :now, tries = 0 WHERE pid = :pid"
            await self._set(row, sql, why=str(error)[:500], now=self._clock.now())
            return
        due = self._clock.now() + pause(row["tries"] - 1, self._clock.random())
        await self._set(row, "UPDATE dataone_copy SET due = :due WHERE pid = :pid", due=due)

    async def _set(self, row: Row, sql: str, **values: Value) -> None:
        await self._db.write(lambda tx: tx.rows(sql, pid=row["pid"], **values))
