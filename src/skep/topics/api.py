"""Topics hold messages in partitions; nothing is removed by reading. Readers keep a place; groups share partitions."""

from typing import Annotated, Any, Literal

import msgspec

#: what every engine, and every reader of JSON, can hold
Natural = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
#: how the topic queue of old says that a consumer has read everything: its status is that of any wrong request
NOTHING_LEFT = "No messages left to read."


class Part(msgspec.Struct, frozen=True):
    """One partition of a topic."""

    topic: str
    partition: int = 0


class Draft(msgspec.Struct, frozen=True):
    """A message before it has an offset."""

    body: bytes
    #: the producer's id of this message, to tell repeats
    id: str = ""
    key: str = ""
    headers: dict[str, str] = {}


class Message(msgspec.Struct, frozen=True, gc=False):
    offset: int
    at: float
    id: str
    key: str
    headers: dict[str, str]
    body: bytes


class Topic(msgspec.Struct, frozen=True):
    name: str
    #: "skep" tells on it and nobody else may
    owner: Literal["user", "skep"]
    partitions: int
    created_at: float
    #: None: kept for ever
    retain_seconds: float | None = None
    retain_bytes: int | None = None


class Standing(msgspec.Struct, frozen=True):
    """How far a partition reaches: first kept offset, the next to be given, and bytes between."""

    partition: int
    first: int
    next: int
    bytes: int


class Post(msgspec.Struct, frozen=True):
    """What somebody publishes; without a partition its key decides, without a key they take turns."""

    body: bytes
    key: str = ""
    headers: dict[str, str] = {}
    partition: int | None = None


class Posted(msgspec.Struct, frozen=True):
    partition: int
    offset: int


class Place(msgspec.Struct, frozen=True):
    """Where a reader goes on in a partition."""

    partition: int
    offset: int


class Lease(msgspec.Struct, frozen=True):
    """A partition that a member of a group reads, alone, while it keeps coming back."""

    partition: int
    #: rises when the partition gets another reader; a commit with an older one is refused
    generation: int
    #: where the group goes on, as committed
    offset: int


class Membership(msgspec.Struct, frozen=True):
    member: str
    leases: list[Lease]
    #: partitions another member waits for: finish, commit, give back
    give_back: list[int]
    #: seconds after which a member that does not come back is out
    expires_in: float


class Commit(msgspec.Struct, frozen=True):
    partition: Natural
    generation: Natural
    #: the next offset to read
    offset: Natural
    give_back: bool = False


class Lag(msgspec.Struct, frozen=True):
    partition: int
    offset: int
    end: int
    lag: int
    #: the member that reads it now
    member: str | None = None


class TopicMessage(msgspec.Struct, frozen=True, gc=False):
    offset: int
    at: float
    id: str
    key: str
    headers: dict[str, str]
    #: the JSON value in it, or its text when it is none
    body: Any
    partition: int = 0


class Messages(msgspec.Struct, frozen=True):
    messages: list[TopicMessage]
    #: the oldest offset still kept; whoever asked for one below it has missed what was trimmed
    first: int
    #: the offset that the next message will get
    next: int


class TopicView(msgspec.Struct, frozen=True):
    topic: Topic
    partitions: list[Standing]
    #: names of the groups that read it
    groups: list[str]


class PostedAnswer(msgspec.Struct, frozen=True):
    #: in the order the messages were given
    posted: list[Posted]


class PlacesAnswer(msgspec.Struct, frozen=True):
    places: list[Place]


class LagAnswer(msgspec.Struct, frozen=True):
    partitions: list[Lag]
