"""Topics and groups of readers over HTTP. `skep.client.producer` and `skep.client.consumer` are made of these."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec

from skep.base.answers import Page
from skep.base.errors import BadInput, Unavailable
from skep.client.transport import API, Noun, Transport, follow, pages
from skep.topics.api import (
    Commit,
    Lag,
    LagAnswer,
    Membership,
    Messages,
    Place,
    PlacesAnswer,
    Posted,
    PostedAnswer,
    Standing,
    Topic,
    TopicMessage,
    TopicView,
)

#: a followed topic on which nothing happens says so more often than this
_SILENCE = 60.0
_BYTES = (bytes, bytearray, memoryview)


class Outgoing(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message to be published: any JSON value, or text."""

    body: Any
    key: str = ""
    headers: Mapping[str, str] = {}
    partition: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.body, _BYTES):
            raise BadInput("a message is text or a JSON value, not bytes", hint="decode it, or encode it as base64")


class Topics(Noun):
    at = f"{API}/topics"

    def create(
        self, name: str, *, partitions: int = 1, retain_seconds: float | None = None, retain_bytes: int | None = None
    ) -> Topic:
        body = _given(name=name, partitions=partitions, retain_seconds=retain_seconds, retain_bytes=retain_bytes)
        return self._transport.call("POST", self.at, Topic, body=body)

    def update(
        self,
        topic: str,
        *,
        retain_seconds: float | msgspec.UnsetType | None = msgspec.UNSET,
        retain_bytes: int | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> Topic:
        """What is kept from now on; None keeps for ever, what is left out stays as it is."""
        body = _given(retain_seconds=retain_seconds, retain_bytes=retain_bytes)
        return self._transport.call("PATCH", _path(topic), Topic, body=body)

    def list(self, *, limit: int = 100) -> Iterator[Topic]:
        return pages(self._transport, self.at, Page[Topic], limit)

    def show(self, topic: str) -> TopicView:
        return self._transport.call("GET", _path(topic), TopicView)

    def publish(
        self,
        topic: str,
        body: object,
        *,
        key: str = "",
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
        producer: str = "",
        sequence: int = 0,
    ) -> Posted:
        """One message; stored when this returns."""
        message = Outgoing(body, key, headers or {}, partition)
        return self.publish_batch(topic, [message], producer=producer, sequence=sequence)[0]

    def publish_batch(
        self, topic: str, messages: Sequence[Outgoing], *, producer: str = "", sequence: int = 0
    ) -> Sequence[Posted]:
        """With a `producer`, repeating the batch with the same `sequence` stores it once; the next batch's is higher
        by the number of messages."""
        body: dict[str, Any] = {"messages": messages}
        if producer:
            body |= {"producer": producer, "sequence": sequence}
        return self._transport.call(
            "POST", messages_path(topic), PostedAnswer, body=body, repeatable=bool(producer)
        ).posted

    def places(self, topic: str, start: str = "beginning") -> Sequence[Place]:
        """The offset of `start` in each partition: `beginning`, `end`, `offset:N` or `time:SECONDS`."""
        query = {"start": start}
        return self._transport.call("GET", _path(topic) + "/places", PlacesAnswer, query=query).places

    def read(self, topic: str, offset: int = 0, *, partition: int = 0, max: int = 100, wait: float = 0.0) -> Messages:
        """From `offset` on. At the end, up to `wait` seconds for something new."""
        query = {"offset": offset, "partition": partition, "max": max, "wait": wait}
        return self._transport.call("GET", messages_path(topic), Messages, query=query, timeout=wait + 30)

    def follow(self, topic: str, offset: int = 0, *, partition: int = 0) -> Iterator[TopicMessage]:
        """What there is from `offset` on and then what comes, for ever. Once it has begun it outlives the server's
        restarts."""
        return follow(partial(self._events, topic, offset, partition), lambda message: str(message.offset))

    def _events(self, topic: str, offset: int, partition: int, last: str) -> Iterator[TopicMessage | None]:
        """None for every sign of life that is no message."""
        query = {"offset": offset, "partition": partition}
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
        lines = self._transport.lines(_path(topic) + "/follow", query=query, headers=headers, timeout=_SILENCE)
        with closing(lines):
            named = False
            for line in lines:
                # an event with a name is no message: it tells of an edge that was trimmed
                named = line.startswith("event:") or (named and line != "")
                found = line.startswith("data:") and not named
                yield self._transport.decoded(line[5:].encode(), TopicMessage) if found else None
        raise Unavailable(f"the server ended the stream of {topic!r}")

    def trim(self, topic: str, before: int, *, partition: int = 0) -> Standing:
        """Forgets the messages below the offset `before`."""
        body = {"partition": partition, "before": before}
        return self._transport.call("POST", _path(topic) + "/trim", Standing, body=body)

    def group(self, topic: str, name: str) -> "Group":
        return Group(self._transport, topic, name)


class Group:
    """Readers that share the partitions of a topic."""

    def __init__(self, transport: Transport, topic: str, name: str) -> None:
        self._transport = transport
        self._path = f"{_path(topic)}/groups/{quote(name, safe='')}"

    def join(self, member: str = "", *, start: str = "beginning") -> Membership:
        """Become a member or stay one; `start` is where a group that is new begins."""
        body = {"member": member, "start": start}
        return self._transport.call("POST", self._path + "/join", Membership, body=body, repeatable=bool(member))

    def commit(self, member: str, commits: Sequence[Commit]) -> None:
        body = {"member": member, "commits": commits}
        once = any(one.give_back for one in commits)
        self._transport.call("POST", self._path + "/commit", type(None), body=body, repeatable=not once)

    def leave(self, member: str) -> None:
        self._transport.call("POST", self._path + "/leave", type(None), body={"member": member}, repeatable=True)

    def seek(self, to: str, *, partition: int | None = None) -> list[Lag]:
        """`beginning`, `end`, `offset:N` or `time:SECONDS`, for all partitions or one."""
        body = {"to": to} | ({} if partition is None else {"partition": partition})
        return self._transport.call("POST", self._path + "/seek", list[Lag], body=body)

    def lag(self) -> list[Lag]:
        return self._transport.call("GET", self._path + "/lag", LagAnswer).partitions


def messages_path(topic: str) -> str:
    return _path(topic) + "/messages"


def _path(topic: str) -> str:
    return f"{API}/topics/{quote(topic, safe='')}"


def _given(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not msgspec.UNSET}
