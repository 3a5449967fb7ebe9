"""Which sources should change hands, and who should have copies. Pure: members and holdings in, a plan out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from skep.fleet.events import UNSTABLE_DOWNS
from skep.fleet.ring import NOBODY, Holders, Node, Ring, number_of, numbers_of

_UNSTABLE_SHARE = 0.25


class Member(msgspec.Struct, frozen=True):
    id: str
    name: str
    #: alive, grace or gone
    state: str
    capacity: float
    draining: bool
    #: how often it went down lately
    downs: int = 0

    @property
    def places(self) -> bool:
        """New sources may go there."""
        return self.state == "alive" and not self.draining

    @property
    def keeps(self) -> bool:
        """What it holds stays with it."""
        return self.state in ("alive", "grace") and not self.draining


class Holding(msgspec.Struct, frozen=True):
    source: str
    member: str | None
    #: ids or names of members: the first that is there
    pins: tuple[str, ...] = ()
    #: who has a complete copy beside the holder, and who is making one
    copies: tuple[str, ...] = ()
    making: tuple[str, ...] = ()


class Change(msgspec.Struct, frozen=True):
    """A source should go to another member."""

    source: str
    old: str | None
    new: str
    #: the new one has a copy
    ready: bool = False
    #: the old one becomes a replica, for as long as there are too few
    keep: bool = False


class Plan(msgspec.Struct, frozen=True):
    changes: list[Change]
    #: (source, member): to be made, those of future holders first; and not wanted any more
    copies: list[tuple[str, str]]
    spare: list[tuple[str, str]]


def nodes_of(members: Iterable[Member]) -> list[Node]:
    """In an order of their own, so that every coordinator draws the same ring."""
    return [
        Node(one.id, one.capacity * (_UNSTABLE_SHARE if one.downs >= UNSTABLE_DOWNS else 1.0))
        for one in sorted(members, key=lambda one: one.id)
        if one.keeps
    ]


def plan(members: Sequence[Member], holdings: Sequence[Holding], count: int = 1) -> Plan:
    """`count`: members that have each source, its holder among them. Nothing is given to one that is in its grace,
    though it keeps what it has; copies are made from holders that are alive."""
    placing = {one.id for one in members if one.places}
    alive = {one.id for one in members if one.state == "alive"}
    there = {one.id for one in members if one.state != "gone"}
    found, later = Plan([], [], []), list[tuple[str, str]]()
    for one, wanted in _wanted(members, holdings, count):
        new, having = wanted[0], {one.member, *one.copies}
        if new != one.member and new in placing:
            keep = count > 1 and one.member in there
            found.changes.append(Change(one.source, one.member, new, new in having, keep))
        if one.member in alive:
            missing = placing.intersection(wanted).difference(having, one.making)
            (found.copies if new in missing else later).extend((one.source, member) for member in sorted(missing))
        spare = (*one.making, *one.copies) if having.issuperset(wanted) else one.making
        found.spare.extend((one.source, member) for member in spare if member not in wanted)
    found.copies.extend(later)
    return found


def _wanted(
    members: Sequence[Member], holdings: Sequence[Holding], count: int
) -> Iterator[tuple[Holding, Sequence[str]]]:
    """Of those where something should change: who should have it, the holder first."""
    nodes = nodes_of(members)
    index = {node.id: n for n, node in enumerate(nodes)}
    current = np.array([index.get(one.member or "", NOBODY) for one in holdings], np.int32)
    numbers, even = numbers_of([one.source for one in holdings]), np.ones(len(holdings))
    ring, fixed = Ring(nodes), _pinned(members, holdings, index) | _heirs(members, holdings, index)
    primary = ring.assign(numbers, even, current, pinned=fixed)
    kept = _kept(holdings, primary, index, count - 1)
    replicas = ring.replicas(numbers, even, primary, kept)
    differs = np.array([bool(one.making) or len(one.copies) != len(replicas) for one in holdings], bool)
    for new, old in zip((primary, *replicas), (current, *kept), strict=False):
        differs |= new != old
    for n in np.flatnonzero(differs).tolist():
        if nodes:
            yield holdings[n], [nodes[level[n]].id for level in (primary, *replicas)]


def choose(members: Sequence[Member], sources: Mapping[str, Sequence[str]]) -> dict[str, str | None]:
    """A member for each new source; its pins come with it."""
    able = [one for one in members if one.places]
    holdings = [Holding(source, None, tuple(pins)) for source, pins in sources.items()]
    chosen = {change.source: change.new for change in plan(able, holdings).changes}
    return {source: chosen.get(source) for source in sources}


def _pinned(members: Sequence[Member], holdings: Sequence[Holding], index: Mapping[str, int]) -> dict[int, int]:
    called = {one.id: index[one.id] for one in members if one.id in index}
    called |= {one.name: index[one.id] for one in members if one.name and one.id in index}
    return {
        n: called[next(pin for pin in one.pins if pin in called)]
        for n, one in enumerate(holdings)
        if one.pins and any(pin in called for pin in one.pins)
    }


def _heirs(members: Sequence[Member], holdings: Sequence[Holding], index: Mapping[str, int]) -> dict[int, int]:
    """Whose holder goes, or is gone, stays with one that has a copy, whatever the loads; that costs nothing."""
    placing, found = {one.id for one in members if one.places}, {}
    for n, one in enumerate(holdings):
        if one.copies and one.member not in index and (able := [copy for copy in one.copies if copy in placing]):
            found[n] = index[able[number_of(one.source) % len(able)]]
    return found


def _kept(holdings: Sequence[Holding], primary: Holders, index: Mapping[str, int], count: int) -> list[Holders]:
    """Who has copies now, or makes them; a holder that is to give the source away has one too."""
    kept = [np.full(len(holdings), NOBODY, np.int32) for _ in range(count)]
    for n, (one, first) in enumerate(zip(holdings, primary.tolist(), strict=True)):
        if count and (one.copies or one.making or index.get(one.member or "", first) != first):
            having = (index.get(member or "", first) for member in (*one.copies, *one.making, one.member))
            for level, member in zip(kept, (member for member in having if member != first), strict=False):
                level[n] = member
    return kept
