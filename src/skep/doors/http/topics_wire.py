"""What messages look like outside: JSON, and CloudEvents 1.0 in and out.

A body is the JSON value that its bytes spell, else their text. CloudEvents' attributes travel as headers `ce-…`.
"""

import base64
import binascii
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from litestar.types import HTTPScope

from skep.errors import BadInput, TooLarge
from skep.model.topic import Message, Post, TopicMessage

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
