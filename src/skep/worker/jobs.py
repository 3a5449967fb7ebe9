"""What passes between a worker and the processes that build its indexes: frames of a length and a msgpack message."""

import struct
from typing import BinaryIO

import msgspec

from skep.model.report import Report
from skep.model.search import BookInfo, Delta, Tip
from skep.sources.git.plan import Rules

_LENGTH = struct.Struct(">I")
LENGTH = _LENGTH.size


class Job(msgspec.Struct, frozen=True, tag=True):
    """Plan an index, and build it at once if it is small."""

    source: str
    number: int
    #: the mirror
    folder: str
    base: tuple[Tip, ...] | None
    #: of branches and tags besides the default branch
    branches: tuple[str, ...]
    rules: Rules
    #: where the plan and the shards go; made by the job
    out: str
    #: bytes of content one batch should have; a little more is built at once
    batch_bytes: int


class Batch(msgspec.Struct, frozen=True, tag=True):
    """Build one batch of what was planned in `out`."""

    out: str
    n: int


class Compare(msgspec.Struct, frozen=True, tag=True):
    """What should the index of a mirror hold at these tips?"""

    folder: str
    tips: tuple[Tip, ...]
    ignore: tuple[str, ...]


class Analyse(msgspec.Struct, frozen=True, tag=True):
    """Find out about the files of one batch of a plan. Without a batch: about all files at its tips, and fold them."""

    out: str
    #: the library of the worker: what is in it is known
    library: str
    n: int | None = None
    #: what is known is put into new books as well
    whole: bool = False


class Counted(msgspec.Struct, frozen=True, tag=True):
    done: int
    total: int


class Finished(msgspec.Struct, frozen=True, tag=True):
    #: None: there is nothing to index
    delta: Delta | None


class Planned(msgspec.Struct, frozen=True, tag=True):
    batches: int


class Indexed(msgspec.Struct, frozen=True, tag=True):
    """A batch is built."""

    documents: int
    bytes: int


class Compared(msgspec.Struct, frozen=True, tag=True):
    digest: str


class Analysed(msgspec.Struct, frozen=True, tag=True):
    #: files and bytes that were not known before
    files: int
    bytes: int
    #: for the aggregator
    books: tuple[BookInfo, ...]
    #: some blobs that it should know then
    sample: tuple[str, ...]
    report: Report | None = None


class Broke(msgspec.Struct, frozen=True, tag=True):
    reason: str


Built = Finished | Planned | Indexed | Compared | Analysed
Answer = Counted | Built | Broke
Work = Job | Batch | Compare | Analyse
to_job = msgspec.msgpack.Decoder[Work](Work).decode
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
