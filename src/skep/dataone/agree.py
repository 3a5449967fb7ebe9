"""What two Coordinating Nodes know of one object becomes one (pure): the same on both sides, whoever hears first.

A node's own date decides between two states of system metadata, the newer word on a copy between two of those, and what
can happen only once has happened. So it does not matter how often, or in which order, anything is told.
"""

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from skep.dataone.decide import Circumstances, Decision, changes, other, words
from skep.dataone.types import Replica, SystemMetadata

#: empty -> value, and never back
_STICKS = ("obsoletes", "obsoleted_by", "archived", "series_id")


def agree(offered: SystemMetadata, around: Circumstances) -> Decision:
    """Who may write an object was decided where it was taken from its node; here nothing is lost of either side."""
    known = around.known
    if known is None:
        return Decision("new", f"{around.node} knows it", msgspec.structs.replace(offered, replica=()), offered.replica)
    if refused := other(offered, around):
        return refused
    copies = taken(around.copies, offered.replica)
    if around.deleted and not _lives({**around.copies, **{one.replica_member_node: one for one in copies}}, around):
        return Decision("unchanged", "nobody has it any more")
    meta = merged(known, offered)
    serial = max((known.serial_version or 0) + 1, offered.serial_version or 0)
    meta = msgspec.structs.replace(meta, serial_version=serial, replica=())
    if around.deleted:
        return Decision("new", f"{around.node} knows it again", meta, copies)
    if changed := changes(meta, known):
        return Decision("update", f"changed: {words(changed)}", meta, copies)
    if copies:
        return Decision("replica", f"copies at {', '.join(one.replica_member_node for one in copies)}", None, copies)
    return Decision("unchanged", "nothing differs")


def _lives(copies: Mapping[str, Replica], around: Circumstances) -> bool:
    """What Coordinating Nodes keep is no reason to be."""
    return any(one.replication_status == "completed" and urn not in around.coordinators for urn, one in copies.items())


def merged(one: SystemMetadata, two: SystemMetadata) -> SystemMetadata:
    older, newer = sorted((one, two), key=_age)
    kept = {name: getattr(newer, name) or getattr(older, name) for name in _STICKS}
    if _age(older) == _age(newer):
        # neither is the newer: each side would take what the other had, and the other that
        kept |= {name: max(kept[name], getattr(older, name) or kept[name]) for name in kept if kept[name]}
    return msgspec.structs.replace(newer, checksum=one.checksum, **kept)


def _age(meta: SystemMetadata) -> tuple[int, bool, bytes]:
    """Of two with one date, one is the newer: both sides have to take the same. What is not for everybody must not stay
    public: an object that its own node refuses is hidden under the date it has."""
    plain = msgspec.structs.replace(meta, serial_version=None, replica=(), **dict.fromkeys(_STICKS))
    date = meta.date_sys_metadata_modified or 0
    return date, not meta.public, hashlib.blake2b(msgspec.msgpack.encode(plain)).digest()


def taken(ours: Mapping[str, Replica], theirs: Sequence[Replica]) -> tuple[Replica, ...]:
    """Of their copies those that we know less of."""
    return tuple(
        one
        for one in theirs
        if (known := ours.get(one.replica_member_node)) is None
        or (known.replica_verified, known.replication_status) < (one.replica_verified, one.replication_status)
    )
