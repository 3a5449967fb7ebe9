"""What a worker and its coordinator say about a copy of a mirror."""

import msgspec

from skep.model.source import Held


class CopyWanted(msgspec.Struct, frozen=True, tag=True):
    """A worker was given a task to copy a source, and asks from where."""

    source: str
    task: str
    attempt: int
    #: False: only what the source is
    open: bool = True


class CopyFrom(msgspec.Struct, frozen=True, tag=True):
    held: Held
    #: where whoever has the source can be met; no ticket: nobody can, ask the upstream
    address: str = ""
    ticket: str = ""


class Copied(msgspec.Struct, frozen=True, tag=True):
    """The copy is made, of the source as it was in this epoch: the worker can hold it from now on."""

    source: str
    epoch: int
    task: str
    attempt: int


class Kept(msgspec.Struct, frozen=True, tag=True):
    #: False: the copy is not wanted any more
    done: bool


CopyRequest = CopyWanted | Copied
CopyAnswer = CopyFrom | Kept
