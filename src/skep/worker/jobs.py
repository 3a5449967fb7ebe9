"""What passes between a worker and the processes that build its indexes: frames of a length and a msgpack message."""

import struct
from typing import BinaryIO

import msgspec

from skep.model.search import Delta

_LENGTH = struct.Struct(">I")
LENGTH = _LENGTH.size


class Job(msgspec.Struct, frozen=True):
    source: str
    number: int
    #: the mirror
    folder: str
    base: str | None
    #: larger files are found by name only
    max_file: int
    #: where shards go; made by the job
    out: str


class Counted(msgspec.Struct, frozen=True, tag=True):
    done: int
    total: int


class Finished(msgspec.Struct, frozen=True, tag=True):
    #: None: there is nothing to index
    delta: Delta | None


class Broke(msgspec.Struct, frozen=True, tag=True):
    reason: str


Answer = Counted | Finished | Broke
to_job = msgspec.msgpack.Decoder(Job).decode
to_answer = msgspec.msgpack.Decoder[Answer](Answer).decode


def frame(message: msgspec.Struct) -> bytes:
    body = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(body)) + body


def size_of(head: bytes) -> int:
    return int(_LENGTH.unpack(head)[0])


def read_frame(file: BinaryIO) -> bytes | None:
    """None at the end."""
    head = file.read(LENGTH)
    return file.read(size_of(head)) if len(head) == LENGTH else None
