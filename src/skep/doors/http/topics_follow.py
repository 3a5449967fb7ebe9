"""A topic as a stream of server-sent events: `id` is the offset, `data` the message."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import msgspec

from skep.doors.http.bare import unless
from skep.doors.http.topics_wire import shown
from skep.model.caller import Caller
from skep.model.topic import Message
from skep.topics.service import Topics

#: proxies and clients give up on a connection on which nothing moves
HEARTBEAT_SECONDS = 15.0
#: messages taken at a time; a client that reads slowly holds no more than these in memory
_AT_ONCE = 32
_encode = msgspec.json.Encoder().encode
#: in JSON these are white space between values, in a stream of events they end a line
_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")


async def events(
    topics: Topics, caller: Caller, topic: str, partition: int, offset: int, closing: asyncio.Event
) -> AsyncGenerator[bytes, None]:
    first, _ = await topics.edges(caller, topic, partition)
    yield b": following\n\n"
    if offset < first:
        yield _trimmed(first)
        offset = first
    beat = topics.clock.now() + HEARTBEAT_SECONDS
    async with topics.listen(topic, partition) as bell:
        while not closing.is_set():
            found = await topics.read(caller, topic, offset, _AT_ONCE, partition=partition)
            left = beat - topics.clock.now()
            if found:
                yield _block(found, partition, offset)
                offset = found[-1].offset + 1
            elif left <= 0:
                yield b": still here\n\n"
            else:
                await unless(closing.wait(), bell.wait(left))  # it may ring for other partitions
                continue
            beat = topics.clock.now() + HEARTBEAT_SECONDS


def _block(found: Sequence[Message], partition: int, offset: int) -> bytes:
    told = [_trimmed(found[0].offset)] if found[0].offset > offset else []
    return b"".join(told + [_event(message, partition) for message in found])


def _event(message: Message, partition: int) -> bytes:
    data = _encode(shown(message, partition)).translate(_LINE_ENDS)
    return b"id: %d\ndata: %b\n\n" % (message.offset, data)


def _trimmed(first: int) -> bytes:
    """The follower was below the edge: what lay between is gone."""
    return b'event: trimmed\ndata: {"first":%d}\n\n' % first
