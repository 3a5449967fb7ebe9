"""Publishing, past Litestar: the busiest route of all. Bare ASGI; one pass over the body, one struct out of it."""

import sys
from collections.abc import Sequence
from typing import Annotated

import msgspec
from litestar.types import HTTPScope, Receive, Send

from skep.config import Settings
from skep.doors.http.bare import query_of, respond
from skep.doors.http.decoding import NOT_DECODED, SMALL, Pieces, aside, in_pieces, refuse_many
from skep.doors.http.topics_wire import EVENT, EVENTS, is_json, post_of, refuse_large, topic_in
from skep.errors import BadInput, TooLarge
from skep.model.caller import Caller
from skep.model.topic import Natural, Post, PostedAnswer
from skep.topics.service import Topics

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
