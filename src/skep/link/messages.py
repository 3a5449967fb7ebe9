"""The wire between roles: what a worker says (Up) and what a coordinator says (Down).

Frames are msgpack lists of these structs, carried by one gRPC stream. Unknown fields are ignored and new fields have
defaults, so that neighbours of different age understand each other; what they cannot ignore raises PROTOCOL.
"""

import typing
from typing import Literal

import msgspec

from skep.dataone.asks import HarvestAnswer, HarvestRequest
from skep.errors import SkepError, class_of
from skep.model.copying import CopyFrom, CopyRequest
from skep.model.credential import Key
from skep.model.log import Lines
from skep.model.member import Offer
from skep.model.package import PackageFrom, PackageWanted
from skep.model.report import Annotated, ReportRequest
from skep.model.result import Record
from skep.model.search import IndexAnswer, IndexRequest, Tip
from skep.model.source import Failure, Held, Move, Progress
from skep.model.space import SpaceAnswer, SpaceRequest
from skep.model.task import Run, TaskAnswer, TaskHold, TaskRequest

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
