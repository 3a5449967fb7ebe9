"""Bytes of objects: those that are brought together are one blob, and what nobody refers to is swept.

Every pack ends with a mark of its own, so that no two are the same blob: what is swept cannot be coming in just now.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path

from skep.clock import Clock
from skep.engines.blobs.base import Blobs
from skep.engines.db.base import Database
from skep.model.ids import new_id

STEPS = [
    """
    CREATE TABLE pack (blob TEXT PRIMARY KEY, at DOUBLE PRECISION NOT NULL);
    CREATE TABLE quarantine (
        pid TEXT NOT NULL, node TEXT NOT NULL, blob TEXT NOT NULL, start BIGINT NOT NULL, size BIGINT NOT NULL,
        reason TEXT NOT NULL, at DOUBLE PRECISION NOT NULL, PRIMARY KEY (pid, node)
    );
    CREATE INDEX quarantine_at ON quarantine (at);
    CREATE INDEX quarantine_blob ON quarantine (blob)
    """
]
#: seconds that whoever brings a pack has to refer to it
_GRACE = 3_600.0
#: wrong bytes of so many objects are kept, those that came last
MOST_ASIDE = 1_000
_AT_ONCE = 1_000
_CHUNK = 1 << 20
_UNUSED = """
    SELECT blob FROM pack WHERE at < :old AND NOT EXISTS (SELECT 1 FROM sysmeta WHERE sysmeta.blob = pack.blob)
        AND NOT EXISTS (SELECT 1 FROM quarantine WHERE quarantine.blob = pack.blob)
        AND NOT EXISTS (SELECT 1 FROM dataone_copy WHERE dataone_copy.blob = pack.blob) LIMIT :limit
"""
_TRIM = """
    DELETE FROM quarantine WHERE at < (SELECT at FROM quarantine ORDER BY at DESC LIMIT 1 OFFSET :most)
"""


class Packs:
    def __init__(self, db: Database, clock: Clock, blobs: Blobs) -> None:
        self._db = db
        self._clock = clock
        self._blobs = blobs

    async def start(self) -> None:
        await self._db.migrate("packs", STEPS)

    async def put(self, file: Path) -> str:
        """The blob. It is known of before it is there, so that a kill leaves nothing that nobody knows of."""
        now = self._clock.now()
        mark = new_id("pck", now).encode()
        id = await asyncio.to_thread(_digest, file, mark)
        await self._note(id)
        async with aclosing(_sent(file, mark)) as chunks:
            await self._blobs.put(chunks)
        if self._clock.now() > now + _GRACE / 4:
            await self._note(id)
        return id

    async def _note(self, id: str) -> None:
        sql = "INSERT INTO pack (blob, at) VALUES (:id, :now) ON CONFLICT (blob) DO UPDATE SET at = excluded.at"
        await self._db.write(lambda tx: tx.rows(sql, id=id, now=self._clock.now()))

    async def sweep(self) -> int:
        """How many packs are gone."""
        await self._db.write(lambda tx: tx.rows(_TRIM, most=MOST_ASIDE - 1))
        rows = await self._db.read(_UNUSED, old=self._clock.now() - _GRACE, limit=_AT_ONCE)
        for row in rows:
            await self._blobs.delete(row["blob"])
        gone = [{"blob": row["blob"]} for row in rows]
        await self._db.write(lambda tx: tx.many("DELETE FROM pack WHERE blob = :blob", gone))
        return len(gone)


def _chunks(file: Path, mark: bytes) -> Iterator[bytes]:
    with file.open("rb") as open_file:
        while chunk := open_file.read(_CHUNK):
            yield chunk
    yield mark


def _digest(file: Path, mark: bytes) -> str:
    hash = hashlib.sha256()
    for chunk in _chunks(file, mark):
        hash.update(chunk)
    return hash.hexdigest()


async def _sent(file: Path, mark: bytes) -> AsyncGenerator[bytes, None]:
    for chunk in _chunks(file, mark):
        yield chunk
