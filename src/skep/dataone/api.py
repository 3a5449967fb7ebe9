"""DataONE as operators see it."""

import msgspec


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a node can bear; kept with it, and obeyed at once when they change."""

    connections: int = 5
    #: requests per second; 0: as many as there are
    rate: float = 0.0
    #: bytes of answers under way
    bytes: int = 64 << 20


class NodeEdit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is not given stays."""

    paused: bool | None = None
    connections: int | None = None
    rate: float | None = None
    bytes: int | None = None


class MemberNode(msgspec.Struct, frozen=True):
    id: str
    name: str
    url: str
    #: of the source; None: it waits for approval
    source: str | None
    registered: bool
    paused: bool
    limits: Limits
    #: seconds since 1970, of the newest object that was listed
    newest: float
    listed_at: float
    full_at: float
    #: seconds that its clock is ahead of ours
    skew: float
    #: what is odd about it
    note: str
    #: when its schedule has it looked at next; None: as often as it changes
    next_at: float | None
    #: objects by what became of them: held, queued, parked, missing, gone
    objects: dict[str, int]
    #: everything that it dated before is listed; in seconds of its own clock
    place: float = 0.0
    #: the same of the pass over everything that is under way; None: there is none
    full_place: float | None = None
    #: how often each verdict was given; where one node is shown
    verdicts: dict[str, int] = {}


class Preview(msgspec.Struct, frozen=True):
    """What a harvest would do; nothing was done."""

    #: objects that the node lists, and those of them that were compared
    total: int
    listed: int
    #: new, changed, unchanged
    counts: dict[str, int]
    #: the first that would be brought
    named: list[str]


class MemberNodes(msgspec.Struct, frozen=True):
    nodes: list[MemberNode]


class Chapter(msgspec.Struct, frozen=True):
    """One thing that was decided of an object, how often and when."""

    node: str
    verdict: str
    reason: str
    first_at: float
    at: float
    times: int


class Standing(msgspec.Struct, frozen=True):
    """What one node's offer of an object is at."""

    node: str
    state: str
    reason: str
    tries: int
    #: when it is tried again, if it is
    due: float


class Aside(msgspec.Struct, frozen=True):
    """Bytes that were not as promised: `size` of them from byte `start` of a blob."""

    node: str
    blob: str
    start: int
    size: int
    reason: str
    at: float


class Story(msgspec.Struct, frozen=True):
    """Why an object is, or is not, there."""

    pid: str
    #: stored, deleted or unknown; series: its head is not for the caller
    state: str
    format: str = ""
    #: its bytes are here
    kept: bool = False
    versions: list[str] = []
    #: node -> status
    replicas: dict[str, str] = {}
    offers: list[Standing] = []
    chapters: list[Chapter] = []
    #: what a node gave instead, until the right bytes come
    aside: list[Aside] = []
    #: where a series was asked for: its name, and of its members those that the caller may see, oldest first. The story
    #: is that of its head then
    series: str = ""
    members: list[str] = []


class Indexing(msgspec.Struct, frozen=True):
    """How the index of records stands."""

    waiting: int
    #: since when the oldest waits
    oldest: float | None
    #: bulk-load mode: nothing is indexed until it is over
    bulk: bool


class IndexEdit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    bulk: bool
