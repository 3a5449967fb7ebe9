"""Tuples inside somebody's transaction: how other rooms put, look at, remove and replace them."""

from collections.abc import Awaitable, Callable

from skep.engines.db.base import Row, Tx, Value, insert
from skep.model.space import Fields, Template, Tuple
from skep.spaces.match import Pattern, head_of, packed, unpacked
from skep.spaces.tables import channel

_PAGE = 256
_FREE = "SELECT seq, body, id FROM tuple WHERE taker IS NULL AND space = :space AND arity = :arity AND seq > :after "
_BY_HEAD = _FREE + "AND head = :head ORDER BY seq LIMIT :limit"
_IN_ORDER = _FREE + "ORDER BY seq LIMIT :limit"
Rows = Callable[..., Awaitable[list[Row]]]


async def put(tx: Tx, space: str, fields: Fields, id: str = "") -> int:
    """Its place; that of the tuple with this `id` where there is one."""
    body = packed(fields)
    seq = await numbers(tx, space, 1)
    if id and (there := await with_id(tx, space, id)):
        return there
    kind: dict[str, Value] = {"arity": len(fields), "head": head_of(fields[0])}
    await insert(tx, "tuple", space=space, seq=seq, **kind, body=body, id=id or None)
    tx.ring(channel(space))
    return seq


async def first(tx: Tx, space: str, template: Template) -> Tuple | None:
    """The oldest match that nobody has taken."""
    found = await matching(tx.rows, space, Pattern(template), 1)
    return found[0] if found else None


async def everything(tx: Tx, space: str) -> list[Tuple]:
    """Also what was taken, and may come back."""
    rows = await tx.rows("SELECT seq, body, id FROM tuple WHERE space = :space ORDER BY seq", space=space)
    return [tuple_of(row) for row in rows]


async def remove(tx: Tx, space: str, template: Template, limit: int = 1) -> list[Tuple]:
    """The oldest matches that nobody has taken, at most `limit`."""
    found = await matching(tx.rows, space, Pattern(template), limit)
    places: list[dict[str, Value]] = [{"space": space, "seq": one.seq} for one in found]
    await tx.many("DELETE FROM tuple WHERE space = :space AND seq = :seq", places)
    return found


async def replace(tx: Tx, space: str, template: Template, fields: Fields) -> int:
    """The oldest match goes and `fields` come, or only come."""
    await numbers(tx, space, 0)  # two at once must not both find nothing
    await remove(tx, space, template)
    return await put(tx, space, fields)


async def numbers(tx: Tx, space: str, count: int) -> int:
    """The last of `count` new places. Until the transaction ends nobody else gets one in this space, so that what is
    seen later was put later."""
    more = "ON CONFLICT (name) DO UPDATE SET last = space.last + :last RETURNING last"
    rows = await insert(tx, "space", more, name=space, last=count)
    return int(rows[0]["last"])


async def with_id(tx: Tx, space: str, id: str) -> int | None:
    rows = await tx.rows("SELECT seq FROM tuple WHERE space = :space AND id = :id", space=space, id=id)
    return int(rows[0]["seq"]) if rows else None


async def sweep(tx: Tx, space: str, now: float) -> None:
    """What was taken for longer than its lease is there again."""
    await tx.rows(
        "UPDATE tuple SET taker = NULL WHERE taker IS NOT NULL AND space = :space AND lease_until <= :now",
        space=space,
        now=now,
    )


async def matching(rows: Rows, space: str, pattern: Pattern, limit: int, lock: str = " FOR UPDATE") -> list[Tuple]:
    found: list[Tuple] = []

    def enough(row: Row) -> bool:
        one = tuple_of(row)
        if pattern.matches(one.fields):
            found.append(one)
        return len(found) >= limit

    await scan(rows, space, pattern.arity, pattern.head, enough, lock=lock, page=max(limit, _PAGE))
    return found


async def scan(
    rows: Rows,
    space: str,
    arity: int,
    head: int | None,
    enough: Callable[[Row], bool],
    *,
    lock: str,
    page: int = _PAGE,
) -> None:
    """Show what nobody has taken, oldest first, until it is enough."""
    sql = (_IN_ORDER if head is None else _BY_HEAD) + lock
    params: dict[str, Value] = {"space": space, "arity": arity, "after": 0, "limit": page}
    if head is not None:
        params["head"] = head
    while True:
        shown = await rows(sql, **params)
        if any(enough(row) for row in shown) or len(shown) < page:
            return
        params["after"] = shown[-1]["seq"]


def tuple_of(row: Row) -> Tuple:
    return Tuple(row["seq"], unpacked(row["body"]), row["id"] or "")
