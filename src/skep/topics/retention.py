"""Drops what a topic need not keep any longer: by age, by size, only where it was asked for."""

import asyncio
import logging
from collections.abc import Sequence

from skep.engines.log.base import Log
from skep.errors import SkepError
from skep.model.topic import Message, Part, Topic
from skep.topics.partitions import offset_at
from skep.topics.service import Topics
from skep.topics.tables import topic_of

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
