"""Who holds which source; what changes it is a step of a transaction that has taken `orders.lock`."""

from collections.abc import Awaitable, Callable, Collection, Mapping

from skep.engines.db.base import Database, Tx
from skep.fleet import orders

#: begins the next epoch of a source, so that whatever its old holder still says is refused; None: it is gone
Raise = Callable[[Tx, str], Awaitable[int | None]]


async def give(tx: Tx, holders: Mapping[str, str]) -> None:
    await tx.many(
        "UPDATE holding SET member = :member WHERE source = :source",
        [{"source": source, "member": member} for source, member in holders.items()],
    )
    by_member: dict[str, list[str]] = {}
    for source, member in holders.items():
        by_member.setdefault(member, []).append(source)
    for member, sources in by_member.items():
        await orders.withdraw(tx, member, ["release"], sources)
        await orders.order_many(tx, member, "hold", sources)


async def hand_over(tx: Tx, source: str, old: str | None, new: str, raised: Raise) -> bool:
    """The old holder lets go when it hears of it, tomorrow perhaps; from now on nothing that it says counts."""
    if old is not None:
        if await raised(tx, source) is None:
            return False
        await orders.withdraw(tx, old, ["hold", "fetch"], [source])
        await orders.order_many(tx, old, "release", [source])
    await give(tx, {source: new})
    return True


async def held_by(db: Database, member: str, sources: Collection[str]) -> set[str]:
    """Those of the sources that the member holds."""
    places = {f"s{n}": source for n, source in enumerate(sources)}
    named = ", ".join(f":{name}" for name in places)
    sql = f"SELECT source FROM holding WHERE member = :member AND source IN ({named})"  # noqa: S608
    return {row["source"] for row in await db.read(sql, member=member, **places)}
