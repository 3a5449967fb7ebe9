"""Topics: make them, follow them, trim them. Publishing and reading have doors of their own."""

from typing import Annotated

import msgspec
from litestar import get, patch, post
from litestar.params import FromPath, HeaderParameter, JSONBody, QueryParameter
from litestar.response import Stream

from skep.base.answers import Page
from skep.base.errors import BadInput
from skep.interfaces.http.asgi import STREAMED
from skep.interfaces.http.dependencies import Asked, Asker, Limit, PageToken, TheCore
from skep.topics import messages_http
from skep.topics.api import Natural, PlacesAnswer, Standing, Topic, TopicView

TAG = "topics"
_LARGEST = 1 << 53

Offset = Annotated[int, QueryParameter(ge=0, le=_LARGEST, description="the first offset wanted")]
Partition = Annotated[int, QueryParameter(ge=0, le=_LARGEST, description="which partition of the topic")]
LastSeen = Annotated[str, HeaderParameter(name="Last-Event-ID", description="what a browser sends when it comes back")]
Start = Annotated[
    str, QueryParameter(max_length=60, description="`beginning`, `end`, `offset:N` or `time:SECONDS` since 1970")
]
Kept = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]


class TopicOrder(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    partitions: int = 1
    #: None: kept for ever
    retain_seconds: float | None = None
    retain_bytes: Kept | None = None


class TopicEdit(msgspec.Struct, forbid_unknown_fields=True):
    """What is left out stays as it is; null keeps for ever."""

    retain_seconds: float | msgspec.UnsetType | None = msgspec.UNSET
    retain_bytes: Kept | msgspec.UnsetType | None = msgspec.UNSET


class TrimOrder(msgspec.Struct, forbid_unknown_fields=True):
    #: the first offset that stays
    before: Natural
    partition: Natural = 0


@post("/topics", summary="Make a topic")
async def create_topic(core: TheCore, caller: Asker, data: JSONBody[TopicOrder]) -> Topic:
    return await core.topics.create(
        caller,
        data.name,
        partitions=data.partitions,
        retain_seconds=data.retain_seconds,
        retain_bytes=data.retain_bytes,
    )


@get("/topics", summary="List topics")
async def list_topics(core: TheCore, caller: Asker, page: PageToken = "", limit: Limit = 100) -> Page[Topic]:
    return await core.topics.list(caller, page=page, limit=limit)


@get("/topics/{topic:str}", summary="Show a topic: how far its partitions reach, and which groups read it")
async def show_topic(core: TheCore, caller: Asker, topic: FromPath[str]) -> TopicView:
    found, partitions = await core.topics.show(caller, topic)
    return TopicView(found, partitions, await core.groups.list(caller, topic))


@patch("/topics/{topic:str}", summary="Change what a topic keeps")
async def edit_topic(core: TheCore, caller: Asker, topic: FromPath[str], data: JSONBody[TopicEdit]) -> Topic:
    caller.need("write")
    now = await core.topics.find(topic)
    seconds = now.retain_seconds if isinstance(data.retain_seconds, msgspec.UnsetType) else data.retain_seconds
    size = now.retain_bytes if isinstance(data.retain_bytes, msgspec.UnsetType) else data.retain_bytes
    return await core.topics.update(caller, topic, retain_seconds=seconds, retain_bytes=size)


@post("/topics/{topic:str}/trim", summary="Remove the messages below an offset", status_code=200)
async def trim_topic(core: TheCore, caller: Asker, topic: FromPath[str], data: JSONBody[TrimOrder]) -> Standing:
    return await core.topics.trim(caller, topic, data.partition, data.before)


@get("/topics/{topic:str}/places", summary="Where reading begins in each partition")
async def topic_places(core: TheCore, caller: Asker, topic: FromPath[str], start: Start = "beginning") -> PlacesAnswer:
    return PlacesAnswer(await core.topics.places(caller, topic, start))


@get(
    "/topics/{topic:str}/follow",
    summary="Follow a topic as server-sent events",
    media_type="text/event-stream",
)
async def follow_topic(
    request: Asked,
    core: TheCore,
    caller: Asker,
    topic: FromPath[str],
    offset: Offset = 0,
    partition: Partition = 0,
    last_seen: LastSeen = "",
) -> Stream:
    if last_seen:
        if not (last_seen.isascii() and last_seen.isdecimal() and len(last_seen) < 16):
            raise BadInput(f"{last_seen[:60]!r} is no offset", hint="Last-Event-ID is the id of the last event seen")
        offset = int(last_seen) + 1
    # what is wrong with the request is said before the stream begins
    await core.topics.read(caller, topic, offset, 1, partition=partition)
    events = messages_http.events(core.topics, caller, topic, partition, offset, request.app.state.closing)
    return Stream(events, media_type="text/event-stream", headers=STREAMED)
