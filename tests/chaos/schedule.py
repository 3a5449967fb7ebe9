"""The schedule of faults: a pure function of the seed and the length of the run.

Each event begins at `at`, and ends by itself after `seconds`: a process is started again, a stopped one continues, a
cut is healed. All events end before the run does, so that the fleet can always recover.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

Kind = Literal["kill", "pause", "terminate", "restart", "crash", "cut", "block"]

COORDINATORS = ("c1", "c2")
AGGREGATOR = "agg"
WORKERS = ("w1", "w2", "w3")
DATABASE, UPSTREAM, CLIENT = "pg", "git", "cli"
SERVERS = (*COORDINATORS, AGGREGATOR)
#: these run a `skep` command
SKEP = (*SERVERS, *WORKERS)
MEMBERS = (DATABASE, UPSTREAM, *SKEP, CLIENT)
#: as the other end of a cut: each of the servers
ALL_SERVERS = "servers"

#: times of the fleet under test, in seconds; the faults are shorter and longer than these
HEARTBEAT, LEASE, GRACE, GROUP_LEASE = 0.5, 4.0, 9.0, 5.0
#: ranges of durations: shorter than a lease, longer than a lease, longer than the grace time
SHORT, BEYOND_LEASE, BEYOND_GRACE = (0.3, 2.0), (LEASE + 1.0, LEASE + 4.0), (GRACE + 2.0, GRACE + 5.0)
#: kinds that act on a process; a process has one of them at a time
PROCESS_KINDS: tuple[Kind, ...] = ("kill", "pause", "terminate", "restart", "crash")
#: seconds before the first event, and after the last one has ended
QUIET = 2.0
#: a process has so much time between two faults; it can then start, and do something
PAUSE_BETWEEN = 1.5


class Event(msgspec.Struct, frozen=True, order=True):
    """One fault. `cut` drops all packets from `target` to `other`, `block` answers them with a reset; `one_way` faults
    leave the opposite direction open."""

    at: float
    kind: Kind
    target: str
    seconds: float
    other: str = ""
    one_way: bool = False

    @property
    def end(self) -> float:
        return self.at + self.seconds

    @property
    def directions(self) -> list[tuple[str, str]]:
        """The pairs of sender and receiver whose packets do not arrive."""
        others = SERVERS if self.other == ALL_SERVERS else (self.other,) if self.other else ()
        there = [(self.target, other) for other in others]
        return there if self.one_way else there + [(other, self.target) for other in others]

    def __str__(self) -> str:
        arrow = f" {'->' if self.one_way else '<->'} {self.other}" if self.other else ""
        return f"{self.kind} {self.target}{arrow} for {self.seconds:.1f} s"


class Card(msgspec.Struct, frozen=True):
    """What may happen, without its time."""

    kind: Kind
    targets: tuple[str, ...]
    seconds: tuple[float, float]
    others: tuple[str, ...] = ()
    one_way: bool = False


#: each is played once before one of them is played again
DECK: tuple[Card, ...] = (
    Card("kill", COORDINATORS, SHORT),
    Card("kill", COORDINATORS, BEYOND_LEASE),
    Card("kill", WORKERS, SHORT),
    Card("kill", WORKERS, SHORT),
    Card("kill", WORKERS, BEYOND_GRACE),
    Card("kill", (AGGREGATOR,), SHORT),
    Card("pause", COORDINATORS, BEYOND_LEASE),
    Card("pause", WORKERS, SHORT),
    Card("pause", WORKERS, BEYOND_LEASE),
    Card("pause", WORKERS, BEYOND_GRACE),
    Card("pause", (AGGREGATOR, DATABASE), SHORT),
    Card("terminate", COORDINATORS, SHORT),
    Card("terminate", WORKERS, SHORT),
    Card("terminate", (AGGREGATOR,), SHORT),
    Card("restart", (DATABASE,), SHORT),
    Card("crash", (DATABASE,), SHORT),
    Card("cut", WORKERS, BEYOND_LEASE, COORDINATORS),
    Card("cut", WORKERS, BEYOND_GRACE, COORDINATORS),
    Card("cut", WORKERS, BEYOND_LEASE, (ALL_SERVERS,)),
    Card("cut", WORKERS, BEYOND_GRACE, (ALL_SERVERS,)),
    Card("cut", WORKERS, BEYOND_LEASE, (ALL_SERVERS,), one_way=True),
    Card("cut", COORDINATORS, SHORT, WORKERS, one_way=True),
    Card("cut", WORKERS, BEYOND_LEASE, COORDINATORS, one_way=True),
    Card("cut", COORDINATORS, BEYOND_LEASE, (DATABASE,)),
    Card("cut", (DATABASE,), SHORT, COORDINATORS, one_way=True),
    Card("cut", (CLIENT,), SHORT, SERVERS),
    Card("cut", SERVERS, BEYOND_LEASE, (CLIENT,), one_way=True),
    Card("block", WORKERS, BEYOND_LEASE, (UPSTREAM,)),
    Card("block", WORKERS, SHORT, COORDINATORS),
    Card("cut", (AGGREGATOR,), BEYOND_LEASE, WORKERS),
)


def plan(seed: int, seconds: float, kinds: Sequence[str] = ()) -> tuple[Event, ...]:
    """The events of a run, in the order in which they begin; only those of some kinds, if any are given."""
    chance = random.Random(seed)
    events: list[Event] = []
    cards = _cards(chance, [card for card in DECK if not kinds or card.kind in kinds])
    at = QUIET
    while at < seconds - QUIET:
        event = _dealt(next(cards), at, chance)
        if event.end <= seconds - QUIET and fits(event, events):
            events.append(event)
            # sometimes several faults begin at once
            at += 0.0 if chance.random() < 0.2 else chance.uniform(0.3, 3.0)
        else:
            at += 0.1
    return tuple(events)


def _cards(chance: random.Random, deck: list[Card]) -> Iterator[Card]:
    while True:
        yield from chance.sample(deck, len(deck))


def _dealt(card: Card, at: float, chance: random.Random) -> Event:
    target = chance.choice(card.targets)
    other = chance.choice(card.others) if card.others else ""
    return Event(round(at, 2), card.kind, target, round(chance.uniform(*card.seconds), 2), other, card.one_way)


def fits(event: Event, before: Sequence[Event]) -> bool:
    """A process has one fault at a time, a pair of members one cut; one coordinator and one worker are left alone."""
    now = [one for one in before if event.at < one.end + PAUSE_BETWEEN and one.at < event.end + PAUSE_BETWEEN]
    if event.kind not in PROCESS_KINDS:
        return not any({one.target, one.other} == {event.target, event.other} for one in now)
    stopped = {one.target for one in now if one.kind in PROCESS_KINDS}
    if event.target in stopped:
        return False
    stopped.add(event.target)
    return not stopped.issuperset(COORDINATORS) and not stopped.issuperset(WORKERS)
