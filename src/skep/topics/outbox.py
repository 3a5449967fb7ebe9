"""Ends of tasks and contexts on their way to the topic `skep.tasks`.

They are stored with the end itself, and told a moment later: a topic has one counter, and reports of all workers would
wait for each other there.
"""

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from skep.base.clock import Clock
from skep.base.errors import SkepError
from skep.base.ids import new_id, new_ids
from skep.storage.database import Database, Statement, Tx, Value, inserting
from skep.storage.topic_log import Log
from skep.topics.api import Draft, Message, Part, Topic
from skep.topics.service import TASKS, Topics, offset_at, topic_of

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


# Drops what a topic need not keep any longer: by age, by size, only where it was asked for.

log = logging.getLogger(__name__)

EVERY_SECONDS = 30.0
_PAGE = 500


async def sweep_for_ever(topics: Topics) -> None:
    while True:
        try:
            await sweep(topics)
        except SkepError as error:
            log.warning("old messages could not be dropped", extra={"reason": error.message})
        await asyncio.sleep(EVERY_SECONDS)


async def sweep(topics: Topics) -> None:
    rows = await topics.db.read(
        "SELECT * FROM topic WHERE retain_seconds IS NOT NULL OR retain_bytes IS NOT NULL ORDER BY name"
    )
    for topic in map(topic_of, rows):
        for partition in range(topic.partitions):
            await _trim(topics, topic, Part(topic.name, partition))


async def _trim(topics: Topics, topic: Topic, part: Part) -> None:
    if topic.retain_seconds is not None:
        await topics.log.trim(part, await offset_at(topics.log, part, topics.clock.now() - topic.retain_seconds))
    if topic.retain_bytes is not None:
        await _trim_to(topics.log, part, topic.retain_bytes)


async def _trim_to(log: Log, part: Part, keep: int) -> None:
    """The first to go tells how much the engine counts beside a body, so that the next are not too many."""
    size, beside, most = await log.size(part), 0, 1
    while size > keep:
        gone = _oldest(await log.read(part, 0, most), size - keep, beside)
        if not gone:
            break
        await log.trim(part, gone[-1].offset + 1)
        before, size = size, await log.size(part)
        beside = max(0, (before - size - sum(len(message.body) for message in gone)) // len(gone))
        most = _PAGE


def _oldest(page: Sequence[Message], excess: int, beside: int) -> list[Message]:
    """As few from the beginning as hold `excess` bytes."""
    gone = []
    for message in page:
        if excess <= 0:
            break
        excess -= len(message.body) + beside
        gone.append(message)
    return gone
