"""Orders: what a member is still to take over. A row stays until the member says it is durable with it.

An order is only (kind, source): what it means in detail is read from the rooms when it is sent, so that a repeated
order is never stale, and asking twice is asking once.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Literal

import msgspec

from skep.access.audit import note
from skep.base.caller import SYSTEM
from skep.base.clock import Clock
from skep.storage.database import Database, Tx, among

#: orders in one line of the audit
_NOTED = 20
OrderKind = Literal["hold", "copy", "release", "fetch"]


class Pending(msgspec.Struct, frozen=True):
    n: int
    kind: OrderKind
    source: str
    #: another has yet to hear that it does not hold this source; one that is not heard for a moment polls all the same
    waits: bool = False


STEPS = [
    """
    CREATE TABLE ordered (
        n BIGINT PRIMARY KEY, member TEXT NOT NULL, kind TEXT NOT NULL, source TEXT NOT NULL,
        UNIQUE (source, kind, member)
    );
    CREATE INDEX ordered_member ON ordered (member, n);
    CREATE TABLE order_count (id BIGINT PRIMARY KEY, n BIGINT NOT NULL);
    INSERT INTO order_count (id, n) VALUES (0, 0)
    """
]


_PENDING = """
    SELECT n, kind, source, (
        SELECT count(*) FROM ordered AS other JOIN member ON member.id = other.member AND member.state <> 'gone'
        WHERE other.source = ordered.source AND other.member <> ordered.member AND other.kind IN ('copy', 'release')
    ) AS others
    FROM ordered WHERE ordered.member = :member ORDER BY n LIMIT :limit
"""


def channel(member: str) -> str:
    return f"orders:{member}"


async def lock(tx: Tx) -> None:
    """Who joins and what is added at the same moment must see each other, or a source would stay without a holder."""
    await tx.rows("SELECT n FROM order_count WHERE id = 0 FOR UPDATE")


async def order_many(tx: Tx, member: str, kind: OrderKind, sources: Sequence[str]) -> None:
    """A repeated request gets a new number, so that a Done still on its way cannot swallow it."""
    if not sources:
        return
    rows = await tx.rows("UPDATE order_count SET n = n + :many WHERE id = 0 RETURNING n", many=len(sources))
    first = rows[0]["n"] - len(sources) + 1
    await tx.many(
        "INSERT INTO ordered (n, member, kind, source) VALUES (:n, :member, :kind, :source) "
        "ON CONFLICT (source, kind, member) DO UPDATE SET n = excluded.n",
        [{"n": first + i, "member": member, "kind": kind, "source": source} for i, source in enumerate(sources)],
    )
    tx.ring(channel(member))


async def order_instead(tx: Tx, kind: OrderKind, pairs: Iterable[tuple[str, str]]) -> None:
    """Of members, each for its sources (source, member); what else they were asked for is no longer wanted."""
    by_member: dict[str, list[str]] = {}
    for source, member in pairs:
        by_member.setdefault(member, []).append(source)
    for member, sources in by_member.items():
        await tx.many(
            "DELETE FROM ordered WHERE member = :member AND source = :source",
            [{"member": member, "source": source} for source in sources],
        )
        await order_many(tx, member, kind, sources)


async def pending(db: Database, member: str, limit: int) -> list[Pending]:
    rows = await db.read(_PENDING, member=member, limit=limit)
    return [Pending(row["n"], row["kind"], row["source"], bool(row["others"])) for row in rows]


async def confirm(db: Database, member: str, numbers: Sequence[int], now: float) -> list[Pending]:
    """The member has them; returns those that were still pending. (Who wanted a look noted that already.)"""

    async def work(tx: Tx) -> list[Pending]:
        gone: list[Pending] = []
        for n in numbers:
            rows = await tx.rows(
                "DELETE FROM ordered WHERE n = :n AND member = :member RETURNING n, kind, source", n=n, member=member
            )
            gone += [Pending(row["n"], row["kind"], row["source"]) for row in rows]
        for kind in ("hold", "copy", "release"):
            sources = [one.source for one in gone if one.kind == kind]
            for first in range(0, len(sources), _NOTED):
                what = " ".join((member, *sources[first : first + _NOTED]))
                await note(tx, now, SYSTEM, f"order.{kind}", what)
        for source in {one.source for one in gone if one.kind != "hold"}:  # who is to hold it may have waited for this
            for row in await tx.rows("SELECT member FROM ordered WHERE source = :source", source=source):
                tx.ring(channel(row["member"]))
        return gone

    return await db.write(work)


# Who holds which source, and who else has a copy; what changes it is a step of a transaction that has taken
# `orders.lock`.

#: begins the next epoch of a source, so that whatever its old holder still says is refused; None: it is gone
Raise = Callable[[Tx, str], Awaitable[int | None]]


async def give(tx: Tx, holders: Mapping[str, str]) -> None:
    await tx.many(
        "UPDATE holding SET member = :member WHERE source = :source",
        [{"source": source, "member": member} for source, member in holders.items()],
    )
    await order_instead(tx, "hold", holders.items())


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
        await order_instead(tx, "copy" if keep else "release", [(source, old)])
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
        await lock(tx)  # one of them may become the holder at this moment
        rows = await tx.rows(having, source=source)
        await order_instead(tx, "copy", [(row["source"], row["member"]) for row in rows])

    if await db.read(having, source=source):
        await db.write(work)


# What upstream hosts permit, divided: each worker has the part of it that it has of all capacity.
#
# A part has a place in the whole, from where to where, so that parts of what cannot be divided add up too.


class Shares:
    def __init__(self, db: Database, clock: Clock, every: float) -> None:
        self._db = db
        self._clock = clock
        self._every = every
        self._parts: dict[str, tuple[float, float]] = {}
        self._counted = 0.0

    async def of(self, member: str) -> tuple[float, float]:
        """Counted anew so often, whoever asks."""
        now = self._clock.now()
        if now >= self._counted + self._every:
            rows = await self._db.read(
                "SELECT id, capacity FROM member WHERE mirror = 1 AND state = 'alive' ORDER BY id"
            )
            ends = list(accumulate((row["capacity"] for row in rows), initial=0.0))
            cuts = [end / ends[-1] for end in ends] if rows else []
            self._parts = {row["id"]: cut for row, cut in zip(rows, pairwise(cuts), strict=True)}
            self._counted = now
        return self._parts.get(member, (0.0, 1.0))
