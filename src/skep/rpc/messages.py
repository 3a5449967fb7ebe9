"""The wire between roles: what a worker says (Up) and what a coordinator says (Down).

Frames are msgpack lists of these structs, carried by one gRPC stream. Unknown fields are ignored and new fields have
defaults, so that neighbours of different age understand each other; what they cannot ignore raises PROTOCOL.
"""

import asyncio
import struct
import typing
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, Literal, TypeVar

import grpc
import msgspec

from skep.analysis.model import Annotated, ReportRequest
from skep.base.errors import BadInput, SkepError, TooLarge, Unavailable, class_of
from skep.base.log_lines import Lines
from skep.dataone.rpc import HarvestAnswer, HarvestRequest
from skep.fleet.api import Offer
from skep.packages.api import PackageFrom, PackageWanted
from skep.results.api import Record
from skep.sources.model import CopyFrom, CopyRequest, Failure, Held, Key, Move, Progress
from skep.spaces.api import SpaceAnswer, SpaceRequest
from skep.storage.code_index.model import IndexAnswer, IndexRequest, Tip
from skep.tasks.model import Run, TaskAnswer, TaskHold, TaskRequest

#: raised when an old neighbour would misunderstand; both sides refuse another number with a clear message
PROTOCOL = 1
#: bytes of one frame
FRAME_LIMIT = 1 << 20
#: asks of one member under way at a time
ASKS_LIMIT = 4096
#: looks told with one beat
LOOKED_LIMIT = 5_000

AskBody = (
    SpaceRequest
    | IndexRequest
    | ReportRequest
    | TaskRequest
    | CopyRequest
    | Record
    | PackageWanted
    | HarvestRequest
    | Lines
)
AnswerBody = SpaceAnswer | IndexAnswer | Annotated | TaskAnswer | CopyFrom | PackageFrom | HarvestAnswer


class Up(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    pass


class Hello(Up, frozen=True):
    """The first frame of a stream."""

    protocol: int
    member: str
    token: str
    #: rises with every start of the process, by its clock: a newer boot of the same member ends the older
    boot: int
    roles: tuple[str, ...] = ("worker",)
    offer: Offer = Offer()
    #: tasks it is running: whatever else was placed there has to be placed again
    running: tuple[TaskHold, ...] = ()
    #: by its clock; 0: it does not say
    at: float = 0.0


class Looked(msgspec.Struct, frozen=True):
    """An upstream was asked and had nothing new. Not kept in the outbox: the next one says the same."""

    source: str
    epoch: int
    at: float
    next_poll: float


class Beat(Up, frozen=True):
    status: str
    load: float = 0.0
    looked: typing.Annotated[tuple[Looked, ...], msgspec.Meta(max_length=LOOKED_LIMIT)] = ()
    progress: dict[str, Progress] = {}
    #: why it can hold nothing at the moment; empty: it can
    ill: str = ""
    #: by its clock; 0: it does not say
    at: float = 0.0


class Done(Up, frozen=True):
    """The order is durable with the worker; it need not be repeated."""

    orders: tuple[int, ...]


class Outcome(Up, frozen=True):
    """Something that must not be lost: kept in the outbox as `n` until Ack or Refused."""

    n: int
    source: str
    epoch: int
    at: float
    next_poll: float
    body: "Fetched | Failed"


class Fetched(msgspec.Struct, frozen=True, tag=True):
    """A fetch brought the mirror to the upstream's state; `moves` may be empty after a fetch-now."""

    batch: str
    moves: tuple[Move, ...]
    #: the source's first successful fetch
    first: bool
    default_branch: str


class Failed(msgspec.Struct, frozen=True, tag=True):
    failure: Failure
    failures: int


class Ask(Up, frozen=True):
    """A request that waits for its Answer. After a disconnection it is asked again until one comes."""

    n: int
    body: AskBody
    #: the answer to an earlier sending may have been lost
    again: bool = False


class Forget(Up, frozen=True):
    """Nobody waits for the answer any more."""

    n: int


class Down(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    pass


class Welcome(Down, frozen=True):
    protocol: int
    beat_every: float


class Ack(Down, frozen=True):
    outcomes: tuple[int, ...]


class Refused(Down, frozen=True):
    """`n` is an outcome that will never be accepted (None: the stream itself)."""

    n: int | None
    code: str
    message: str
    hint: str = ""


class Declined(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The error that something ended with on the other side."""

    code: str
    message: str
    hint: str = ""

    @classmethod
    def of(cls, error: SkepError) -> "Declined":
        return cls(error.code, error.message, error.hint)

    def error(self) -> SkepError:
        return class_of(self.code)(self.message, hint=self.hint)


class Answer(Down, frozen=True):
    n: int
    body: AnswerBody | Declined


class Begin(Down, frozen=True):
    """Tasks placed on this worker. Repeated on every new stream until they are reported."""

    runs: tuple[Run, ...]


class Stop(Down, frozen=True):
    """Tasks that are no longer this worker's."""

    tasks: tuple[TaskHold, ...]


class Keys(Down, frozen=True):
    """All credentials a worker may show; sent when it comes and when they change, and never stored by it."""

    keys: tuple[Key, ...]


class Interest(Down, frozen=True):
    """Sources that people searched or cloned lately: worth an earlier look."""

    sources: tuple[str, ...]


class Time(Down, frozen=True):
    """The member's clock seems to be off; here is the coordinator's, when it heard what the member's said."""

    now: float
    said: float


class Share(Down, frozen=True):
    """What this worker may use of what upstream hosts permit, from where to where of 1, until it is told otherwise."""

    start: float
    end: float


class GitOf(msgspec.Struct, frozen=True, tag=True):
    """`git upload-pack` on the mirror of a source it holds."""

    source: str


class BlobOf(msgspec.Struct, frozen=True, tag=True):
    id: str


class FolderOf(msgspec.Struct, frozen=True, tag=True):
    """A folder of the worker's own, or one with a book or a pack: the kind says where it is, the id its name there.

    A book is named with the delta that it was made for: DELTA/BOOK.
    """

    kind: Literal["delta", "book", "pack"]
    id: str


class DeltaOf(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """What an index gains by going from `base`, made by `rules`, to where the mirror stands; built for who asks."""

    source: str
    base: tuple[Tip, ...] | None = None
    rules: str = ""
    #: of what the index holds at `base`; when the mirror holds something else there, the delta is of everything
    digest: str = ""


What = GitOf | BlobOf | FolderOf | DeltaOf


class Open(Down, frozen=True):
    """Dial `address` (empty: the coordinator), show the ticket, and give this. Not repeated: a ticket is soon void."""

    address: str
    ticket: str
    what: What


class Order(Down, frozen=True):
    """Numbered, pushed at once, repeated until Done; doing one twice is harmless."""

    order: int
    body: "Hold | Release | FetchNow"


class Hold(msgspec.Struct, frozen=True, tag=True):
    held: Held


class Release(msgspec.Struct, frozen=True, tag=True):
    """Stop polling and delete the mirror."""

    source: str


class FetchNow(msgspec.Struct, frozen=True, tag=True):
    source: str
    epoch: int


UpFrame = list[Hello | Beat | Done | Outcome | Ask | Forget]
DownFrame = list[Welcome | Ack | Refused | Order | Answer | Begin | Stop | Keys | Interest | Time | Share | Open]


# Messages <-> bytes on the wire.
#
# A frame is a msgpack list of messages. It travels as one or more parts of at most FRAME_LIMIT bytes: a mark that says
# whether more parts follow, then the bytes. So one message may be larger than a part (a repository has 100,000 refs)
# and
# still none delays the others for long; then it is alone in its frame.

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


# Messages over one gRPC stream, on either end.

#: what gRPC says, on either end, of a stream that is no more
BREAKS = (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError)


class Broken(Unavailable):
    """The stream has ended under whoever was reading from it or writing to it."""

    @classmethod
    def of(cls, what: str, error: Exception) -> "Broken":
        details = error.details() if isinstance(error, grpc.aio.AioRpcError) else ""
        return cls(f"{what} broke off: {details}" if details else f"{what} broke off")


_LINK = "the link"


class Wire:
    def __init__(self, stream: Any, joiner: Joiner[Any]) -> None:
        self._stream = stream
        self._joiner = joiner
        self._writing = asyncio.Lock()

    def limit(self, size: int) -> None:
        self._joiner.limit = size

    async def read(self) -> list[Any]:
        """The next frame; empty at the end of the stream."""
        while True:
            try:
                part = await self._stream.read()
            except BREAKS as error:
                raise Broken.of(_LINK, error) from None
            if part is grpc.aio.EOF:
                return []
            messages = self._joiner.feed(part)
            if messages is not None:
                return messages

    async def write(self, messages: Sequence[msgspec.Struct]) -> None:
        """Goes on when it is cancelled: gRPC takes nothing more, nor an end, while something is half written."""
        writing = asyncio.ensure_future(self._write(messages))
        writing.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await asyncio.shield(writing)
        except BREAKS as error:
            raise Broken.of(_LINK, error) from None

    async def _write(self, messages: Sequence[msgspec.Struct]) -> None:
        async with self._writing:
            for part in pack(messages):
                await self._stream.write(part)
