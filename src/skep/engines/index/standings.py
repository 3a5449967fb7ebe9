"""The tables that every index has: where each source stands, and which ones lost what they had."""

from collections.abc import Awaitable, Callable

import msgspec

from skep.engines.db.base import Database, Row, Tx
from skep.engines.index.base import Standing
from skep.model.search import Delta, Fence, Tip

Also = Callable[[Tx], Awaitable[None]]


def steps(prefix: str = "") -> str:
    return f"""
    CREATE TABLE {prefix}indexed (
        source TEXT PRIMARY KEY, number BIGINT NOT NULL, tips TEXT NOT NULL, rules TEXT NOT NULL,
        epoch BIGINT NOT NULL, fetched_at DOUBLE PRECISION NOT NULL, batch TEXT NOT NULL);
    CREATE INDEX {prefix}indexed_number ON {prefix}indexed (number);
    CREATE TABLE {prefix}lost (source TEXT PRIMARY KEY);
    """


class Standings:
    def __init__(self, db: Database, prefix: str = "") -> None:
        self._db = db
        self._indexed, self._lost = f"{prefix}indexed", f"{prefix}lost"

    async def standings(self) -> dict[int, Standing]:
        rows = await self._db.read(f"SELECT * FROM {self._indexed}")  # noqa: S608
        return {
            row["number"]: Standing(row["source"], row["number"], _tips(row), row["fetched_at"], row["rules"])
            for row in rows
        }

    async def lost(self) -> list[str]:
        rows = await self._db.read(f"SELECT source FROM {self._lost} ORDER BY source")  # noqa: S608
        return [row["source"] for row in rows]

    async def was_adopted(self, delta: Delta, fence: Fence) -> bool | None:
        """True: already, and nothing since; False: it is stale; None: it may be adopted."""
        found = f"SELECT * FROM {self._indexed} WHERE source = :source"  # noqa: S608
        rows = await self._db.read(found, source=delta.source)
        if any(row["batch"] == _batch(delta) and _tips(row) == delta.tips for row in rows):
            return True
        return False if _is_stale(rows, delta, fence) else None

    async def adopt(self, delta: Delta, fence: Fence, change: Also, also: Also | None = None) -> bool:
        """False, and nothing changed, when another adoption came first."""

        async def work(tx: Tx) -> bool:
            held = f"SELECT * FROM {self._indexed} WHERE source = :source FOR UPDATE"  # noqa: S608
            if _is_stale(await tx.rows(held, source=delta.source), delta, fence):
                return False
            await tx.rows(
                f"INSERT INTO {self._indexed} (source, number, tips, rules, epoch, fetched_at, batch)"  # noqa: S608
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
                batch=_batch(delta),
            )
            await self._found_again(tx, delta.source)
            await change(tx)
            if also is not None:
                await also(tx)
            return True

        return await self._db.write(work)

    async def drop(self, source: str, change: Also) -> None:
        async def work(tx: Tx) -> None:
            await tx.rows(f"DELETE FROM {self._indexed} WHERE source = :source", source=source)  # noqa: S608
            await self._found_again(tx, source)
            await change(tx)

        await self._db.write(work)

    async def _found_again(self, tx: Tx, source: str) -> None:
        await tx.rows(f"DELETE FROM {self._lost} WHERE source = :source", source=source)  # noqa: S608


def _is_stale(rows: list[Row], delta: Delta, fence: Fence) -> bool:
    """May the delta no longer be adopted? It comes from an older holder, or builds on tips that are not indexed."""
    if any(fence.epoch < row["epoch"] for row in rows):
        return True
    return delta.base is not None and not any(_tips(row) == delta.base for row in rows)


def _batch(delta: Delta) -> str:
    return " ".join(info.id for info in delta.shards)


def _tips(row: Row) -> tuple[Tip, ...]:
    return msgspec.json.decode(row["tips"], type=tuple[Tip, ...])
