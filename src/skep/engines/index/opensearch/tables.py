"""What the database knows of an index on a server: where each source stands, and what on the server is of no use.

A document on the server is never changed. It counts when the database says so: from the moment its generation was
committed here, until it is gone by what is said here. Deleting it on the server comes later, when nobody looks.
"""

from collections.abc import Awaitable, Callable

import msgspec

from skep.engines.db.base import Database, Row, Tx
from skep.engines.index.base import Standing
from skep.engines.index.opensearch.documents import path_hash
from skep.engines.index.trigram.tables import is_stale, tips
from skep.model.search import Delta, Fence

_STEPS = (
    """
    CREATE TABLE remote (prefix TEXT PRIMARY KEY, uuids TEXT NOT NULL, generation BIGINT NOT NULL);
    CREATE TABLE remote_indexed (
        source TEXT PRIMARY KEY, number BIGINT NOT NULL, tips TEXT NOT NULL, rules TEXT NOT NULL,
        epoch BIGINT NOT NULL, fetched_at DOUBLE PRECISION NOT NULL, batch TEXT NOT NULL);
    CREATE TABLE remote_gone (
        number BIGINT NOT NULL, path TEXT NOT NULL, generation BIGINT NOT NULL, PRIMARY KEY (number, path));
    CREATE TABLE remote_aborted (generation BIGINT PRIMARY KEY);
    CREATE TABLE remote_lost (source TEXT PRIMARY KEY)
    """,
)
_GONE = (
    "INSERT INTO remote_gone (number, path, generation) VALUES (:number, :path, :generation)"
    " ON CONFLICT (number, path) DO UPDATE SET generation = excluded.generation"
)
#: stands for all the paths of a source
ALL = ""


class Gone(msgspec.Struct, frozen=True):
    """Documents of older generations than this one are dead."""

    number: int
    #: its hash, or ALL
    path: str
    generation: int


def batch_of(delta: Delta) -> str:
    return " ".join(info.id for info in delta.shards)


def gone_by(delta: Delta, generation: int) -> list[Gone]:
    paths = [ALL] if delta.base is None else sorted(map(path_hash, set(delta.gone)))
    return [Gone(delta.number, path, generation) for path in paths]


class Tables:
    def __init__(self, db: Database, prefix: str) -> None:
        self._db = db
        self._prefix = prefix

    async def migrate(self) -> None:
        await self._db.migrate("opensearch", _STEPS)

    async def known(self) -> tuple[list[str], int]:
        """The unique ids of the indexes that may be behind the alias, and the newest generation."""
        rows = await self._db.read("SELECT uuids, generation FROM remote WHERE prefix = :prefix", prefix=self._prefix)
        return (rows[0]["uuids"].split(), rows[0]["generation"]) if rows else ([], 0)

    async def know(self, uuids: list[str]) -> None:
        async def work(tx: Tx) -> None:
            await tx.rows(
                "INSERT INTO remote (prefix, uuids, generation) VALUES (:prefix, :uuids, 0)"
                " ON CONFLICT (prefix) DO UPDATE SET uuids = excluded.uuids",
                prefix=self._prefix,
                uuids=" ".join(uuids),
            )

        await self._db.write(work)

    async def lose(self) -> None:
        """The index is not the one we wrote: no source stands anywhere."""

        async def work(tx: Tx) -> None:
            await tx.rows(
                "INSERT INTO remote_lost SELECT source FROM remote_indexed WHERE 1 = 1 ON CONFLICT DO NOTHING"
            )
            for table in ("remote_indexed", "remote_gone", "remote_aborted"):
                await tx.rows(f"DELETE FROM {table}")  # noqa: S608  # the three names above

        await self._db.write(work)

    async def lost(self) -> list[str]:
        return [row["source"] for row in await self._db.read("SELECT source FROM remote_lost ORDER BY source")]

    async def standings(self) -> dict[int, Standing]:
        rows = await self._db.read("SELECT * FROM remote_indexed")
        return {
            row["number"]: Standing(row["source"], row["number"], tips(row), row["fetched_at"], row["rules"])
            for row in rows
        }

    async def gone(self) -> list[Gone]:
        rows = await self._db.read("SELECT number, path, generation FROM remote_gone")
        return [Gone(row["number"], row["path"], row["generation"]) for row in rows]

    async def aborted(self) -> list[int]:
        return [row["generation"] for row in await self._db.read("SELECT generation FROM remote_aborted")]

    async def is_stale(self, delta: Delta, fence: Fence) -> bool:
        return is_stale(await self._rows(delta.source), delta, fence)

    async def is_repeat(self, delta: Delta) -> bool:
        """It was adopted already, and nothing since."""
        rows = await self._rows(delta.source)
        return any(row["batch"] == batch_of(delta) and tips(row) == delta.tips for row in rows)

    async def _rows(self, source: str) -> list[Row]:
        return await self._db.read("SELECT * FROM remote_indexed WHERE source = :source", source=source)

    async def begin(self) -> int:
        """A new generation. What is written under it is of no use unless it is adopted."""

        async def work(tx: Tx) -> int:
            rows = await tx.rows(
                "UPDATE remote SET generation = generation + 1 WHERE prefix = :prefix RETURNING generation",
                prefix=self._prefix,
            )
            generation: int = rows[0]["generation"]
            await tx.rows("INSERT INTO remote_aborted (generation) VALUES (:generation)", generation=generation)
            return generation

        return await self._db.write(work)

    async def adopt(
        self, delta: Delta, fence: Fence, generation: int, also: Callable[[Tx], Awaitable[None]] | None = None
    ) -> bool:
        """False, and nothing changed, when another adoption came first."""

        async def work(tx: Tx) -> bool:
            rows = await tx.rows("SELECT * FROM remote_indexed WHERE source = :source FOR UPDATE", source=delta.source)
            if is_stale(rows, delta, fence):
                return False
            await tx.rows(
                "INSERT INTO remote_indexed (source, number, tips, rules, epoch, fetched_at, batch)"
                " VALUES (:source, :number, :tips, :rules, :epoch, :fetched_at, :batch)"
                " ON CONFLICT (source) DO UPDATE SET number = excluded.number, tips = excluded.tips,"
                " rules = excluded.rules, epoch = excluded.epoch, fetched_at = excluded.fetched_at,"
                " batch = excluded.batch",
                source=delta.source,
                number=delta.number,
                tips=msgspec.json.encode(delta.tips).decode(),
                rules=delta.rules,
                epoch=fence.epoch,
                fetched_at=fence.fetched_at,
                batch=batch_of(delta),
            )
            await tx.many(_GONE, [msgspec.structs.asdict(gone) for gone in gone_by(delta, generation)])
            await tx.rows("DELETE FROM remote_aborted WHERE generation = :generation", generation=generation)
            await tx.rows("DELETE FROM remote_lost WHERE source = :source", source=delta.source)
            if also is not None:
                await also(tx)
            return True

        return await self._db.write(work)

    async def drop(self, source: str, gone: Gone) -> None:
        async def work(tx: Tx) -> None:
            await tx.rows("DELETE FROM remote_indexed WHERE source = :source", source=source)
            await tx.rows("DELETE FROM remote_lost WHERE source = :source", source=source)
            await tx.many(_GONE, [msgspec.structs.asdict(gone)])
            await tx.rows("DELETE FROM remote_aborted WHERE generation = :generation", generation=gone.generation)

        await self._db.write(work)

    async def forget(self, gone: list[Gone]) -> None:
        """They are deleted on the server, too."""
        same = "DELETE FROM remote_gone WHERE number = :number AND path = :path AND generation = :generation"
        await self._db.write(lambda tx: tx.many(same, [msgspec.structs.asdict(one) for one in gone]))
