"""What the database knows of an index on a server: where each source stands, and what on the server is of no use.

A document on the server is never changed. It counts when the database says so: from the moment its generation was
committed here, until it is gone by what is said here. Deleting it on the server comes later, when nobody looks.
"""

import msgspec

from skep.engines.db.base import Database, Tx
from skep.engines.index.opensearch.documents import path_hash
from skep.engines.index.standings import Standings, steps
from skep.model.search import Delta

_STEPS = (
    steps("remote_")
    + """
    CREATE TABLE remote (prefix TEXT PRIMARY KEY, uuids TEXT NOT NULL, generation BIGINT NOT NULL);
    CREATE TABLE remote_gone (
        number BIGINT NOT NULL, path TEXT NOT NULL, generation BIGINT NOT NULL, PRIMARY KEY (number, path));
    CREATE TABLE remote_aborted (generation BIGINT PRIMARY KEY)
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


def gone_by(delta: Delta, generation: int) -> list[Gone]:
    paths = [ALL] if delta.base is None else sorted(map(path_hash, set(delta.gone)))
    return [Gone(delta.number, path, generation) for path in paths]


class Tables(Standings):
    def __init__(self, db: Database, prefix: str) -> None:
        super().__init__(db, "remote_")
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

    async def gone(self) -> list[Gone]:
        rows = await self._db.read("SELECT number, path, generation FROM remote_gone")
        return [Gone(row["number"], row["path"], row["generation"]) for row in rows]

    async def aborted(self) -> list[int]:
        return [row["generation"] for row in await self._db.read("SELECT generation FROM remote_aborted")]

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

    async def forget(self, gone: list[Gone]) -> None:
        """They are deleted on the server, too."""
        same = "DELETE FROM remote_gone WHERE number = :number AND path = :path AND generation = :generation"
        await self._db.write(lambda tx: tx.many(same, [msgspec.structs.asdict(one) for one in gone]))


async def settle(tx: Tx, generation: int, gone: list[Gone]) -> None:
    """What was written under a generation counts from now on; what it replaces does not."""
    await tx.many(_GONE, [msgspec.structs.asdict(one) for one in gone])
    await tx.rows("DELETE FROM remote_aborted WHERE generation = :generation", generation=generation)
