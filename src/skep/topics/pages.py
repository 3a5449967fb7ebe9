"""The list of topics, and one topic: its messages by offset, followed live where scripts run, and who reads it."""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from litestar import Response, get
from litestar.params import FromPath, QueryParameter

from skep.base.caller import Caller
from skep.base.errors import NotFound
from skep.interfaces.core import Core
from skep.interfaces.http.dependencies import Asked, Asker, TheCore
from skep.interfaces.web.render import page as render
from skep.topics.api import Lag, Message, Part, Standing, Topic
from skep.topics.service import Topics, offset_at, part_of

_PER_PAGE = 50
_MESSAGES = 25
#: characters of a body that are shown
_CUT = 4_000
_HOUR = 3600.0
#: partitions looked into for times; a topic with more shows none
_LOOKED_AT = 32

Place = Annotated[int | None, QueryParameter(ge=0, le=1 << 53)]
Partition = Annotated[int, QueryParameter(ge=0, le=1 << 53)]


class Reader(msgspec.Struct, frozen=True):
    group: str
    partitions: list[Lag]

    @property
    def lag(self) -> int:
        return sum(one.lag for one in self.partitions)


class Row(msgspec.Struct, frozen=True):
    topic: Topic
    messages: int
    bytes: int
    readers: list[Reader]
    #: None where the caller may not read, or it is too much to look for
    newest: float | None
    last_hour: int | None


class Window(msgspec.Struct, frozen=True):
    """What of a partition is on the page."""

    messages: list[Message]
    first: int
    next: int
    #: from an offset on; else newest first
    rising: bool

    @property
    def low(self) -> int:
        return min((message.offset for message in self.messages), default=self.first)

    @property
    def high(self) -> int:
        return max((message.offset + 1 for message in self.messages), default=self.next)

    @property
    def newest(self) -> bool:
        return not self.rising and self.high >= self.next


async def topics_page(request: Asked, core: Core, caller: Caller, page: str) -> Response[bytes]:
    found = await core.topics.list(caller, page=page, limit=_PER_PAGE)
    rows = [await _row(core, caller, topic) for topic in found.items]
    return render(request, "topics.html", rows=rows, next_page=found.next_page, page=page)


@get("/topics/{name:str}")
async def topic_page(
    request: Asked,
    core: TheCore,
    caller: Asker,
    name: FromPath[str],
    partition: Partition = 0,
    offset: Place = None,
    before: Place = None,
) -> Response[bytes]:
    topic, standings = await core.topics.show(caller, name)
    part_of(topic, partition)
    may_read = readable(caller, topic)
    window = await _window(core.topics, caller, topic, standings[partition], offset, before) if may_read else None
    values: dict[str, Any] = {"topic": topic, "standings": standings, "partition": partition, "window": window}
    values |= {"readers": await _readers(core, caller, topic), "missed": _missed(standings[partition], offset)}
    return render(request, "topic.html", body=body, per_page=_MESSAGES, **values)


def _missed(standing: Standing, offset: int | None) -> bool:
    return offset is not None and offset < standing.first


def readable(caller: Caller, topic: Topic) -> bool:
    return caller.may("private" if topic.owner == "skep" else "read")


async def _row(core: Core, caller: Caller, topic: Topic) -> Row:
    _, standings = await core.topics.show(caller, topic.name)
    looks = readable(caller, topic) and topic.partitions <= _LOOKED_AT
    return Row(
        topic,
        sum(one.next - one.first for one in standings),
        sum(one.bytes for one in standings),
        await _readers(core, caller, topic),
        await _newest(core.topics, caller, topic, standings) if looks else None,
        await _last_hour(core.topics, topic, standings) if looks else None,
    )


async def _newest(topics: Topics, caller: Caller, topic: Topic, standings: Sequence[Standing]) -> float | None:
    times = []
    for one in standings:
        if one.next > one.first:
            found = await topics.read(caller, topic.name, one.next - 1, 1, partition=one.partition)
            times += [message.at for message in found]
    return max(times, default=None)


async def _last_hour(topics: Topics, topic: Topic, standings: Sequence[Standing]) -> int:
    since = topics.clock.now() - _HOUR
    return sum([one.next - await offset_at(topics.log, Part(topic.name, one.partition), since) for one in standings])


async def _readers(core: Core, caller: Caller, topic: Topic) -> list[Reader]:
    readers = []
    for group in await core.groups.list(caller, topic.name):
        try:
            readers.append(Reader(group, await core.groups.lag(caller, topic.name, group)))
        except NotFound:  # it went meanwhile
            continue
    return readers


async def _window(
    topics: Topics, caller: Caller, topic: Topic, standing: Standing, offset: int | None, before: int | None
) -> Window:
    rising = offset is not None
    end = standing.next if before is None else min(before, standing.next)
    start = offset if offset is not None else max(standing.first, end - _MESSAGES)
    limit = _MESSAGES if rising else min(_MESSAGES, max(0, end - start))
    found = await topics.read(caller, topic.name, start, limit, partition=standing.partition)
    return Window(found if rising else found[::-1], standing.first, standing.next, rising)


def body(message: Message) -> tuple[str, int]:
    """What is shown of a body, indented when it is JSON, and how many characters of it are not."""
    text = message.body.decode("utf-8", "replace")
    if len(text) <= 16 * _CUT:
        with suppress(ValueError, RecursionError):
            value = json.loads(text)
            text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return text[:_CUT], max(0, len(text) - _CUT)
