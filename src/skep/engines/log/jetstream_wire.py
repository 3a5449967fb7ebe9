"""How partitions, drafts and the server's answers look on NATS."""

import re
import string
from typing import NamedTuple
from urllib.parse import quote, unquote

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error

from skep.errors import BadInput
from skep.model.topic import Draft, Message, Part

#: what a client says when its connection is gone; RuntimeError: what uvloop calls a broken pipe
BROKEN = (Error, OSError, RuntimeError)
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,200}")
#: stays as it is in a header; all else is percent-encoded: headers lose spaces and line ends
_PLAIN = (string.punctuation + string.digits + string.ascii_letters).replace("%", "")
_ID, _MORE = "Nats-Msg-Id", "Skep"
_more = msgspec.json.Decoder(tuple[str, dict[str, str]])

#: payload and headers of a message
Packed = tuple[bytes, dict[str, str] | None]


class Names(NamedTuple):
    stream: str
    subject: str
    bell: str


def names(part: Part) -> Names:
    """A topic's dots become `~`, which no topic contains: a stream's name and a subject's token may not hold dots."""
    if not _TOPIC.fullmatch(part.topic) or part.partition < 0:
        raise BadInput(f"{part.topic[:60]!r} partition {part.partition} is no partition of a topic")
    token = f"{part.partition}_{part.topic.replace('.', '~')}"
    return Names(f"skep_{token}", f"skep.log.{token}", f"skep.bell.{token}")


def packed(draft: Draft) -> Packed:
    headers = {}
    try:
        if draft.id:
            headers[_ID] = quote(draft.id, safe=_PLAIN)
        if draft.key or draft.headers:
            # one header for all: the names of NATS' own are less free than ours
            headers[_MORE] = quote(msgspec.json.encode((draft.key, draft.headers)), safe=_PLAIN)
    except UnicodeEncodeError as error:
        raise BadInput("the id, key or headers of a message are not valid Unicode") from error
    return draft.body, headers or None


def size(message: Packed) -> int:
    """What the server counts against its largest payload."""
    body, headers = message
    lines = sum(len(name) + len(value) + 4 for name, value in headers.items()) + 12 if headers else 0
    return len(body) + lines


class Delivered(NamedTuple):
    """What the reply address of a delivered message tells."""

    sequence: int
    at: float
    pending: int


def delivered(reply: str) -> Delivered:
    # $JS.ACK.STREAM.CONSUMER.TIMES.SEQUENCE.COUNT.NANOSECONDS.PENDING; newer servers put domain and account after ACK
    words = reply.split(".")
    known = words[5:9] if len(words) == 9 else words[7:11]
    return Delivered(int(known[0]), int(known[2]) / 1e9, int(known[3]))


def unpacked(told: Delivered, msg: Msg) -> Message:
    headers = msg.headers or {}
    key, own = _more.decode(unquote(headers[_MORE])) if _MORE in headers else ("", {})
    return Message(told.sequence - 1, told.at, unquote(headers.get(_ID, "")), key, own, msg.data)


class Fault(msgspec.Struct, frozen=True):
    code: int = 0
    err_code: int = 0
    description: str = ""


class Answer(msgspec.Struct, frozen=True):
    """What the server says to a message it was given to store, or to a request without further answer."""

    seq: int = 0
    error: Fault | None = None


class StreamState(msgspec.Struct, frozen=True):
    first_seq: int = 0
    last_seq: int = 0
    bytes: int = 0


class StreamInfo(msgspec.Struct, frozen=True):
    state: StreamState


class ConsumerInfo(msgspec.Struct, frozen=True):
    name: str
