"""What a worker that harvests a Member Node asks of its coordinator, and what it is answered."""

from typing import Literal

import msgspec

from skep.dataone.api import Limits
from skep.dataone.types import Checksum, FormatType, Node, ObjectInfo, SystemMetadata


class HarvestAsk(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    source: str
    epoch: int


class PlanHarvest(HarvestAsk, frozen=True):
    """What is to be done at this node? `asked`: somebody wants it looked at now."""

    asked: bool = False


class MeetNode(HarvestAsk, frozen=True, kw_only=True):
    """What the node says of itself, and by how many milliseconds its clock is ahead."""

    node: Node
    skew: int


class Listed(HarvestAsk, frozen=True, kw_only=True):
    """A page of what a node has."""

    entries: tuple[ObjectInfo, ...]
    #: milliseconds: everything before is listed with this page
    place: int | None = None
    #: of a pass over everything, that finds what has vanished
    full: bool = False
    #: the last page of this pass
    last: bool = False
    #: `Harvest.passing`; None: of whoever does not know it yet
    passing: int | None = None
    skew: int = 0
    note: str = ""


class TakeObjects(HarvestAsk, frozen=True, kw_only=True):
    ticket: str
    most: int


class Brought(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What became of one object. Without `meta`, `trouble` says why."""

    pid: str
    meta: SystemMetadata | None = None
    #: the node's checksum in the algorithm that we know the object by
    proof: Checksum | None = None
    #: where its bytes begin in the pack; None: they were not wanted
    start: int | None = None
    #: with `trouble`: how many wrong bytes are there
    size: int = 0
    trouble: str = ""
    #: how a failure is treated: tried again by and by, also because we may not have it; a few times; never; or the node
    #: says that it has it not
    kind: Literal["", "later", "denied", "soon", "never", "absent"] = ""


class Ran(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of an errand."""

    id: str
    status: int
    body: bytes = b""


class Bring(HarvestAsk, frozen=True, kw_only=True):
    ticket: str
    objects: tuple[Brought, ...] = ()
    ran: tuple[Ran, ...] = ()
    #: file with their bytes, one after the other, in a folder of the worker's own
    pack: str = ""


class Harvest(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """What is to be done: nothing, unless the node is not known, or there is something to list or to take."""

    known: bool = False
    list: bool = False
    #: due in the queue
    due: int = 0
    #: milliseconds; where listing begins
    place: int = 0
    #: where the pass over everything goes on; None: there is none
    full: int | None = None
    #: the number of that pass, or of the one before: what is listed from now on is there in it
    passing: int | None = None
    version: Literal["v1", "v2"] = "v2"
    limits: Limits = Limits()
    #: listing begins again below the first and pauses above the second
    queue: tuple[int, int] = (1_000, 4_000)
    #: larger data is not fetched
    data_bytes: int = 0
    #: types of formats that the list a worker has been shipped with does not say
    formats: dict[str, FormatType] = {}
    #: it is a Coordinating Node, and this is its name: changes are listed as it made them
    sibling: str = ""


class Queued(msgspec.Struct, frozen=True, tag=True):
    """How many wait now. `missing`: so many are no longer listed that a person has to agree."""

    due: int
    missing: str = ""
    #: as they are by now
    limits: Limits = Limits()


class Wanted(msgspec.Struct, frozen=True, omit_defaults=True):
    pid: str
    #: the checksum that we know it by
    known: Checksum | None = None
    #: its bytes are here
    have: bool = False


class Errand(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to be made at a node for us: with `parts` it is posted as a form."""

    id: str
    path: str
    #: name -> value; what is XML is a file
    parts: dict[str, bytes] = {}
    #: an algorithm: what is answered is read, up to `most` bytes, and its checksum is the answer
    hash: str = ""
    most: int = 0


class Objects(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    wanted: tuple[Wanted, ...] = ()
    errands: tuple[Errand, ...] = ()
    limits: Limits = Limits()
    due: int = 0


HarvestRequest = PlanHarvest | MeetNode | Listed | TakeObjects | Bring
HarvestAnswer = Harvest | Queued | Objects
