"""Who should hold what: consistent hashing with bounded loads, for a million sources at once. Pure.

Each member has points on a circle of 64-bit numbers, more of them the more it can hold; a source belongs to whose point
comes next after its own number. Two things are added. Nobody gets more than its share and a little: what is too much
goes on to the next member on the circle. And whoever holds a source keeps it: it moves only when its holder is gone or
has too much, or when the member it belongs to has clearly too little, which is how a new one gets its share.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from skep.base.answers import TaskLoad
from skep.fleet.events import UNSTABLE_DOWNS

NOBODY = -1
#: points of a member of average capacity
_POINTS = 128
#: what a member may have beyond its share before it has to give
SLACK = 0.08
#: with less than this part of its share a member takes what belongs to it from others
_HUNGRY = 0.5
_MOST_ROUNDS = 10_000

Numbers = NDArray[np.uint64]
Weights = NDArray[np.float64]
#: an index of a member for each source; NOBODY: none
Holders = NDArray[np.int32]


class Node(msgspec.Struct, frozen=True):
    """A member, as the ring sees it."""

    id: str
    #: how much it can hold in comparison with others
    capacity: float = 1.0


def number_of(text: str) -> int:
    """Where something is on the circle; the same on every machine, for ever."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def numbers_of(texts: Sequence[str]) -> Numbers:
    return np.array([number_of(text) for text in texts], np.uint64)


class Ring:
    def __init__(self, nodes: Sequence[Node], points: int = _POINTS) -> None:
        self.nodes = tuple(nodes)
        capacities = np.array([node.capacity for node in nodes], np.float64)
        #: the part of everything that each should have
        self.shares: Weights = capacities / capacities.sum() if len(nodes) else capacities
        owners: list[int] = []
        places: list[int] = []
        for index, node in enumerate(nodes):
            for n in range(max(1, round(points * self.shares[index] * len(nodes)))):
                owners.append(index)
                places.append(number_of(f"{node.id}#{n}"))
        order = np.argsort(np.array(places, np.uint64), kind="stable")
        self._places: Numbers = np.array(places, np.uint64)[order]
        self._owners: Holders = np.array(owners, np.int32)[order]

    def assign(
        self,
        numbers: Numbers,
        weights: Weights,
        current: Holders,
        *,
        pinned: Mapping[int, int] | None = None,
        barred: Sequence[Holders] = (),
    ) -> Holders:
        """The holder of each source. `pinned`: source -> member, whatever the loads. `barred`: holders of other
        replicas of the same source, who do not get this one."""
        if not self.nodes:
            return np.full(len(numbers), NOBODY, np.int32)
        work = _Assignment(self, numbers, weights, barred)
        work.keep(current, pinned or {})
        work.feed()
        work.shed()
        work.place()
        return work.holders

    def replicas(
        self,
        numbers: Numbers,
        weights: Weights,
        primary: Holders,
        current: Sequence[Holders],
    ) -> list[Holders]:
        """Who has a copy beside the primary: one more of each source for each of `current`, as members suffice."""
        found = [primary]
        for before in current[: max(0, len(self.nodes) - 1)]:
            found.append(self.assign(numbers, weights, before, barred=found))
        return found[1:]

    def next_place(self, numbers: Numbers) -> NDArray[np.int64]:
        return np.searchsorted(self._places, numbers) % len(self._places)

    def owner(self, places: NDArray[np.int64]) -> Holders:
        return self._owners[places % len(self._places)]

    @property
    def size(self) -> int:
        return len(self._places)

    def stretches(self) -> list[tuple[int, float, float]]:
        """All around the circle, which is 1 long: whose it is, where it begins and ends; the last may lead past 1."""
        cuts = np.flatnonzero(self._owners != np.roll(self._owners, -1))
        ends = (self._places[cuts] / 2.0**64).tolist()
        if not ends:
            return [(0, 0.0, 1.0)] if self.nodes else []
        whose = self._owners[cuts].tolist()
        first = (whose[0], ends[-1], ends[0] + 1.0)
        return [*zip(whose[1:], ends[:-1], ends[1:], strict=True), first]


class _Assignment:
    """One run; the steps in the order in which `assign` takes them."""

    def __init__(self, ring: Ring, numbers: Numbers, weights: Weights, barred: Sequence[Holders]) -> None:
        self._ring = ring
        self._weights = weights
        self._barred = barred
        self._places = ring.next_place(numbers)
        while (others := self._is_barred(ring.owner(self._places), slice(None))).any():
            self._places[others] += 1  # a replica belongs to whose point comes next after the primary's
        self._preferred = ring.owner(self._places)
        self._wanted: Weights = ring.shares * weights.sum()
        #: one source more than this is too much; a source heavier than that must fit somewhere all the same
        self._most = np.maximum(self._wanted * (1 + SLACK), weights.max(initial=0.0))
        self._fixed = np.zeros(len(numbers), bool)
        self.holders: Holders = np.full(len(numbers), NOBODY, np.int32)

    def keep(self, current: Holders, pinned: Mapping[int, int]) -> None:
        self.holders[:] = current
        self.holders[self._is_barred(self.holders, slice(None))] = NOBODY
        for source, member in pinned.items():
            self.holders[source] = member
            self._fixed[source] = True

    def feed(self) -> None:
        """Whoever has clearly less than its share takes what belongs to it, from whoever has it now and is not in need
        as well: those would only exchange what they have."""
        loads = self._loads()
        hungry = loads < self._wanted * _HUNGRY
        giving = (self.holders != NOBODY) & ~hungry[self.holders] & ~self._fixed
        moving = np.flatnonzero(hungry[self._preferred] & giving)
        moving = moving[~self._is_barred(self._preferred[moving], moving)]
        takers = self._preferred[moving]
        taken = self._fits(moving, takers, np.maximum(self._wanted - loads, 0.0))
        self.holders[moving[taken]] = takers[taken]

    def shed(self) -> None:
        """Whoever has too much gives up the last of what does not belong to it, then of the rest."""
        loads = self._loads()
        over = np.flatnonzero(loads > self._most)
        if not len(over):
            return
        giving = np.flatnonzero(np.isin(self.holders, over))
        giving = giving[np.argsort(self._preferred[giving] != self.holders[giving], kind="stable")]
        free = self._most.copy()
        np.subtract.at(free, self.holders[giving[self._fixed[giving]]], self._weights[giving[self._fixed[giving]]])
        giving = giving[~self._fixed[giving]]
        kept = self._fits(giving, self.holders[giving], np.maximum(free, 0.0))
        self.holders[giving[~kept]] = NOBODY

    def place(self) -> None:
        """What nobody has goes along the circle to the first who has room."""
        lost = np.flatnonzero(self.holders == NOBODY)
        places = self._places[lost]
        free = self._most - self._loads()
        for _ in range(min(_MOST_ROUNDS, self._ring.size)):
            if not len(lost):
                return
            asked = self._ring.owner(places)
            fits = ~self._is_barred(asked, lost)
            fits[fits] = self._fits(lost[fits], asked[fits], np.maximum(free, 0.0))
            won = lost[fits]
            self.holders[won] = asked[fits]
            np.subtract.at(free, asked[fits], self._weights[won])
            lost, places = lost[~fits], places[~fits] + 1
        for source in lost.tolist():  # heavy ones, where nobody has room for them: to whoever has most
            allowed = [m for m in range(len(free)) if all(other[source] != m for other in self._barred)]
            if allowed:
                best = max(allowed, key=lambda member: free[member])
                self.holders[source] = best
                free[best] -= self._weights[source]

    def _loads(self) -> Weights:
        held = self.holders != NOBODY
        loads = np.bincount(self.holders[held], self._weights[held], len(self._ring.nodes))
        return loads.astype(np.float64)

    def _is_barred(self, holders: Holders, sources: Any) -> NDArray[np.bool_]:
        mask = np.zeros(len(holders), bool)
        for other in self._barred:
            mask |= (other[sources] == holders) & (holders != NOBODY)
        return mask

    def _fits(self, sources: NDArray[np.int64], members: Holders, free: Weights) -> NDArray[np.bool_]:
        """Which of them each member has room for, in the given order."""
        order = np.argsort(members, kind="stable")
        sums = np.cumsum(self._weights[sources[order]])
        starts = np.searchsorted(members[order], np.arange(len(free)))
        before = np.concatenate(([0.0], sums))[starts]
        fits = np.empty(len(sources), bool)
        fits[order] = sums - before[members[order]] <= free[members[order]] * (1 + 1e-12)
        return fits


# Which sources should change hands, and who should have copies. Pure: members and holdings in, a plan out.

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


# How many workers there should be. Pure: what was seen goes in, a number comes out.


class Aim(msgspec.Struct, frozen=True):
    least: int = 1
    most: int = 10
    #: seconds in which what waits should be done
    within: float = 60.0


def wanted(workers: int, tasks: TaskLoad, aim: Aim) -> int:
    """As many as do what waits in time, at the rate of the `workers` there are: twice as many at most, or one less."""
    return min(max(_scaling_wanted(workers, tasks, aim), aim.least), aim.most)


def _scaling_wanted(workers: int, tasks: TaskLoad, aim: Aim) -> int:
    if workers == 0:
        return 1 if tasks.ready else 0
    if not tasks.ready:
        return workers - (tasks.placed < workers)
    if not tasks.ended:
        return workers + 1
    needed = tasks.ended + tasks.ready * 60.0 / aim.within
    return min(math.ceil(workers * needed / tasks.ended), 2 * workers)
