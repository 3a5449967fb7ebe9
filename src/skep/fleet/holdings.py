"""Who holds which source, as steps of a transaction that has taken `orders.lock`."""

from collections.abc import Awaitable, Callable, Mapping

from skep.engines.db.base import Tx
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
