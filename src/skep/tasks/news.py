"""Ends of tasks and contexts on their way to the topic `skep.tasks`.

They are stored with the end itself, and told a moment later: a topic has one counter, and reports of all workers would
wait for each other there.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from skep.clock import Clock
from skep.engines.db.base import Database, Statement, Tx, Value, inserting
from skep.model.ids import new_id, new_ids
from skep.model.topic import Draft
from skep.topics.service import TASKS, Topics

CHANNEL = "news"
_AT_ONCE = 1000
_NAP = 60.0
#: seconds in which ends gather, to be told in one transaction
_GATHER = 0.2


class News(msgspec.Struct, frozen=True):
    #: `task` or `context`
    what: str
    id: str
    state: str
    more: dict[str, str]


_INSERT = inserting("news", ("id", "subject", "body"))


async def put(tx: Tx, told: Sequence[News], now: float) -> None:
    ids = new_ids("tke", now, len(told))
    await tx.many(_INSERT, [_row(id, one, now) for id, one in zip(ids, told, strict=True)])
    if told:
        tx.ring(CHANNEL)


def statement(one: News, now: float) -> Statement:
    """To `put` one among other things; CHANNEL is to be rung."""
    return _INSERT, _row(new_id("tke", now), one, now)


def _row(id: str, one: News, now: float) -> dict[str, Value]:
    told = {"id": id, "what": one.what, one.what: one.id, "state": one.state, "at": now, **one.more}
    return {"id": id, "subject": one.id, "body": msgspec.json.encode(told)}


async def tell(db: Database, topics: Topics, clock: Clock) -> None:
    """For ever."""
    async with db.listen(CHANNEL) as bell:
        while True:
            if not await step(db, topics, clock):
                await bell.wait(_NAP)
                await asyncio.sleep(_GATHER)


async def step(db: Database, topics: Topics, clock: Clock) -> int:
    """Leaving here and standing in the topic is one transaction: each is told once, whoever tells it."""

    async def work(tx: Tx) -> int:
        rows = await tx.rows(
            "DELETE FROM news WHERE id IN (SELECT id FROM news ORDER BY id LIMIT :most FOR UPDATE SKIP LOCKED) "
            "RETURNING id, subject, body",
            most=_AT_ONCE,
        )
        drafts = [
            Draft(bytes(row["body"]), row["id"], row["subject"]) for row in sorted(rows, key=lambda row: row["id"])
        ]
        if drafts:
            await topics.tell(tx, TASKS, drafts, clock.now(), repeats=False)
        return len(drafts)

    return await db.write(work)
