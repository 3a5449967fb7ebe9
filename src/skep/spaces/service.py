"""Spaces: named bags of tuples that processes coordinate with. Who takes one has it until acknowledged, or for a lease.

A tuple whose lease is over is there again, at its old place; the ticket stays good until somebody else takes it.
"""

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import TypeVar

from skep.access.audit import note
from skep.base.answers import Page
from skep.base.caller import SYSTEM, Caller
from skep.base.clock import Clock
from skep.base.errors import BadInput, NotFound
from skep.spaces import batch
from skep.spaces.api import (
    Acknowledge,
    Fields,
    Found,
    Get,
    GiveBack,
    Got,
    Keep,
    Nothing,
    Placed,
    Put,
    Query,
    QueryAll,
    Replace,
    SpaceAnswer,
    SpaceAsk,
    SpaceInfo,
    Taken,
    Template,
    Tuple,
)
from skep.spaces.batch import STEPS, Pattern, channel, packed, to_change, to_look
from skep.spaces.space_loop import Serving
from skep.storage.database import Database, Tx, one_row

T = TypeVar("T")
#: tuples that get_all and query_all return at once
MOST_AT_ONCE = 10_000
LEASE_SECONDS = 60.0
_COUNTED = (
    "SELECT name, (SELECT count(*) FROM tuple WHERE space = name) AS size, "
    "(SELECT count(*) FROM tuple WHERE space = name AND taker IS NOT NULL AND lease_until > :now) AS taken FROM space"
)
_LONGEST_ID = 200


class Spaces:
    def __init__(self, db: Database, clock: Clock, process: str = "here") -> None:
        """`process` tells this one from others on the same database, and stays the same when it starts again."""
        self._db = db
        self._clock = clock
        self._process = process
        self._here = f"{process}/{int(clock.now() * 1000)}"
        self._serving: dict[str, Serving] = {}
        self._loops: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await self._db.migrate("spaces", STEPS)
        await self.release(self._process, but=self._here)

    async def close(self) -> None:
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)

    async def put(self, caller: Caller, space: str, fields: Fields, id: str = "") -> int:
        """Its place; durable on return. With the `id` of a tuple that is there, this is that tuple."""
        to_change(caller, space)
        if len(id) > _LONGEST_ID or "\0" in id:
            raise BadInput(f"the id of a tuple has at most {_LONGEST_ID} characters, none of them NUL")
        return await self._of(space).put(tuple(fields), id)

    async def get(
        self,
        caller: Caller,
        space: str,
        template: Template,
        *,
        wait: float = 0.0,
        lease: float = LEASE_SECONDS,
        taker: str = "",
        ticket: str = "",
        again: bool = False,
    ) -> Taken | None:
        """Take the oldest match; None when nothing came in `wait` seconds. A repeat (`again`) with the same ticket and
        taker gets what it has already."""
        to_change(caller, space)
        who = taker or self._here
        ticket = ticket or secrets.token_urlsafe(12)
        found = await self._of(space).find(Pattern(template), wait, taker=who, ticket=ticket, lease=lease, again=again)
        return found if isinstance(found, Taken) else None

    async def query(self, caller: Caller, space: str, template: Template, *, wait: float = 0.0) -> Tuple | None:
        """Look at the oldest match, and leave it there."""
        to_look(caller, space)
        return await self._of(space).find(Pattern(template), wait)

    async def acknowledge(self, caller: Caller, space: str, seq: int, ticket: str, *, again: bool = False) -> None:
        """It is done with: gone for good."""
        to_change(caller, space)
        await self._of(space).end("acknowledge", seq, ticket, again=again)

    async def give_back(self, caller: Caller, space: str, seq: int, ticket: str) -> None:
        to_change(caller, space)
        await self._of(space).end("give_back", seq, ticket)

    async def keep(
        self, caller: Caller, space: str, seq: int, ticket: str, *, lease: float = LEASE_SECONDS, taker: str = ""
    ) -> None:
        """`lease` seconds more from now on."""
        to_change(caller, space)
        await self._of(space).end("keep", seq, ticket, taker=taker or self._here, lease=lease)

    async def get_all(self, caller: Caller, space: str, template: Template) -> list[Tuple]:
        """Every match, removed in one step and without a lease; at most MOST_AT_ONCE."""
        to_change(caller, space)
        return await self._swept(space, lambda tx: batch.remove(tx, space, template, MOST_AT_ONCE))

    async def query_all(self, caller: Caller, space: str, template: Template) -> list[Tuple]:
        to_look(caller, space)
        pattern = Pattern(template)
        rows = await self._db.read(
            "SELECT 1 AS one FROM tuple WHERE space = :space AND taker IS NOT NULL AND lease_until <= :now LIMIT 1",
            space=space,
            now=self._clock.now(),
        )
        if rows:
            await self._db.write(lambda tx: batch.sweep(tx, space, self._clock.now()))
        return await batch.matching(self._db.read, space, pattern, MOST_AT_ONCE, lock="")

    async def replace(self, caller: Caller, space: str, template: Template, fields: Fields) -> int:
        """In one step: the oldest match goes and `fields` come; where there is none they only come."""
        to_change(caller, space)
        packed(fields)
        return await self._swept(space, lambda tx: batch.replace(tx, space, template, tuple(fields)))

    async def _swept(self, space: str, work: Callable[[Tx], Awaitable[T]]) -> T:
        """`work` sees what came back too."""
        now = self._clock.now()

        async def both(tx: Tx) -> T:
            await batch.sweep(tx, space, now)
            return await work(tx)

        return await self._db.write(both)

    async def release(self, taker: str, *, but: str = "") -> None:
        """What this taker has, or with `but` all whose name begins so: there again at once."""

        async def work(tx: Tx) -> None:
            rows = await tx.rows(
                "UPDATE tuple SET taker = NULL WHERE taker IS NOT NULL AND taker <> :but "
                "AND (taker = :taker OR taker LIKE :prefix ESCAPE '!') RETURNING space",
                taker=taker,
                but=but,
                prefix=re.sub("([!%_])", r"!\1", taker) + "/%",
            )
            for space in {row["space"] for row in rows}:
                tx.ring(channel(space))

        await self._db.write(work)

    async def drop(self, caller: Caller, space: str) -> None:
        to_change(caller, space)

        async def work(tx: Tx) -> bool:
            rows = await tx.rows("DELETE FROM space WHERE name = :space RETURNING name", space=space)
            await tx.rows("DELETE FROM tuple WHERE space = :space", space=space)
            if rows:
                await note(tx, self._clock.now(), caller, "space.drop", space)
            return bool(rows)

        if not await self._db.write(work):
            raise _missing(space)

    def _of(self, space: str) -> Serving:
        serving = self._serving.get(space)
        if serving is None or serving.over:
            serving = self._serving[space] = Serving(self._db, self._clock, space)
            loop = asyncio.create_task(serving.run(), name=f"serves the space {space}")
            self._loops.add(loop)
            loop.add_done_callback(lambda done: self._ended(done, space, serving))
        return serving

    def _ended(self, loop: asyncio.Task[None], space: str, serving: Serving) -> None:
        self._loops.discard(loop)
        if self._serving.get(space) is serving:
            del self._serving[space]

    async def show(self, caller: Caller, space: str) -> SpaceInfo:
        to_look(caller, space)
        rows = await self._db.read(f"{_COUNTED} WHERE name = :space", space=space, now=self._clock.now())
        return SpaceInfo(**one_row(rows, _missing(space)))

    async def list(self, caller: Caller, *, page: str = "", limit: int = 100) -> Page[SpaceInfo]:
        caller.need("read")
        rows = await self._db.read(
            f"{_COUNTED} WHERE name > :page ORDER BY name LIMIT :limit",
            now=self._clock.now(),
            page=page,
            limit=limit + 1,
        )
        items = [SpaceInfo(**row) for row in rows[:limit]]
        return Page(items, items[-1].name if len(rows) > limit else "")


def _missing(space: str) -> NotFound:
    return NotFound(f"there is no space {space!r}", hint="`skep space list` shows those there are")


# Requests that come over the link: a member is Skep's own, and what it takes is released when it goes.


async def answer(spaces: Spaces, taker: str, asked: SpaceAsk, again: bool) -> SpaceAnswer:
    match asked:
        case Put(space, fields, id):
            return Placed(await spaces.put(SYSTEM, space, fields, id))
        case Get(space, template, ticket, wait, lease):
            taken = await spaces.get(
                SYSTEM, space, template, wait=wait, lease=lease, taker=taker, ticket=ticket, again=again
            )
            return Got(taken) if taken else Nothing()
        case Query(space, template, wait):
            found = await spaces.query(SYSTEM, space, template, wait=wait)
            return Found((found,) if found else ())
        case QueryAll(space, template):
            return Found(tuple(await spaces.query_all(SYSTEM, space, template)))
        case Acknowledge(space, seq, ticket):
            await spaces.acknowledge(SYSTEM, space, seq, ticket, again=again)
        case GiveBack(space, seq, ticket):
            await spaces.give_back(SYSTEM, space, seq, ticket)
        case Keep(space, seq, ticket, lease):
            await spaces.keep(SYSTEM, space, seq, ticket, lease=lease, taker=taker)
        case Replace(space, template, fields):
            return Placed(await spaces.replace(SYSTEM, space, template, fields))
    return Nothing()
