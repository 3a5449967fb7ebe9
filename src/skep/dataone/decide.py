"""What becomes of one offered object (pure): every branch says why, and an update is taken whole or not at all."""

from collections.abc import Collection, Mapping
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
