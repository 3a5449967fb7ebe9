"""Partitions of a topic: which of them a message goes to, and where in one of them a reader begins."""

import zlib
from contextlib import suppress

from skep.engines.log.base import Log
from skep.errors import BadInput
from skep.model.topic import Part, Post, Topic


def part_of(topic: Topic, partition: int) -> Part:
    if not 0 <= partition < topic.partitions:
        raise BadInput(f"topic {topic.name!r} has partitions 0 to {topic.partitions - 1}, not {partition}")
    return Part(topic.name, partition)


def choose(topic: Topic, post: Post, turn: int) -> int:
    """A given partition, else by key, else `turn`."""
    if post.partition is not None:
        return part_of(topic, post.partition).partition
    return spread(topic, post.key, turn)


def spread(topic: Topic, key: str, turn: int) -> int:
    """What has the same key meets itself in the same partition, also when it is repeated; else they take turns."""
    return (zlib.crc32(key.encode("utf-8", "surrogatepass")) if key else turn) % topic.partitions


async def resolve(log: Log, part: Part, to: str) -> int:
    """`beginning`, `end`, `offset:N` or `time:SECONDS`. An offset below the edge is left as it is: whoever reads there
    is told."""
    word, _, value = to.partition(":")
    first, end = await log.bounds(part)
    match word:
        case "beginning":
            return first
        case "end":
            return end
        case "offset" if value.isdecimal():
            return min(int(value), end)
        case "time":
            with suppress(ValueError):
                return await offset_at(log, part, float(value))
    raise BadInput(f"{to!r} is no place in a topic", hint="beginning, end, offset:N or time:SECONDS")


async def offset_at(log: Log, part: Part, at: float) -> int:
    """The first message not older than `at`, by halving: times do not fall along a partition."""
    low, high = await log.bounds(part)
    while low < high:
        middle = (low + high) // 2
        found = await log.read(part, middle, 1)
        if found and found[0].at < at:
            low = middle + 1
        else:
            high = middle
    return low
