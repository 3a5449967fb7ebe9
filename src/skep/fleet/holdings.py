"""Who holds which source, and who else has a copy; what changes it is a step of a transaction that has taken
`orders.lock`."""

from collections.abc import Awaitable, Callable, Collection, Mapping

from skep.engines.db.base import Database, Tx, among
from skep.fleet import orders

#: begins the next epoch of a source, so that whatever its old holder still says is refused; None: it is gone
Raise = Callable[[Tx, str], Awaitable[int | None]]


async def give(tx: Tx, holders: Mapping[str, str]) -> None:
    await tx.many(
        "UPDATE holding SET member = :member WHERE source = :source",
        [{"source": source, "member": member} for source, member in holders.items()],
    )
    await orders.order_instead(tx, "hold", holders.items())


async def hand_over(tx: Tx, source: str, old: str | None, new: str, raised: Raise, *, keep: bool, now: float) -> bool:
    """From now on nothing that the old holder says counts. It keeps its mirror as a replica, or lets go when it hears
    of it, tomorrow perhaps."""
    if old is not None:
        if await raised(tx, source) is None:
            return False
        if keep:
            await tx.rows(
                "INSERT INTO source_replica (source, member, complete, at) VALUES (:source, :member, 1, :now) "
                "ON CONFLICT (source, member) DO NOTHING",
                source=source,
                member=old,
                now=now,
            )
        await orders.order_instead(tx, "copy" if keep else "release", [(source, old)])
    await tx.rows("DELETE FROM source_replica WHERE source = :source AND member = :member", source=source, member=new)
    await give(tx, {source: new})
    return True


async def held_by(db: Database, member: str, sources: Collection[str]) -> set[str]:
    """Those of the sources that the member holds."""
    places, names = among(sources)
    sql = f"SELECT source FROM holding WHERE member = :member AND source IN ({places})"  # noqa: S608
    return {row["source"] for row in await db.read(sql, member=member, **names)}


async def changed(db: Database, source: str) -> None:
    """Its replicas have to follow. Asked for before the holder's report is acknowledged, so that none is forgotten."""
    having = "SELECT source, member FROM source_replica WHERE source = :source"

    async def work(tx: Tx) -> None:
        await orders.lock(tx)  # one of them may become the holder at this moment
        rows = await tx.rows(having, source=source)
        await orders.order_instead(tx, "copy", [(row["source"], row["member"]) for row in rows])

    if await db.read(having, source=source):
        await db.write(work)
