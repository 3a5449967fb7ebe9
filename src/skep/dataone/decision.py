"""What becomes of one offered object (pure): every branch says why, and an update is taken whole or not at all."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import msgspec

from skep.dataone.types import Checksum, Replica, SystemMetadata

Verdict = Literal["new", "unchanged", "update", "replica", "duplicate", "illegal", "unauthorised", "poison", "gone"]
#: of these the node is told
REFUSED: frozenset[Verdict] = frozenset({"duplicate", "illegal", "unauthorised", "poison"})
#: once accepted, a change of these refuses the whole update
_IMMUTABLE = (*("size", "submitter", "date_uploaded", "origin_member_node", "authoritative_member_node"),)
#: empty -> value, and never again
_ONCE = ("obsoletes", "obsoleted_by", "series_id")
_REQUIRED = (
    *("submitter", "date_uploaded", "date_sys_metadata_modified", "origin_member_node", "authoritative_member_node"),
)
#: all that a node of version 1 may change
_V1_CHANGES = ("obsoleted_by", "archived")
#: milliseconds by which we make the date of an object later than its node did, step by step
_MOVED = 1_000
#: kept by us, whatever a node says
_OURS: dict[str, Any] = {"serial_version": None, "replica": ()}


class Decision(msgspec.Struct, frozen=True):
    verdict: Verdict
    reason: str
    #: what is stored from now on; None: what is stored stays
    meta: SystemMetadata | None = None
    #: copies that another Coordinating Node knows more of
    copies: tuple[Replica, ...] = ()


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """What is known around an object when it is offered."""

    #: who offers it
    node: str
    version: Literal["v1", "v2"] = "v2"
    #: as we have it; of a deleted one too, for its bytes were promised not to change
    known: SystemMetadata | None = None
    deleted: bool = False
    #: what is known of its copies, by node
    copies: Mapping[str, Replica] = {}
    #: nodes that are Coordinating Nodes, we among them
    coordinators: Collection[str] = ()
    #: subject for whom the identifier, or the series it begins, is reserved
    reserved_for: str | None = None
    #: newest member of the series that it says it belongs to
    head: SystemMetadata | None = None
    #: its identifier is a series, or its series an identifier
    confused: bool = False
    #: the node's checksum in our algorithm, where its own is of another
    proof: Checksum | None = None

    def holds(self, urn: str) -> bool:
        """As far as is known: what it was asked for it may have by now, and we did not hear of it."""
        return urn in self.copies and self.copies[urn].replication_status == "completed"


def decide(offered: SystemMetadata, around: Circumstances) -> Decision:
    missing = [name for name in _REQUIRED if getattr(offered, name) is None]
    if missing:
        return Decision("poison", f"its system metadata lacks {words(missing)}")
    if not offered.checksum.known:
        return Decision("poison", f"{offered.checksum.algorithm[:40]!r} is no checksum algorithm that we know")
    known = around.known
    if known is None:
        return _new(offered, around, 1)
    if refused := other(offered, around):
        return refused
    if around.deleted:
        return _new(offered, around, (known.serial_version or 0) + 1)
    if around.node != known.authoritative_member_node:
        if around.holds(around.node):
            return Decision("unchanged", f"{around.node} is known to hold a replica")
        return Decision("replica", f"{around.node} holds a replica")
    return _update(offered, around, known)


def other(offered: SystemMetadata, around: Circumstances) -> Decision | None:
    """Bytes that are not those we know under this identifier."""
    assert around.known is not None
    known, said = around.known.checksum, around.proof or offered.checksum
    agrees = known.agrees(said)
    if agrees is None:
        text = f"its checksum is {offered.checksum.name}, ours {known.name}: they cannot be compared"
        return Decision("poison", text)
    if not agrees:
        text = f"the identifier belongs to another object: {known.name} {known.value}, not {said.value}"
        return Decision("duplicate", text)
    return None


def changes(offered: SystemMetadata, known: SystemMetadata) -> list[str]:
    """Names of what differs; absent and false are the same."""
    names = [name for name in SystemMetadata.__struct_fields__ if name not in _OURS and name != "checksum"]
    return [
        name
        for name in names
        if getattr(offered, name) != getattr(known, name)
        and (name != "archived" or bool(offered.archived) != bool(known.archived))
    ]


def _new(offered: SystemMetadata, around: Circumstances, serial: int) -> Decision:
    if refused := _claim(offered, around):
        return refused
    meta = msgspec.structs.replace(offered, serial_version=serial, replica=())
    return Decision("new", f"{around.node} has it" + (" again" if serial > 1 else ""), meta)


def _claim(offered: SystemMetadata, around: Circumstances) -> Decision | None:
    """Names that are somebody else's."""
    people = {offered.submitter, offered.rights_holder}
    if around.confused:
        return Decision("illegal", "an identifier and a series must not have the same name")
    if around.reserved_for is not None and around.reserved_for not in people:
        return Decision("unauthorised", f"the identifier is reserved for {around.reserved_for}")
    if around.head is not None and not _may_continue(offered, around.head):
        return Decision("unauthorised", f"the series {offered.series_id} belongs to somebody else")
    return None


def _may_continue(offered: SystemMetadata, head: SystemMetadata) -> bool:
    """By what the offer says; whether it is a version of the series then depends on who says so (`series.members`)."""
    same = ("authoritative_member_node", "rights_holder", "submitter")
    if any(getattr(offered, name) == getattr(head, name) for name in same):
        return True
    return head.may("changePermission", frozenset({offered.submitter or "", offered.rights_holder}))


def _update(offered: SystemMetadata, around: Circumstances, known: SystemMetadata) -> Decision:
    if around.version == "v1":
        # policies are changed here with version 1, and the node goes on telling the one that it gave itself
        offered = msgspec.structs.replace(offered, replication_policy=known.replication_policy)
    changed = changes(offered, known)
    if not changed:
        return Decision("unchanged", "nothing differs")
    date, newest = offered.date_sys_metadata_modified or 0, known.date_sys_metadata_modified or 0
    # what its node refused was hidden, under a date that we may have moved; it is given again
    again = offered.public and known.access_policy is None
    if date < newest - (_MOVED if again else 0):
        return Decision("unchanged", "it is older than what we know")
    fixed = [name for name in changed if name in _IMMUTABLE]
    fixed += [name for name in changed if name in _ONCE and getattr(known, name) is not None]
    if "archived" in changed and known.archived:
        fixed.append("archived")
    if around.version == "v1":
        fixed += [name for name in changed if name not in (*_V1_CHANGES, "date_sys_metadata_modified", *fixed)]
    if fixed:
        return Decision("illegal", f"{words(fixed)} must not change")
    if "series_id" in changed and (refused := _claim(offered, around)):
        return refused
    serial = (known.serial_version or 0) + 1
    meta = msgspec.structs.replace(offered, serial_version=serial, replica=(), checksum=known.checksum)
    if again:
        # to siblings it is newer than what was hidden; older than whatever its node says next
        meta = msgspec.structs.replace(meta, date_sys_metadata_modified=max(date, newest + 1))
    return Decision("update", f"changed: {words(changed)}", meta)


def words(names: Collection[str]) -> str:
    parts = (name.split("_") for name in names)
    return ", ".join(first + "".join(map(str.title, rest)) for first, *rest in parts)


# What two Coordinating Nodes know of one object becomes one (pure): the same on both sides, whoever hears first.
#
# A node's own date decides between two states of system metadata, the newer word on a copy between two of those, and
# what
# can happen only once has happened. So it does not matter how often, or in which order, anything is told.

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


# Series and chains (pure). Links are derived from either side: one side may never come, and nobody is to be trusted
# that there are no branches and no circles.


class Version(msgspec.Struct, frozen=True):
    """What the order of versions follows from."""

    pid: str
    obsoletes: str | None = None
    obsoleted_by: str | None = None
    #: milliseconds
    uploaded: int = 0
    #: its authoritative node, as it says itself, and the node that really said all this
    node: str = ""
    said_by: str = ""
    #: milliseconds: since when it says that it belongs to its series
    since: int = 0

    def speaks_for(self, other: "Version") -> bool:
        """May it say what came before or after the other? Only in the name of the other's own node, by the word of that
        node or of whoever told us of the other: anybody else would hide what it does not like."""
        return self.node == other.node and self.said_by in (other.node, other.said_by)


def _upload(one: Version) -> tuple[int, str]:
    """Of several that say the same of another the last counts, in whatever order they are read."""
    return one.uploaded, one.pid


def members(claims: Collection[Version]) -> list[Version]:
    """Of all that say they belong to one series those that do: what the node that had it first says itself, and what
    came after by its word. Until that node says anything, whoever told of it first stands in for it."""
    if not claims:
        return []
    first = min(claims, key=lambda one: (one.since, one.pid))
    own = [one for one in claims if one.node == first.node]
    said = [one for one in own if one.said_by == first.node] or [one for one in own if one.said_by == first.said_by]
    by_pid = {one.pid: one for one in claims}
    found = {one.pid: one for one in said}
    while said:
        after = [by_pid[one.obsoleted_by] for one in said if one.obsoleted_by in by_pid]
        said = [one for one in after if one.pid not in found]
        found |= {one.pid: one for one in said}
    return list(found.values())


def head(members: Sequence[Version], elsewhere: Collection[str] = ()) -> str | None:
    """The member that a series id stands for. `elsewhere`: which of the objects that members point to are known, and
    are no members."""
    if not members:
        return None
    by_pid = {one.pid: one for one in members}
    obsoleted = {one.obsoletes: one for one in sorted(members, key=_upload) if one.obsoletes}

    def is_end(one: Version) -> bool:
        after = one.obsoleted_by
        if not after or after in elsewhere:
            return True
        return after not in by_pid and after not in obsoleted

    ends = [one for one in members if is_end(one)]
    if len(ends) == 1:
        return ends[0].pid
    last = max(ends or members, key=_upload)
    # an upload date may be wrong: whoever obsoletes it is newer
    passed = {last.pid}
    while ends and (after := obsoleted.get(last.pid)) is not None and after.pid not in passed:
        last = after
        passed.add(last.pid)
    return last.pid


def chain(start: str, links: Sequence[Version]) -> list[str]:
    """The versions around `start` from the oldest to the newest, as far as links lead; a circle ends it. What an object
    says itself counts, and of others what `speaks_for` it."""
    by_pid = {one.pid: one for one in links}
    after: dict[str, str] = {}
    before: dict[str, str] = {}
    for one in sorted(links, key=_upload):
        for other, step in ((one.obsoletes, after), (one.obsoleted_by, before)):
            known = by_pid.get(other or "") or by_pid.get(start)
            if other and (known is None or one.speaks_for(known)):
                step[other] = one.pid
    after |= {one.pid: one.obsoleted_by for one in links if one.obsoleted_by}
    before |= {one.pid: one.obsoletes for one in links if one.obsoletes}
    found = [start]
    for step, place in ((before, 0), (after, -1)):
        while (pid := step.get(found[place])) is not None and pid not in found:
            found.insert(0 if place == 0 else len(found), pid)
    return found


def in_order(members: Sequence[Version], newest: str) -> list[str]:
    """Their identifiers, oldest first: as far as links lead to the newest by these, the others by their dates."""
    by_pid = {one.pid: one for one in members}
    linked = [pid for pid in chain(newest, members) if pid in by_pid]
    others = sorted(by_pid.keys() - {*linked}, key=lambda pid: (by_pid[pid].uploaded, pid))
    return [*others, *linked]
