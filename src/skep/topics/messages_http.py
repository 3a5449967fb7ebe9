"""Publishing, past Litestar: the busiest route of all. Bare ASGI; one pass over the body, one struct out of it."""

import asyncio
import base64
import binascii
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import msgspec
from litestar.types import HTTPScope, Receive, Send

from skep.base.caller import Caller
from skep.base.errors import BadInput, TooLarge
from skep.config.settings import Settings
from skep.interfaces.http.asgi import query_of, respond, unless
from skep.interfaces.http.decoding import NOT_DECODED, SMALL, Pieces, aside, in_pieces, refuse_many
from skep.topics.api import Message, Messages, Natural, Post, PostedAnswer, TopicMessage
from skep.topics.service import Topics

# What messages look like outside: JSON, and CloudEvents 1.0 in and out.
#
# A body is the JSON value that its bytes spell, else their text. CloudEvents' attributes travel as headers `ce-…`.

_BEFORE, _AFTER = "/api/v1/topics/", "/messages"
EVENT = "application/cloudevents+json"
EVENTS = "application/cloudevents-batch+json"
_NEEDED = ("id", "source", "type")
_decode = msgspec.json.Decoder().decode
_event = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
#: bytes of an attribute of a CloudEvent that is not a text
_LONGEST = 8192
_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def is_messages(scope: HTTPScope) -> bool:
    """Is this the path of a topic's messages? A topic may be called `messages`."""
    path = scope["path"]
    return path.endswith(_AFTER) and path.startswith(_BEFORE) and len(path) > len(_BEFORE) + len(_AFTER)


def topic_in(scope: HTTPScope) -> str:
    return scope["path"][len(_BEFORE) : -len(_AFTER)]


def shown(message: Message, partition: int) -> TopicMessage:
    value = value_of(message.body)
    return TopicMessage(message.offset, message.at, message.id, message.key, message.headers, value, partition)


def value_of(body: bytes) -> Any:
    """As it goes into an answer: JSON stays as it was written."""
    return msgspec.Raw(body) if is_json(body) else body.decode("utf-8", "replace")


def is_json(body: bytes | msgspec.Raw) -> bool:
    try:
        _decode(body)
    except _NOT_JSON:
        return False
    return True


def refuse_large(body: msgspec.Raw | bytes, largest: int) -> None:
    if len(body) > largest:
        raise TooLarge(f"a message has at most {largest} bytes, not {len(body)}")


def post_of(event: msgspec.Raw | bytes, largest: int) -> Post:
    """A CloudEvent as a message: its data is the body."""
    try:
        given = {name: _attribute_of(name, raw) for name, raw in _event(event).items()}
    except _NOT_JSON as error:
        raise BadInput(
            f"this is no CloudEvent: {error}", hint="a JSON object with specversion, id, source, type"
        ) from error
    if given.get("specversion") != "1.0":
        raise BadInput("only CloudEvents of specversion '1.0' are understood")
    for name in _NEEDED:
        if not isinstance(given.get(name), str) or not given[name]:
            raise BadInput(f"the attribute {name!r} of a CloudEvent is a text that is not empty")
    body = _data(given, largest)
    return Post(body, _attribute("partitionkey", given.get("partitionkey", "")), _headers(given))


def _attribute_of(name: str, raw: msgspec.Raw) -> Any:
    """Of a CloudEvent; nothing large is decoded but a text."""
    if name == "data":
        return raw
    if len(raw) > _LONGEST and not bytes(raw).startswith(b'"'):
        raise BadInput(f"the attribute {name[:50]!r} of a CloudEvent must be a short text, a number or a boolean")
    return _decode(raw)


def _headers(given: Mapping[str, Any]) -> dict[str, str]:
    plain = {name: value for name, value in given.items() if name not in ("data", "data_base64") and value is not None}
    return {f"ce-{name}": _attribute(name, value) for name, value in plain.items()}


def _attribute(name: str, value: Any) -> str:
    if not (name.isascii() and name.isalnum() and name.islower() and len(name) <= 50):
        raise BadInput(f"{name[:50]!r} is no name of a CloudEvent's attribute", hint="lower-case letters and digits")
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str() if len(value) <= 8192 and "\0" not in value:
            return value
    raise BadInput(f"the attribute {name!r} of a CloudEvent must be a short text, a number or a boolean")


def _data(given: Mapping[str, Any], largest: int) -> bytes:
    if "data" in given and "data_base64" in given:
        raise BadInput("a CloudEvent has `data` or `data_base64`, not both")
    if "data_base64" in given:
        try:
            return base64.b64decode(given["data_base64"], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise BadInput("`data_base64` of this CloudEvent is no base64") from error
    if "data" not in given:
        return b""
    data = bytes(given["data"])
    refuse_large(data, 6 * largest + 2 if data[:1] == b'"' else largest)  # a text may have its letters escaped
    if not is_json(data):
        raise BadInput("`data` of this CloudEvent is no valid JSON")
    value = _decode(data) if data[:1] == b'"' else None
    return value.encode() if isinstance(value, str) and not _speaks_json(given.get("datacontenttype")) else data


def _speaks_json(media: Any) -> bool:
    plain = str(media or "application/json").partition(";")[0].strip().lower()
    return plain.endswith(("/json", "+json"))


def event_of(topic: str, partition: int, message: Message) -> dict[str, Any]:
    """A message as a CloudEvent; one that came as another is given its place as id, and its topic as type."""
    given = {name[3:]: value for name, value in message.headers.items() if name.startswith("ce-")}
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": message.id or f"{topic}/{partition}/{message.offset}",
        "source": f"/api/v1/topics/{topic}",
        "type": topic,
        "time": datetime.fromtimestamp(message.at, UTC).isoformat().replace("+00:00", "Z"),
        "sequence": str(message.offset),
    }
    if message.key:
        event["partitionkey"] = message.key
    event |= given
    return event | _payload(message.body, given.get("datacontenttype"))


def _payload(body: bytes, media: str | None) -> dict[str, Any]:
    if not body:
        return {}
    if _speaks_json(media) and is_json(body):
        return {"datacontenttype": media or "application/json", "data": msgspec.Raw(body)}
    try:
        return {"datacontenttype": media or "text/plain", "data": body.decode()}
    except UnicodeDecodeError:
        return {"datacontenttype": media or "application/octet-stream", "data_base64": base64.b64encode(body).decode()}


MOST_MESSAGES = 10_000

_Text = Annotated[str, msgspec.Meta(max_length=1000, pattern=r"^[^\x00]*\Z")]
Key = Annotated[_Text, msgspec.Meta(description="messages with the same key stay in order")]
Headers = Annotated[dict[_Text, Annotated[str, msgspec.Meta(max_length=8192)]], msgspec.Meta(max_length=100)]


class NewMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    body: msgspec.Raw
    key: Key = ""
    headers: Headers = {}
    partition: Natural | None = None


class Publication(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Several messages, or the fields of one; with a producer, its messages are counted by `sequence`."""

    messages: Annotated[list[NewMessage], msgspec.Meta(min_length=1, max_length=MOST_MESSAGES)] | None = None
    body: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    key: Key = ""
    headers: Headers = {}
    partition: Natural | None = None
    producer: Annotated[str, msgspec.Meta(max_length=200, pattern=r"^[^\x00]*\Z")] = ""
    sequence: Natural = 0

    def posts(self, largest: int) -> list[Post]:
        """TooLarge when a body is larger than `largest`: it is not even looked at whether that is JSON."""
        if self.messages is None:
            if not len(self.body):
                raise BadInput("there is no message in this", hint='send {"body": …} or {"messages": [{"body": …}]}')
            return [Post(_json(self.body, largest), self.key, self.headers, self.partition)]
        if len(self.body) or self.key or self.headers or self.partition is not None:
            raise BadInput("this is one message and several", hint="give `messages`, or the fields of one message")
        return [Post(_json(one.body, largest), one.key, one.headers, one.partition) for one in self.messages]


class _Query(msgspec.Struct, forbid_unknown_fields=True):
    key: Key = ""
    partition: Natural | None = None


_publication = msgspec.json.Decoder(Publication).decode
_MESSAGES = Pieces("messages", NewMessage, MOST_MESSAGES, largest=sys.maxsize, containers=sys.maxsize, strict=True)
_events = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def body_limit(settings: Settings) -> int:
    """Room for a batch, and for one message of any size with all its characters escaped."""
    return 16_000_000 + 6 * settings.message_limit


class PublishDoor:
    def __init__(self, topics: Topics, settings: Settings) -> None:
        self._topics = topics
        self._limit, self._message_limit = body_limit(settings), settings.message_limit

    async def __call__(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        caller: Caller = scope["user"]
        caller.need("write")  # before anybody's megabytes are taken in
        body = await read_body(receive, self._limit)
        media = _media(scope)
        producer, sequence = "", 0
        posts: Sequence[Post]
        if media == "application/json":
            given, posts = await aside(len(body), self._published, body)
            producer, sequence = given.producer, given.sequence
        elif media == EVENT:
            posts = [await aside(len(body), post_of, body, self._message_limit)]
        elif media == EVENTS:
            posts = await aside(len(body), self._batch, body)
        else:
            posts = [_plain(scope, media, body)]
        posted = await self._topics.publish(caller, topic_in(scope), posts, producer=producer, sequence=sequence)
        await respond(send, 201, _encode(PostedAnswer(posted)))

    def _published(self, body: bytes) -> tuple[Publication, Sequence[Post]]:
        given = parsed(body)
        return given, given.posts(self._message_limit)

    def _batch(self, body: bytes) -> Sequence[Post]:
        try:
            refuse_many(body, MOST_MESSAGES, "the batch")
            events = _events(body)
        except NOT_DECODED as error:
            raise BadInput(f"the body is not a valid list of CloudEvents: {error}") from error
        if not 1 <= len(events) <= MOST_MESSAGES:
            raise BadInput(f"a batch has 1 to {MOST_MESSAGES} messages, not {len(events)}")
        return [post_of(event, self._message_limit) for event in events]


def parsed(body: bytes) -> Publication:
    try:
        return _publication(body) if len(body) <= SMALL else in_pieces(body, Publication, _MESSAGES)
    except NOT_DECODED as error:
        raise BadInput(
            f"this cannot be published: {error}",
            hint="send JSON, or any other bytes with a Content-Type of their own",
        ) from error


async def read_body(receive: Receive, limit: int) -> bytes:
    chunks: list[bytes] = []
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise BadInput("the client went away")
        chunks.append(message["body"])
        more = message["more_body"]
        limit -= len(chunks[-1])
        if limit < 0:
            raise TooLarge("this request is too large", hint="publish in smaller batches")
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _media(scope: HTTPScope) -> str:
    """Without a content-type: JSON, as it is from everybody who does not care."""
    found = next((value for name, value in scope["headers"] if name == b"content-type"), b"application/json")
    return found.partition(b";")[0].strip().lower().decode("latin-1")


def _json(raw: msgspec.Raw, largest: int) -> bytes:
    refuse_large(raw, largest)
    if not is_json(raw):
        raise BadInput("a body of a message is no valid JSON")
    return bytes(raw)


def _plain(scope: HTTPScope, media: str, body: bytes) -> Post:
    """The bytes as they are. A CloudEvent in binary mode is recognised by its headers."""
    given = query_of(scope, _Query)
    headers = {
        name.decode("latin-1"): value.decode("utf-8", "replace")
        for name, value in scope["headers"]
        if name.startswith(b"ce-")
    }
    if headers:
        headers["ce-datacontenttype"] = media
    return Post(body, given.key, headers, given.partition)


# Reading messages, past Litestar like publishing: what is stored as JSON goes into the answer as it is.

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


_reading_encode = msgspec.json.Encoder().encode


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
            await respond(send, 200, _reading_encode(events), EVENTS)
        else:
            messages = [shown(message, asked.partition) for message in found]
            await respond(send, 200, _reading_encode(Messages(messages, first, next)))

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


# A topic as a stream of server-sent events: `id` is the offset, `data` the message.

#: proxies and clients give up on a connection on which nothing moves
HEARTBEAT_SECONDS = 15.0
#: messages taken at a time; a client that reads slowly holds no more than these in memory
_AT_ONCE = 32
_topics_follow_encode = msgspec.json.Encoder().encode
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
    return b"".join(told + [_topics_follow_event(message, partition) for message in found])


def _topics_follow_event(message: Message, partition: int) -> bytes:
    data = _topics_follow_encode(shown(message, partition)).translate(_LINE_ENDS)
    return b"id: %d\ndata: %b\n\n" % (message.offset, data)


def _trimmed(first: int) -> bytes:
    """The follower was below the edge: what lay between is gone."""
    return b'event: trimmed\ndata: {"first":%d}\n\n' % first
