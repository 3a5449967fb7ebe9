"""Reading messages, past Litestar like publishing: what is stored as JSON goes into the answer as it is."""

import asyncio
from functools import partial
from typing import Annotated

import msgspec
from litestar.types import HTTPScope, Receive, Send

from skep.doors.http.bare import query_of, respond, unless
from skep.doors.http.topics_wire import EVENTS, event_of, shown, topic_in
from skep.model.caller import Caller
from skep.model.topic import Message, Messages, Natural
from skep.topics.service import Topics

#: an answer ends when it has as many bytes as this, whatever `max` says; so messages are read a few at a time
_ANSWER = 8_000_000
_STEP = 128


class Reading(msgspec.Struct, frozen=True):
    """The query."""

    offset: Annotated[Natural, msgspec.Meta(description="the first offset wanted")] = 0
    partition: Annotated[Natural, msgspec.Meta(description="which partition of the topic")] = 0
    max: Annotated[
        int, msgspec.Meta(ge=1, le=1000, description="how many at most; large ones come fewer at a time")
    ] = 100
    wait: Annotated[float, msgspec.Meta(ge=0, le=60, description="seconds to wait when there is nothing yet")] = 0.0


_encode = msgspec.json.Encoder().encode


class ReadDoor:
    def __init__(self, topics: Topics, closing: asyncio.Event) -> None:
        self._topics = topics
        self._closing = closing

    async def __call__(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        caller: Caller = scope["user"]
        topic, asked = topic_in(scope), query_of(scope, Reading)
        look = partial(self._look, caller, topic, asked)
        found, first, next = await look()
        if asked.wait and not found:
            read = self._topics.read(caller, topic, asked.offset, 1, partition=asked.partition, wait=asked.wait)
            if await unless(self._closing.wait(), read):
                found, first, next = await look()
        if any(name == b"accept" and EVENTS.encode() in value for name, value in scope["headers"]):
            events = [event_of(topic, asked.partition, message) for message in found]
            await respond(send, 200, _encode(events), EVENTS)
        else:
            messages = [shown(message, asked.partition) for message in found]
            await respond(send, 200, _encode(Messages(messages, first, next)))

    async def _look(self, caller: Caller, topic: str, asked: Reading) -> tuple[list[Message], int, int]:
        """What is there now, the first offset kept and the next to be given: at the same time, for speed."""
        found, (first, next) = await asyncio.gather(
            self._read(caller, topic, asked), self._topics.edges(caller, topic, asked.partition)
        )
        if found:  # they may be older than what was found
            first = max(first, found[0].offset) if found[0].offset > asked.offset else first
            next = max(next, found[-1].offset + 1)
        return found, first, next

    async def _read(self, caller: Caller, topic: str, asked: Reading) -> list[Message]:
        found: list[Message] = []
        offset, size = asked.offset, 0
        while size < _ANSWER and (step := min(asked.max - len(found), _STEP)):
            some = await self._topics.read(caller, topic, offset, step, partition=asked.partition)
            found += some
            if len(some) < step:
                break
            offset = some[-1].offset + 1
            size += sum([len(message.body) for message in some])
        return found
