"""What a worker and its coordinator say about a copy of a mirror."""

import msgspec

from skep.model.source import Held


class CopyWanted(msgspec.Struct, frozen=True, tag=True):
    """From where can a source be copied? Its holder may ask, and who is to have a replica."""

    source: str
    #: False: only what the source is
    open: bool = True


class CopyFrom(msgspec.Struct, frozen=True, tag=True):
    held: Held
    #: where whoever has the source can be met; no ticket: nobody can, ask the upstream
    address: str = ""
    ticket: str = ""


class Copied(msgspec.Struct, frozen=True, tag=True):
    """The replica is complete: the worker could hold the source from now on."""

    source: str


CopyRequest = CopyWanted | Copied
