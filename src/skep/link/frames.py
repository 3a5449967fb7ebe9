"""Messages <-> bytes on the wire.

A frame is a msgpack list of messages. It travels as one or more parts of at most FRAME_LIMIT bytes: a mark that says
whether more parts follow, then the bytes. So one message may be larger than a part (a repository has 100,000 refs) and
still none delays the others for long; then it is alone in its frame.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

from skep.errors import BadInput, TooLarge
from skep.link.messages import FRAME_LIMIT

T = TypeVar("T")

#: bytes one frame may have over all its parts
JOINED_LIMIT = 64 << 20
#: bytes a stranger may send before it has shown its token
HELLO_LIMIT = 64 << 10

_MORE, _LAST = b"\x00", b"\x01"
_ROOM = FRAME_LIMIT - len(_LAST)
_HEAD = 5
_ALONE = struct.pack(">BI", 0xDD, 1)
_encode = msgspec.msgpack.Encoder().encode


def pack(messages: Iterable[msgspec.Struct]) -> Iterator[bytes]:
    """As few parts as fit, in order."""
    bodies: list[bytes] = []
    size = _HEAD
    for message in messages:
        body = _encode(message)
        if bodies and size + len(body) > _ROOM:
            yield from _parts(bodies)
            bodies, size = [], _HEAD
        bodies.append(body)
        size += len(body)
    if bodies:
        yield from _parts(bodies)


def _parts(bodies: list[bytes]) -> Iterator[bytes]:
    frame = struct.pack(">BI", 0xDD, len(bodies)) + b"".join(bodies)
    if len(frame) > JOINED_LIMIT:
        raise TooLarge(f"a message of {len(frame)} bytes is more than the link carries ({JOINED_LIMIT})")
    last = (len(frame) - 1) // _ROOM * _ROOM
    for start in range(0, last, _ROOM):
        yield _MORE + frame[start : start + _ROOM]
    yield _LAST + frame[last:]


class Joiner(Generic[T]):
    """Puts parts together again and decodes them, within bounds."""

    def __init__(self, frame: type[list[T]], limit: int = JOINED_LIMIT) -> None:
        self._decode = msgspec.msgpack.Decoder(frame).decode
        self._parts: list[bytes] = []
        self._size = 0
        self.limit = limit

    def feed(self, part: bytes) -> list[T] | None:
        """The messages of the frame that this part completes; None while more parts follow."""
        self._size += len(part)
        if len(part) > FRAME_LIMIT or self._size > self.limit + FRAME_LIMIT:
            raise TooLarge(f"a frame of more than {min(self.limit, FRAME_LIMIT)} bytes", hint="split it into parts")
        if part[:1] not in (_MORE, _LAST):
            raise BadInput("this is no frame of the link", hint="is something else talking to this address?")
        self._parts.append(part[1:])
        if part[:1] == _MORE:
            return None
        frame, alone = b"".join(self._parts), len(self._parts) > 1
        self._parts, self._size = [], 0
        if len(frame) > self.limit:
            raise TooLarge(f"a frame of {len(frame)} bytes where {self.limit} are allowed")
        if alone and not frame.startswith(_ALONE):  # decoded, a million small ones would be many times as large
            raise TooLarge("a frame of several parts holds one message", hint="send the others in frames of their own")
        try:
            messages = self._decode(frame)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadInput(f"a frame of the link cannot be read: {error}") from error
        if not messages:
            raise BadInput("a frame of the link has at least one message")
        return messages
