"""Everything asked of a space at a moment, done in one transaction.

What is given back or acknowledged first, then who looks finds what is stored, then what is put meets who still waits:
so the oldest match always comes first, and a tuple that is put for a waiting getter is stored as taken at once.
"""

import asyncio
import math
import re
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec

from skep.base.caller import SYSTEM, Caller
from skep.base.errors import BadInput, Conflict, NotAllowed, SkepError, TooLarge
from skep.spaces.api import Field, Fields, Taken, Template, Tuple, Typed
from skep.storage.database import Row, Tx, Value, insert, inserting

# What a tuple may be, and when a template matches it (pure). Types are exact: True is no int, 1 is no 1.0.

MOST_FIELDS = 64
MOST_BYTES = 1 << 20
_INT64 = 1 << 63
_TYPES: dict[str, type] = {"str": str, "int": int, "float": float, "bool": bool}
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Fields).decode


def packed(fields: Sequence[Field]) -> bytes:
    """The tuple as it is stored; raises where it is none."""
    _check(fields)
    body = _bytes(tuple(fields))
    if len(body) > MOST_BYTES:
        raise TooLarge(f"a tuple has at most {MOST_BYTES} bytes, not {len(body)}", hint="put a reference to the rest")
    return body


def unpacked(body: bytes) -> Fields:
    return _decode(body)


def head_of(field: Field) -> int:
    """By this tuples are looked up; that two values share one does no harm."""
    return zlib.crc32(_bytes(field + 0.0 if type(field) is float else field))


class Pattern:
    """A template, ready to be tried on many tuples."""

    __slots__ = ("_parts", "arity", "head", "key")

    def __init__(self, template: Template) -> None:
        _check([part for part in template if not isinstance(part, Typed)], least=0)
        if not 1 <= len(template) <= MOST_FIELDS:
            raise BadInput(f"a template has 1 to {MOST_FIELDS} fields, not {len(template)}")
        self.arity = len(template)
        self._parts = [_part(part) for part in template]
        value = self._parts[0][1]
        #: None: its first field may be anything of a type
        self.head: int | None = None if value is None else head_of(value)
        #: equal for templates that match the same
        self.key = _bytes(template)

    def matches(self, fields: Fields) -> bool:
        if len(fields) != self.arity:
            return False
        for field, (kind, value) in zip(fields, self._parts, strict=True):
            if (kind is not None and type(field) is not kind) or (value is not None and field != value):
                return False
        return True


def _bytes(parts: object) -> bytes:
    try:
        return _encode(parts)
    except UnicodeEncodeError as error:
        raise BadInput("a text with half a surrogate pair cannot be in a tuple") from error


def _part(part: Any) -> tuple[type | None, Any]:
    """Its type (None: any) and value (None: any); no field is None."""
    if isinstance(part, Typed):
        return _TYPES.get(part.type), None
    return type(part), part


def _check(fields: Sequence[Field], least: int = 1) -> None:
    if not least <= len(fields) <= MOST_FIELDS:
        raise BadInput(f"a tuple has 1 to {MOST_FIELDS} fields, not {len(fields)}")
    for field in fields:
        kind = type(field)
        if kind is int and not -_INT64 <= field < _INT64:  # type: ignore[operator]
            raise BadInput(f"{field} does not fit 64 bits", hint="put it as text")
        if kind is float and not math.isfinite(field):  # type: ignore[arg-type]
            raise BadInput(f"{field} is no number that can be compared", hint="put it as text")
        if kind not in (str, int, float, bool):
            raise BadInput(f"a field is a str, an int, a float or a bool, never a {kind.__name__}")


# The tables of spaces, and what a space may be called.

#: Free tuples are found by their first field, or in order where a template leaves that open; taken ones by when their
#: lease ends. A tuple is in the one kind of index or in the other.
STEPS = [
    """
    CREATE TABLE space (name TEXT PRIMARY KEY, last BIGINT NOT NULL);
    CREATE TABLE tuple (
        space TEXT NOT NULL, seq BIGINT NOT NULL, arity BIGINT NOT NULL, head BIGINT NOT NULL, body BYTEA NOT NULL,
        id TEXT, taker TEXT, ticket TEXT, lease_until DOUBLE PRECISION, PRIMARY KEY (space, seq)
    );
    CREATE INDEX tuple_by_head ON tuple (space, arity, head, seq) WHERE taker IS NULL;
    CREATE INDEX tuple_in_order ON tuple (space, arity, seq) WHERE taker IS NULL;
    CREATE INDEX tuple_taken ON tuple (space, lease_until) WHERE taker IS NOT NULL;
    CREATE UNIQUE INDEX tuple_id ON tuple (space, id) WHERE id IS NOT NULL
    """
]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}")
_WORDS = "letters, digits, dot, dash, colon and underscore, at most 200 characters, a letter or digit first"


def channel(space: str) -> str:
    return f"space:{space}"


def to_look(caller: Caller, space: str) -> None:
    caller.need("read")
    if not _NAME.fullmatch(space):
        raise BadInput(f"{space[:60]!r} is not a name for a space", hint=_WORDS)


def to_change(caller: Caller, space: str) -> None:
    """Skep's own spaces hold what it relies on: looked at by all, changed by none but itself."""
    to_look(caller, space)
    caller.need("write")
    if caller is not SYSTEM and (space in ("status", "index") or space.startswith(("skep.", "context:"))):
        raise NotAllowed(f"the space {space!r} is Skep's own", hint="choose a name of your own")


# Tuples inside somebody's transaction: how other rooms put, look at, remove and replace them.

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


Found = Taken | Tuple

_THERE = "SELECT seq FROM tuple WHERE space = :space AND seq = :seq"
_ACKNOWLEDGE = "DELETE FROM tuple WHERE space = :space AND seq = :seq AND ticket = :ticket RETURNING seq"
_GIVE_BACK = "UPDATE tuple SET taker = NULL, ticket = NULL WHERE space = :space AND seq = :seq AND ticket = :ticket"
_KEEP = (
    "UPDATE tuple SET taker = :taker, lease_until = :lease_until "
    "WHERE space = :space AND seq = :seq AND ticket = :ticket RETURNING seq"
)
_TAKE = (
    "UPDATE tuple SET taker = :taker, ticket = :ticket, lease_until = :lease_until WHERE space = :space AND seq = :seq"
)
_PUT = inserting("tuple", ("space", "seq", "arity", "head", "body", "id", "taker", "ticket", "lease_until"))
_HELD = (
    "SELECT seq, body, id, ticket FROM tuple "
    "WHERE taker = :taker AND taker IS NOT NULL AND space = :space AND lease_until > :now"
)
_LAPSE = "SELECT min(lease_until) AS lapse FROM tuple WHERE taker IS NOT NULL AND space = :space"


class Want(msgspec.Struct, eq=False):
    """Somebody who waits for a tuple; to take it, where there is a `taker`."""

    number: int
    pattern: Pattern
    future: asyncio.Future[Found | None]
    taker: str = ""
    ticket: str = ""
    lease: float = 0.0
    #: it may have been served before, without hearing of it
    again: bool = False
    #: nothing found is an answer too
    once: bool = False
    looked: bool = False

    def given(self, seq: int, fields: Fields, id: str, now: float) -> Found:
        if not self.taker:
            return Tuple(seq, fields, id)
        return Taken(seq, fields, id, ticket=self.ticket, lease_until=now + self.lease)


class Deposit(msgspec.Struct, eq=False):
    fields: Fields
    body: bytes
    head: int
    id: str
    future: asyncio.Future[int]


class End(msgspec.Struct, eq=False):
    """What becomes of a taken tuple."""

    kind: Literal["acknowledge", "give_back", "keep"]
    seq: int
    ticket: str
    future: asyncio.Future[None]
    again: bool = False
    taker: str = ""
    lease: float = 0.0


class Result(msgspec.Struct):
    places: list[int] = []
    #: by number of the want
    served: dict[int, Found] = {}
    refused: dict[int, SkepError] = {}
    #: when the next lease ends, as far as somebody looked
    lapse: float | None = None


class Turn(msgspec.Struct):
    space: str
    now: float
    ends: list[End]
    deposits: list[Deposit]
    #: who looks at what is stored
    looking: list[Want]
    #: who meets what is put now; those who look as well
    waiting: list[Want]

    async def work(self, tx: Tx) -> Result:
        result = Result()
        # before any tuple is locked: whoever changes a space by the store's functions locks in this order too
        last = await numbers(tx, self.space, len(self.deposits)) if self.deposits else 0
        for n, end in enumerate(self.ends):
            if not await self._end(tx, end):
                result.refused[n] = Conflict(
                    f"tuple {end.seq} of {self.space!r} is no longer yours: its lease was over and another took it",
                    hint="take tuples with a longer lease, or keep them while you work",
                )
        if self.looking:
            await self._look(tx, result)
        await self._put(tx, last, result)
        if any(end.kind == "give_back" for end in self.ends):
            tx.ring(channel(self.space))
        return result

    async def _end(self, tx: Tx, end: End) -> bool:
        place: dict[str, Value] = {"space": self.space, "seq": end.seq, "ticket": end.ticket}
        match end.kind:
            case "acknowledge":
                rows = await tx.rows(_ACKNOWLEDGE, **place)
                if not rows and end.again:
                    return not await tx.rows(_THERE, space=self.space, seq=end.seq)
            case "give_back":
                # of a lease that is over there is nothing to give back
                await tx.rows(_GIVE_BACK, **place)
                return True
            case "keep":
                rows = await tx.rows(_KEEP, taker=end.taker, lease_until=self.now + end.lease, **place)
        return bool(rows)

    async def _look(self, tx: Tx, result: Result) -> None:
        await self._remember(tx, result)
        await sweep(tx, self.space, self.now)
        queues = Queues(want for want in self.looking if want.number not in result.served)
        taken: dict[int, Want] = {}
        for arity, head in queues.kinds():

            def enough(row: Row, arity: int = arity, head: int | None = head) -> bool:
                seq, fields, id = row["seq"], unpacked(row["body"]), row["id"] or ""
                if seq not in taken and (want := self._meet(queues, arity, (head,), (seq, fields, id), result)):
                    taken[seq] = want
                return queues.empty(arity, head)

            await scan(tx.rows, self.space, arity, head, enough, lock=" FOR UPDATE SKIP LOCKED")
        rows = [{"space": self.space, "seq": seq, **self._lease(want)} for seq, want in taken.items()]
        await tx.many(_TAKE, rows)
        result.lapse = (await tx.rows(_LAPSE, space=self.space))[0]["lapse"]

    async def _remember(self, tx: Tx, result: Result) -> None:
        """Whose answer was lost gets what it has taken already."""
        for taker in {want.taker for want in self.looking if want.again and want.taker}:
            rows = await tx.rows(_HELD, taker=taker, space=self.space, now=self.now)
            held = {row["ticket"]: row for row in rows}
            for want in self.looking:
                if want.taker == taker and want.again and (row := held.get(want.ticket)):
                    found = want.given(row["seq"], unpacked(row["body"]), row["id"] or "", self.now)
                    result.served[want.number] = found

    async def _put(self, tx: Tx, last: int, result: Result) -> None:
        queues = Queues(want for want in self.waiting if want.number not in result.served)
        rows: list[dict[str, Value]] = []
        for seq, deposit in enumerate(self.deposits, last - len(self.deposits) + 1):
            if deposit.id and (there := await self._twin(tx, deposit.id, rows)):
                result.places.append(there)
                continue
            result.places.append(seq)
            arity = len(deposit.fields)
            want = self._meet(queues, arity, (deposit.head, None), (seq, deposit.fields, deposit.id), result)
            if not want:
                tx.ring(channel(self.space))
            row: dict[str, Value] = {"space": self.space, "seq": seq, "arity": arity, "head": deposit.head}
            rows.append({**row, "body": deposit.body, "id": deposit.id or None, **self._lease(want)})
        await tx.many(_PUT, rows)

    async def _twin(self, tx: Tx, id: str, rows: Sequence[dict[str, Value]]) -> int | None:
        there = next((row["seq"] for row in rows if row["id"] == id), None)
        return int(there) if isinstance(there, int) else await with_id(tx, self.space, id)

    def _lease(self, want: Want | None) -> dict[str, Value]:
        if want is None:
            return {"taker": None, "ticket": None, "lease_until": None}
        return {"taker": want.taker, "ticket": want.ticket, "lease_until": self.now + want.lease}

    def _meet(
        self,
        queues: "Queues",
        arity: int,
        heads: tuple[int | None, ...],
        it: tuple[int, Fields, str],
        result: Result,
    ) -> Want | None:
        lookers, taker = queues.meet(arity, heads, it[1])
        for want in (*lookers, *((taker,) if taker else ())):
            result.served[want.number] = want.given(*it, self.now)
        return taker


class Queues:
    """Who waits for what, in the order they came. Equal templates share a queue: what one of it leaves, all leave."""

    def __init__(self, wants: Iterable[Want]) -> None:
        self._by: dict[tuple[int, int | None], dict[bytes, deque[Want]]] = {}
        for want in wants:
            queues = self._by.setdefault((want.pattern.arity, want.pattern.head), {})
            kind = b"take" if want.taker else b"look"
            queues.setdefault(kind + want.pattern.key, deque()).append(want)

    def kinds(self) -> list[tuple[int, int | None]]:
        return list(self._by)

    def empty(self, arity: int, head: int | None) -> bool:
        return not any(self._by[arity, head].values())

    def meet(self, arity: int, heads: tuple[int | None, ...], fields: Fields) -> tuple[list[Want], Want | None]:
        """All who only look, and the first of those who would take it."""
        lookers: list[Want] = []
        best: deque[Want] | None = None
        for head in heads:
            for queue in self._by.get((arity, head), {}).values():
                if not queue or not queue[0].pattern.matches(fields):
                    continue
                if not queue[0].taker:
                    lookers += queue
                    queue.clear()
                elif best is None or queue[0].number < best[0].number:
                    best = queue
        return lookers, best.popleft() if best else None
