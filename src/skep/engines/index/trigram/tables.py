"""The index's tables: which shards are live, which of their documents are dead, and where each source stands."""

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec
import numpy as np

from skep.engines.db.base import Database, Row, Tx, Value
from skep.engines.index.base import Standing
from skep.engines.index.trigram.snapshot import Part, pack
from skep.model.search import Delta, Fence, Tip

_STEPS = (
    """
    CREATE TABLE shard (
        id TEXT PRIMARY KEY, documents BIGINT NOT NULL, bytes BIGINT NOT NULL, numbers TEXT NOT NULL,
        dead BYTEA NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL);
    CREATE TABLE indexed (
        source TEXT PRIMARY KEY, number BIGINT NOT NULL, tips TEXT NOT NULL, rules TEXT NOT NULL,
        epoch BIGINT NOT NULL, fetched_at DOUBLE PRECISION NOT NULL);
    CREATE INDEX indexed_number ON indexed (number);
    CREATE TABLE lost (source TEXT PRIMARY KEY)
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


class Tables:
    def __init__(self, db: Database) -> None:
        self._db = db

    async def migrate(self) -> None:
        await self._db.migrate("index", _STEPS)

    async def shards(self, state: str) -> list[Row]:
        return await self._db.read("SELECT * FROM shard WHERE state = :state ORDER BY id", state=state)

    async def standings(self) -> dict[int, Standing]:
        return {row["number"]: _standing(row) for row in await self._db.read("SELECT * FROM indexed")}

    async def lost(self) -> list[str]:
        return [row["source"] for row in await self._db.read("SELECT source FROM lost ORDER BY source")]

    async def is_stale(self, delta: Delta, fence: Fence) -> bool:
        rows = await self._db.read("SELECT * FROM indexed WHERE source = :source", source=delta.source)
        return is_stale(rows, delta, fence)

    async def adopt(
        self, delta: Delta, fence: Fence, swap: Swap, also: Callable[[Tx], Awaitable[None]] | None = None
    ) -> bool:
        """False, and nothing changed, when another adoption came first."""

        async def work(tx: Tx) -> bool:
            rows = await tx.rows("SELECT * FROM indexed WHERE source = :source FOR UPDATE", source=delta.source)
            if is_stale(rows, delta, fence):
                return False
            await _swap(tx, swap)
            await tx.rows(
                "INSERT INTO indexed (source, number, tips, rules, epoch, fetched_at)"
                " VALUES (:source, :number, :tips, :rules, :epoch, :fetched_at)"
                " ON CONFLICT (source) DO UPDATE SET number = excluded.number,"
                " tips = excluded.tips, rules = excluded.rules, epoch = excluded.epoch,"
                " fetched_at = excluded.fetched_at",
                source=delta.source,
                number=delta.number,
                tips=msgspec.json.encode(delta.tips).decode(),
                rules=delta.rules,
                epoch=fence.epoch,
                fetched_at=fence.fetched_at,
            )
            await _found_again(tx, delta.source)
            if also is not None:
                await also(tx)
            return True

        return await self._db.write(work)

    async def drop(self, source: str, swap: Swap) -> None:
        async def work(tx: Tx) -> None:
            await tx.rows("DELETE FROM indexed WHERE source = :source", source=source)
            await _swap(tx, swap)
            await _found_again(tx, source)

        await self._db.write(work)

    async def swap(self, swap: Swap) -> None:
        await self._db.write(lambda tx: _swap(tx, swap))

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


def is_stale(rows: list[Row], delta: Delta, fence: Fence) -> bool:
    """May the delta no longer be adopted? It comes from an older holder, or builds on tips that are not indexed."""
    if any(fence.epoch < row["epoch"] for row in rows):
        return True
    return delta.base is not None and not any(tips(row) == delta.base for row in rows)


def _standing(row: Row) -> Standing:
    return Standing(row["source"], row["number"], tips(row), row["fetched_at"], row["rules"])


def tips(row: Row) -> tuple[Tip, ...]:
    return msgspec.json.decode(row["tips"], type=tuple[Tip, ...])


async def _swap(tx: Tx, swap: Swap) -> None:
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


async def _found_again(tx: Tx, source: str) -> None:
    """When nothing is lost any more, damaged shards have told all they had to tell."""
    await tx.rows("DELETE FROM lost WHERE source = :source", source=source)
    await tx.rows("DELETE FROM shard WHERE state = 'damaged' AND NOT EXISTS (SELECT 1 FROM lost)")
