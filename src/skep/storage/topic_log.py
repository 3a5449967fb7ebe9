"""The log in tables of the database.

An offset comes from the partition's counter row, locked until the transaction ends, never from a sequence: with a
sequence a reader could pass a number whose transaction commits later. Because that lock makes producers of one
partition wait for each other's commits, appends are gathered: many share one transaction, on either engine.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from itertools import islice
from math import inf
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from skep.base.errors import BadInput, Conflict, NoSpace, Unavailable
from skep.storage.database import Bell, Database, Row, Tx, Value, insert, inserting
from skep.topics.api import Draft, Message, Part

# The Log face: messages appended to a partition get offsets from 0 without gaps, and stay until trimmed.


class Promises(msgspec.Struct, frozen=True):
    """What a log says of itself; the contract suite tests what it says."""

    #: appended messages are on disk before `append` returns
    fsync: bool
    #: the drafts of one `append` are stored all or none
    atomic_batch: bool
    #: seconds in which a repeated draft id is stored once; inf: while the message is kept, 0: not at all
    dedup_window: float


class Log(Protocol):
    promises: Promises

    async def append(self, part: Part, drafts: Sequence[Draft]) -> list[int]: ...

    async def read(self, part: Part, offset: int, limit: int) -> list[Message]:
        """Messages from `offset` on; below the trimmed edge it starts at the edge."""
        ...

    async def bounds(self, part: Part) -> tuple[int, int]:
        """First kept offset and the next to be given."""
        ...

    async def size(self, part: Part) -> int:
        """Bytes of the bodies it keeps; an engine that counts more (headers) says so."""
        ...

    async def trim(self, part: Part, before: int) -> None: ...

    def listen(self, part: Part) -> AbstractAsyncContextManager[Bell]: ...

    async def close(self) -> None: ...


@runtime_checkable
class TxLog(Log, Protocol):
    """A log that lives in the database, so that an append can be part of a larger transaction."""

    async def append_in(
        self, tx: Tx, part: Part, drafts: Sequence[Draft], now: float, *, repeats: bool = True
    ) -> list[int]:
        """Without `repeats`, Conflict when one of the drafts is stored already."""
        ...


# Appends asked for while a transaction is under way are stored together by the next one.

#: stores the drafts of several parts in one transaction, and gives the offsets of each
Store = Callable[[list[tuple[Part, list[Draft]]]], Awaitable[list[list[int]]]]


class _Append(NamedTuple):
    part: Part
    drafts: Sequence[Draft]
    offsets: "asyncio.Future[list[int]]"


class Gather:
    def __init__(self, store: Store, *, capacity: int = 4096) -> None:
        """At most `capacity` appends wait to be stored; further callers wait for a place."""
        self._store = store
        self._places = asyncio.Semaphore(capacity)
        self._asked: list[_Append] = []
        self._storing: asyncio.Task[None] | None = None

    async def append(self, part: Part, drafts: Sequence[Draft]) -> list[int]:
        async with self._places:
            asked = _Append(part, drafts, asyncio.get_running_loop().create_future())
            self._asked.append(asked)
            if self._storing is None:
                # its own task: a caller that is cancelled does not take the others along
                self._storing = asyncio.create_task(self._store_all())
            return await asked.offsets

    async def _store_all(self) -> None:
        group: list[_Append] = []
        try:
            while self._asked:
                group, self._asked = self._asked, []
                await self._store_group(group)
        finally:
            self._storing = None
            for left in (*group, *self._asked):
                left.offsets.cancel()  # only when this task itself was cancelled: the others are done

    async def _store_group(self, group: list[_Append]) -> None:
        parts = _by_part(group)
        try:
            offsets = await self._store(parts)
        except Exception as error:
            if len(group) > 1 and not isinstance(error, (Unavailable, NoSpace)):
                for asked in group:  # one of them is bad, and fails alone
                    await self._store_group([asked])
                return
            for asked in group:
                if not asked.offsets.done():
                    asked.offsets.set_exception(error)
        else:
            _hand_out(group, {part: iter(given) for (part, _), given in zip(parts, offsets, strict=True)})


def _by_part(group: Sequence[_Append]) -> list[tuple[Part, list[Draft]]]:
    """Sorted, so that two processes that store several parts never wait for each other."""
    together: dict[Part, list[Draft]] = {}
    for asked in group:
        together.setdefault(asked.part, []).extend(asked.drafts)
    return sorted(together.items(), key=lambda item: (item[0].topic, item[0].partition))


def _hand_out(group: Sequence[_Append], rest: dict[Part, Iterator[int]]) -> None:
    """To each append its own, in the order in which they were put together."""
    for asked in group:
        own = list(islice(rest[asked.part], len(asked.drafts)))
        if not asked.offsets.done():
            asked.offsets.set_result(own)


STEPS = [
    """
    CREATE TABLE part (
        number BIGINT PRIMARY KEY, topic TEXT NOT NULL, partition BIGINT NOT NULL,
        first BIGINT NOT NULL, next BIGINT NOT NULL, bytes BIGINT NOT NULL, latest DOUBLE PRECISION NOT NULL,
        UNIQUE (topic, partition));
    CREATE TABLE part_count (id BIGINT PRIMARY KEY, parts BIGINT NOT NULL);
    CREATE TABLE message (
        key BIGINT PRIMARY KEY, number BIGINT NOT NULL, id TEXT NOT NULL, pkey TEXT NOT NULL, headers TEXT NOT NULL,
        body BYTEA NOT NULL, at DOUBLE PRECISION NOT NULL);
    CREATE UNIQUE INDEX message_id ON message (number, id) WHERE id <> '';
    """
]
_OF_PART = "FROM part WHERE topic = :topic AND partition = :partition"
#: offsets fit in the low bits of a message's key
BITS = 40
#: ids asked for in one statement
_AT_ONCE = 128
#: rows one transaction of a trim removes, so that it never holds the writer for long
_TRIM = 10_000


async def open_rows(url: str, *, db: Database) -> TxLog:
    await db.migrate("log", STEPS)
    return RowsLog(db)


class RowsLog:
    promises = Promises(fsync=True, atomic_batch=True, dedup_window=inf)

    def __init__(self, db: Database) -> None:
        self._db = db
        self._numbers: dict[Part, int] = {}
        self._gather = Gather(self._store)

    async def append(self, part: Part, drafts: Sequence[Draft]) -> list[int]:
        return await self._gather.append(part, drafts) if drafts else []

    async def append_in(
        self, tx: Tx, part: Part, drafts: Sequence[Draft], now: float, *, repeats: bool = True
    ) -> list[int]:
        number, place, latest = await _locked(tx, part)
        now = max(now, latest)  # clocks differ and step back; along a partition time does not
        known = await _known(tx, number, sorted({draft.id for draft in drafts} - {""})) if repeats else {}
        offsets: list[int] = []
        rows: list[Mapping[str, Value]] = []
        fresh: list[Draft] = []
        for draft in drafts:
            if draft.id and draft.id in known:
                offsets.append(known[draft.id])
                continue
            if draft.id:
                known[draft.id] = place
            offsets.append(place)
            rows.append(_row(number, place, draft, now))
            fresh.append(draft)
            place += 1
        if rows:
            await tx.many(inserting("message", rows[0]), rows)
            await tx.rows(
                "UPDATE part SET next = :next, bytes = bytes + :bytes, latest = :latest WHERE number = :number",
                next=place,
                bytes=sum(len(draft.body) for draft in fresh),
                latest=now,
                number=number,
            )
            tx.ring(_channel(part))
        return offsets

    async def read(self, part: Part, offset: int, limit: int) -> list[Message]:
        number = await self._number(part)
        if number is None:
            return []
        rows = await self._db.read(
            """SELECT key, at, id, pkey, headers, body FROM message
               WHERE key >= :low AND key < :high ORDER BY key LIMIT :limit""",
            low=number << BITS | min(max(offset, 0), (1 << BITS) - 1),
            high=number + 1 << BITS,
            limit=max(limit, 0),
        )
        return [_message(row) for row in rows]

    async def bounds(self, part: Part) -> tuple[int, int]:
        row = await self._part(part)
        return (row["first"], row["next"]) if row else (0, 0)

    async def size(self, part: Part) -> int:
        row = await self._part(part)
        return int(row["bytes"]) if row else 0

    async def trim(self, part: Part, before: int) -> None:
        first, end = await self.bounds(part)
        number, before = await self._number(part), min(before, end)
        while number is not None and first < before:
            first = min(first + _TRIM, before)
            await self._db.write(_Trim(number, first))

    def listen(self, part: Part) -> AbstractAsyncContextManager[Bell]:
        return self._db.listen(_channel(part))

    async def close(self) -> None:
        """Nothing: the database belongs to who opened it."""

    async def _number(self, part: Part) -> int | None:
        """Numbers never change, so a committed one is remembered."""
        if part not in self._numbers:
            if (row := await self._part(part)) is None:
                return None
            self._numbers[part] = row["number"]
        return self._numbers[part]

    async def _part(self, part: Part) -> Row | None:
        rows = await self._db.read(f"SELECT * {_OF_PART}", **msgspec.structs.asdict(part))
        return rows[0] if rows else None

    async def _store(self, parts: list[tuple[Part, list[Draft]]]) -> list[list[int]]:
        now = await self._db.now()

        async def work(tx: Tx, repeats: bool = False) -> list[list[int]]:
            return [await self.append_in(tx, part, drafts, now, repeats=repeats) for part, drafts in parts]

        try:
            return await self._db.write(work)
        except Conflict:
            # looking for repeats each time costs more than beginning again when there is one
            return await self._db.write(partial(work, repeats=True))


class _Trim(msgspec.Struct, frozen=True):
    number: int
    first: int

    async def __call__(self, tx: Tx) -> None:
        # in the order appends lock: the partition before its messages
        await tx.rows("SELECT next FROM part WHERE number = :number FOR UPDATE", number=self.number)
        low, high = self.number << BITS, self.number << BITS | self.first
        gone = await tx.rows(
            "SELECT COALESCE(SUM(LENGTH(body)), 0) AS bytes FROM message WHERE key >= :low AND key < :high",
            low=low,
            high=high,
        )
        await tx.rows("DELETE FROM message WHERE key >= :low AND key < :high", low=low, high=high)
        await tx.rows(
            "UPDATE part SET first = CASE WHEN first < :first THEN :first ELSE first END, bytes = bytes - :bytes "
            "WHERE number = :number",
            first=self.first,
            bytes=int(gone[0]["bytes"]),
            number=self.number,
        )


async def _locked(tx: Tx, part: Part) -> tuple[int, int, float]:
    """The partition's number, next offset and latest time; nobody else appends to it until the transaction ends."""
    look, place = f"SELECT number, next, latest {_OF_PART} FOR UPDATE", msgspec.structs.asdict(part)
    rows = await tx.rows(look, **place)
    if not rows:
        if not part.topic or part.partition < 0:
            raise BadInput(f"{part.topic!r} partition {part.partition} is no partition of a topic")
        # the counter is a row as well: who makes a partition keeps other makers waiting
        more = "ON CONFLICT (id) DO UPDATE SET parts = part_count.parts + 1 RETURNING parts"
        counted = await insert(tx, "part_count", more, id=1, parts=1)
        empty: dict[str, Value] = dict.fromkeys(("first", "next", "bytes", "latest"), 0)
        once = "ON CONFLICT (topic, partition) DO NOTHING"
        await insert(tx, "part", once, number=counted[0]["parts"], **place, **empty)
        rows = await tx.rows(look, **place)
    return rows[0]["number"], rows[0]["next"], rows[0]["latest"]


async def _known(tx: Tx, number: int, ids: list[str]) -> dict[str, int]:
    """Offsets of ids that are stored already."""
    known: dict[str, int] = {}
    look = "SELECT id, key FROM message WHERE number = :number AND id <> '' AND id IN (:some)"
    for start in range(0, len(ids), _AT_ONCE):
        rows = await tx.rows(look, number=number, some=ids[start : start + _AT_ONCE])
        known.update((row["id"], row["key"] & (1 << BITS) - 1) for row in rows)
    return known


def _row(number: int, offset: int, draft: Draft, now: float) -> dict[str, Value]:
    try:
        headers = msgspec.json.encode(draft.headers).decode() if draft.headers else ""
    except UnicodeEncodeError as error:
        raise BadInput("a header holds half of a character", hint="send headers as proper Unicode") from error
    return {
        "key": number << BITS | offset,
        "number": number,
        "id": draft.id,
        "pkey": draft.key,
        "headers": headers,
        "body": draft.body,
        "at": now,
    }


def _message(row: Row) -> Message:
    headers = msgspec.json.decode(row["headers"], type=dict[str, str]) if row["headers"] else {}
    offset = row["key"] & (1 << BITS) - 1
    return Message(offset, row["at"], row["id"], row["pkey"], headers, row["body"])


def _channel(part: Part) -> str:
    return f"log:{part.topic}"
