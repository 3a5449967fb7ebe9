"""Numbered steps per room, each in a transaction of its own, recorded in `schema_step`."""

from collections.abc import Sequence

from skep.engines.db.base import Database, Tx, upsert
from skep.engines.db.sql import statements
from skep.errors import NewerSchema


async def migrate(db: Database, room: str, steps: Sequence[str], *, lock: str = "") -> None:
    """`lock` is a statement that keeps other processes out for the rest of a transaction."""

    async def one(tx: Tx) -> bool:
        if lock:
            await tx.rows(lock)
        await tx.rows("CREATE TABLE IF NOT EXISTS schema_step (room TEXT PRIMARY KEY, step BIGINT NOT NULL)")
        found = await tx.rows("SELECT step FROM schema_step WHERE room = :room", room=room)
        at = int(found[0]["step"]) if found else 0
        if at > len(steps):
            raise NewerSchema(
                f"the tables of {room!r} are at step {at}, this program knows {len(steps)}",
                hint="upgrade Skep, or start it on other data",
            )
        if at == len(steps):
            return True
        for statement in statements(steps[at]):
            await tx.rows(statement)
        await upsert(tx, "schema_step", "room", room=room, step=at + 1)
        return at + 1 == len(steps)

    while not await db.write(one):
        pass
