"""Which sources should change hands. Pure: members and holdings in, moves out."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from skep.fleet.ring import NOBODY, Node, Ring, numbers_of

#: a member that went down so often within the time that is remembered is given less
UNSTABLE_DOWNS = 3
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


class Change(msgspec.Struct, frozen=True):
    """A source should go to another member."""

    source: str
    old: str | None
    new: str


def nodes_of(members: Iterable[Member]) -> list[Node]:
    """In an order of their own, so that every coordinator draws the same ring."""
    return [
        Node(one.id, one.capacity * (_UNSTABLE_SHARE if one.downs >= UNSTABLE_DOWNS else 1.0))
        for one in sorted(members, key=lambda one: one.id)
        if one.keeps
    ]


def plan(members: Sequence[Member], holdings: Sequence[Holding]) -> list[Change]:
    """Nothing is given to one that is in its grace, though it keeps what it has."""
    nodes = nodes_of(members)
    index = {node.id: n for n, node in enumerate(nodes)}
    current = np.array([index.get(one.member or "", NOBODY) for one in holdings], np.int32)
    found = Ring(nodes).assign(
        numbers_of([one.source for one in holdings]),
        np.ones(len(holdings)),
        current,
        pinned=_pinned(members, holdings, index),
    )
    placing = {one.id for one in members if one.places}
    return [
        Change(one.source, one.member, nodes[new].id)
        for one, new in zip(holdings, found.tolist(), strict=True)
        if new != NOBODY and nodes[new].id != one.member and nodes[new].id in placing
    ]


def choose(members: Sequence[Member], sources: Mapping[str, Sequence[str]]) -> dict[str, str | None]:
    """A member for each new source; its pins come with it."""
    able = [one for one in members if one.places]
    holdings = [Holding(source, None, tuple(pins)) for source, pins in sources.items()]
    chosen = {change.source: change.new for change in plan(able, holdings)}
    return {source: chosen.get(source) for source in sources}


def _pinned(members: Sequence[Member], holdings: Sequence[Holding], index: Mapping[str, int]) -> dict[int, int]:
    called = {one.id: index[one.id] for one in members if one.id in index}
    called |= {one.name: index[one.id] for one in members if one.name and one.id in index}
    return {
        n: called[next(pin for pin in one.pins if pin in called)]
        for n, one in enumerate(holdings)
        if one.pins and any(pin in called for pin in one.pins)
    }
