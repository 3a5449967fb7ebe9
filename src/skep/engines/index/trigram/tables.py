"""The index's tables: which shards are live, which of their documents are dead, and where each source stands."""

import json
from collections.abc import Collection, Iterable, Sequence

import msgspec
import numpy as np

from skep.engines.db.base import Row, Tx, Value
from skep.engines.index.standings import Standings, steps
from skep.engines.index.trigram.snapshot import Part, pack

_STEPS = (
    steps()
    + """
    CREATE TABLE shard (
        id TEXT PRIMARY KEY, documents BIGINT NOT NULL, bytes BIGINT NOT NULL, numbers TEXT NOT NULL,
        dead BYTEA NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL)
    """,
)


class Swap(msgspec.Struct, frozen=True):
    """A change of the shard list, made in one transaction."""

    added: Sequence[Part] = ()
    #: shards with more dead than before
    changed: Sequence[Part] = ()
    removed: Sequence[str] = ()


def dying(parts: Iterable[Part], swap: Swap) -> tuple[Part, ...]:
    """Shards in which only those live that a swap will bury."""
    dead = {part.shard.id: part.dead for part in swap.changed}
    dead |= {part.shard.id: np.ones_like(part.dead) for part in parts if part.shard.id in swap.removed}
    return tuple(Part(part.shard, part.dead | ~dead[part.shard.id]) for part in parts if part.shard.id in dead)


class Tables(Standings):
    async def migrate(self) -> None:
        await self._db.migrate("index", _STEPS)

    async def shards(self, state: str) -> list[Row]:
        return await self._db.read("SELECT * FROM shard WHERE state = :state ORDER BY id", state=state)

    async def missing(self, standings: Collection[int]) -> frozenset[int]:
        """Numbers of sources that were in damaged shards and stand nowhere since."""
        numbers = [number for row in await self.shards("damaged") for number in json.loads(row["numbers"])]
        return frozenset(numbers).difference(standings)

    async def swap(self, swap: Swap) -> None:
        await self._db.write(lambda tx: exchange(tx, swap))

    async def set_aside(self, id: str, reason: str) -> None:
        """A damaged shard: its sources are no longer whole, so they no longer stand anywhere."""

        async def work(tx: Tx) -> None:
            rows = await tx.rows(
                "UPDATE shard SET state = 'damaged', reason = :reason WHERE id = :id RETURNING numbers",
                id=id,
                reason=reason,
            )
            for number in [number for row in rows for number in json.loads(row["numbers"])]:
                gone = await tx.rows("DELETE FROM indexed WHERE number = :number RETURNING source", number=number)
                await tx.many(
                    "INSERT INTO lost (source) VALUES (:source) ON CONFLICT DO NOTHING",
                    [{"source": row["source"]} for row in gone],
                )

        await self._db.write(work)


async def exchange(tx: Tx, swap: Swap) -> None:
    await tx.many(
        "INSERT INTO shard (id, documents, bytes, numbers, dead, state, reason)"
        " VALUES (:id, :documents, :bytes, :numbers, :dead, 'live', '')",
        [
            {
                "id": part.shard.id,
                "documents": part.shard.documents,
                "bytes": part.shard.bytes,
                "numbers": json.dumps(part.shard.manifest.sources),
                "dead": pack(part.dead),
            }
            for part in swap.added
        ],
    )
    dead: list[dict[str, Value]] = [{"id": part.shard.id, "dead": pack(part.dead)} for part in swap.changed]
    await tx.many("UPDATE shard SET dead = :dead WHERE id = :id", dead)
    await tx.many("DELETE FROM shard WHERE id = :id", [{"id": id} for id in swap.removed])
    # when nothing is lost any more, damaged shards have told all they had to tell
    await tx.rows("DELETE FROM shard WHERE state = 'damaged' AND NOT EXISTS (SELECT 1 FROM lost)")
