"""Topics: read messages from an offset on."""

from typing import Annotated, Any

import msgspec
from litestar import get
from litestar.params import FromPath, QueryParameter

from skep.doors.http.given import Asker, Limit, TheCore
from skep.model.answers import Messages, TopicMessage
from skep.model.topic import Message

Offset = Annotated[int, QueryParameter(ge=0, description="the first offset wanted")]


@get("/topics/{topic:str}/messages", tags=["topics"], summary="Read messages from an offset on")
async def read_topic(
    core: TheCore, caller: Asker, topic: FromPath[str], offset: Offset = 0, limit: Limit = 100
) -> Messages:
    found = await core.topics.read(caller, topic, offset, limit)
    return Messages([_shown(message) for message in found])


def _shown(message: Message) -> TopicMessage:
    return TopicMessage(message.offset, message.at, message.id, message.key, message.headers, _value(message.body))


def _value(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body.decode("utf-8", "replace")


HANDLERS = [read_topic]
