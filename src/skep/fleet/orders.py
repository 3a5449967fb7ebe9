"""Orders: what a member is still to take over. A row stays until the member says it is durable with it.

An order is only (kind, source): what it means in detail is read from the rooms when it is sent, so that a repeated
order is never stale, and asking twice is asking once.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from skep.access.audit import note
from skep.engines.db.base import Database, Tx
from skep.model.caller import SYSTEM

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
