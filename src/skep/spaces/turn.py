"""Everything asked of a space at a moment, done in one transaction.

What is given back or acknowledged first, then who looks finds what is stored, then what is put meets who still waits:
so the oldest match always comes first, and a tuple that is put for a waiting getter is stored as taken at once.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from skep.engines.db.base import Row, Tx, Value, inserting
from skep.errors import Conflict, SkepError
from skep.model.space import Fields, Taken, Tuple
from skep.spaces.match import Pattern, unpacked
from skep.spaces.store import numbers, scan, sweep, with_id
from skep.spaces.tables import channel

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
