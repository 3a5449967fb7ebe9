"""How hard one upstream host may be asked: so many at once, so many a second, and not at all while it wants rest."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from skep.config.settings import PollRule, Settings
from skep.sources.model import Failure, FailureClass, SourceSettings

# The next look in seconds: spread so that sources do not come in herds, and rarer while a source fails.

#: of an interval, when somebody is interested in the source
_INTEREST_SHARE = 0.25
_JITTER = 0.1
#: an upstream cannot send us away for longer than this
_LONGEST_RETRY_AFTER = 86_400.0

_MINUTE, _HOUR = 60.0, 3600.0
#: first and longest pause of each class of failure; it doubles in between
_BACKOFF: dict[FailureClass, tuple[float, float]] = {
    "network": (30.0, _HOUR),
    "internal": (30.0, _HOUR),
    "rate_limited": (_MINUTE, 4 * _HOUR),
    "disk": (2 * _MINUTE, 30 * _MINUTE),
    "corrupt": (10 * _MINUTE, 12 * _HOUR),
    "blocked": (_HOUR, 24 * _HOUR),
    "auth": (_HOUR, 24 * _HOUR),
    "gone": (_HOUR, 24 * _HOUR),
    "emptied": (_HOUR, 24 * _HOUR),
    "rewritten": (_HOUR, 24 * _HOUR),
    "not_git": (4 * _HOUR, 24 * _HOUR),
    "too_big": (12 * _HOUR, 24 * _HOUR),
}


class Bounds(msgspec.Struct, frozen=True):
    shortest: float
    longest: float


def interval(wait: float, bounds: Bounds, chance: float) -> float:
    """`wait` within bounds, spread by `chance` in [0, 1): also where a bound holds, so that herds dissolve there."""
    low, high = bounds.shortest, bounds.longest
    within = _clamp(wait, low / (1 - _JITTER), high / (1 + _JITTER))
    return _clamp(_jitter(within, chance), low, high)


def pause(failure: Failure, failures: int, chance: float) -> float:
    """Seconds until the next try, after `failures` (from 1) in a row of this class."""
    first, longest = _BACKOFF[failure.kind]
    rest = first if failures <= 1 else min(longest, first * 2.0 ** min(failures - 1, 64))
    rest = _jitter(rest, chance)
    wish = failure.retry_after
    if wish is None or math.isnan(wish):
        return rest
    return max(rest, _clamp(wish, 0.0, _LONGEST_RETRY_AFTER))


def sooner(last: float, planned: float, bounds: Bounds) -> float:
    """When to look at what people are interested in; interest that lasts leads to the shortest interval."""
    return last + max(bounds.shortest, (planned - last) * _INTEREST_SHARE)


def worth_telling(failures: int, before: FailureClass | None, now: FailureClass) -> bool:
    """A failure is told when it begins or changes, then at every doubling: not at each repeat."""
    return before != now or failures & (failures - 1) == 0


def _jitter(seconds: float, chance: float) -> float:
    return seconds * (1 - _JITTER + 2 * _JITTER * chance)


def _clamp(value: float, low: float, high: float) -> float:
    return max(low, min(high, value))


# How often a source changes, from looks that only say "changed since the last look" or "not": two numbers a source.
#
# `changes` and `observed` are counts of changes and seconds in which older looks fade, with time and with each change,
# so
# that a source that wakes or falls asleep is believed soon. A look that found a change may have missed others before
# it:
# it counts as the number of changes to be expected in its interval, given that there was one.

_DAY = 86_400.0
#: added to what was counted (Jeffreys' prior): one that never changed so far may do so tomorrow
_UNSEEN = 0.5
#: what a source begins with, as if it had been watched for so long without a change
FIRST_OBSERVED = _DAY
#: looks fade with this time, and by this share with each change
_MEMORY = 60 * _DAY
_FADE = 1 / 32


def rate(changes: float, observed: float) -> float:
    """Changes per second; never 0."""
    return (changes + _UNSEEN) / observed


def observe(changes: float, observed: float, interval: float, changed: bool) -> tuple[float, float]:
    """Both numbers after a look `interval` seconds after the one before."""
    kept = math.exp(-interval / _MEMORY)
    found = 0.0
    if changed:
        expected = rate(changes, observed) * interval
        found = expected / -math.expm1(-expected) if expected > 0 else 1.0
        kept *= 1 - _FADE
    return changes * kept + found, observed * kept + interval


#: the host of local paths, and of replicas, whose holders are asked: no rate and no share, only so many at once
LOCAL, REPLICAS = "", "(replicas)"
_OWN = (LOCAL, REPLICAS)
#: a host that sent us away is asked at half the rate afterwards; this time doubles it again
_RECOVERY_SECONDS = 1800.0
_SLOWEST = 1 / 1024
#: a shorter wait would not move a clock that counts from 1970
_SOON = 1e-6
#: in so long everybody has had its turn at a host that permits fewer at once than there are workers
_TURN_SECONDS = 20.0


def host_of(url: str) -> str:
    """The upstream host (and port) of a URL, in any of the forms git knows; LOCAL for paths."""
    if "://" in url:
        try:
            parts = urlsplit(url)
            return LOCAL if parts.scheme == "file" else parts.netloc.rpartition("@")[2].lower()
        except ValueError:
            return LOCAL
    head, colon, _ = url.partition(":")
    return head.rpartition("@")[2].lower() if colon and "/" not in head else LOCAL


class Bucket:
    """So many a second, and so many at once after a pause."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = max(1.0, burst)
        self._tokens = self._burst
        self._at = now

    def delay(self, now: float, pace: float = 1.0) -> float:
        """Seconds until the next may go, at this share of the rate."""
        rate = self._rate * pace
        if now > self._at:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * rate)
        self._at = now
        delay = (1.0 - self._tokens) / rate
        return delay if delay > _SOON else 0.0

    def take(self) -> None:
        self._tokens -= 1.0


class Limit(NamedTuple):
    concurrency: int
    #: requests per second
    rate: float


class Rest(NamedTuple):
    """What is worth remembering of a host that sent us away."""

    until: float
    #: the share of its rate that it is asked at afterwards, until it has recovered
    pace: float

    def pace_at(self, now: float) -> float:
        since = max(0.0, now - self.until) / _RECOVERY_SECONDS
        return min(1.0, self.pace * math.exp2(min(since, 64.0)))


_FRESH = Rest(0.0, 1.0)


@dataclass(slots=True)
class _Host:
    limit: Limit
    bucket: Bucket
    running: int = 0
    rest: Rest = _FRESH


def places(concurrency: int, part: tuple[float, float], now: float) -> int:
    """How many at once are ours at this moment. Parts that are next to each other add up to theirs together, always;
    who has less than one has it for a while, in turn with others."""
    start, end = (concurrency * edge + now / _TURN_SECONDS % 1.0 for edge in part)
    return math.floor(end) - math.floor(start)


def _turn(concurrency: int, part: tuple[float, float], now: float) -> float:
    """Seconds until one is ours, when none is."""
    end = concurrency * part[1] + now / _TURN_SECONDS % 1.0
    return max(_SOON, (math.floor(end) + 1 - end) * _TURN_SECONDS)


class Hosts:
    """A pure state machine: the caller brings the time."""

    def __init__(self, limit: Limit, by_name: Mapping[str, Limit] | None = None) -> None:
        self._limit = limit
        self._by_name = dict(by_name or {})
        self._hosts: dict[str, _Host] = {}
        #: the part of every limit that is ours: from where to where, of 1
        self.share = (0.0, 1.0)

    def delay(self, name: str, now: float) -> float:
        """Seconds until it may be asked: 0 now, inf when somebody has to leave first."""
        host = self._host(name, now)
        part = (0.0, 1.0) if name in _OWN else self.share
        ours = places(host.limit.concurrency, part, now)
        if host.running >= max(1, ours):
            return math.inf
        if now < host.rest.until:
            return host.rest.until - now
        if not ours:
            return _turn(host.limit.concurrency, part, now)
        return 0.0 if name in _OWN else host.bucket.delay(now, (part[1] - part[0]) * host.rest.pace_at(now))

    def enter(self, name: str, now: float) -> None:
        host = self._host(name, now)
        host.running += 1
        host.bucket.take()

    def leave(self, name: str) -> None:
        self._hosts[name].running -= 1

    def rest(self, name: str, now: float, until: float) -> Rest:
        """Nobody asks this host before `until`; then slower. Answers to what was under way do not slow it again."""
        host = self._host(name, now)
        known = host.rest
        pace = max(_SLOWEST, known.pace_at(now) / 2) if now >= known.until else known.pace
        host.rest = Rest(max(known.until, until), pace)
        return host.rest

    def restore(self, name: str, now: float, rest: Rest) -> None:
        """As it was before a restart."""
        self._host(name, now).rest = rest

    def _host(self, name: str, now: float) -> _Host:
        host = self._hosts.get(name)
        if host is None:
            limit = self._by_name.get(name, self._limit)
            host = self._hosts[name] = _Host(limit, Bucket(limit.rate, limit.rate, now))
        return host


# How long a source waits for its next look, by rule. All are shares: a budget shortens or stretches them together.

#: the geometric mean of this and the time between two changes is the wait of a source, while no budget says otherwise
_SHORT = 600.0
#: look again after this share of the time that has passed since the last change
_AGE_SHARE = 0.5
#: the age of a source that is unknown or failing
MONTH = 2_592_000.0
#: seconds of one unit of the cube root's queue, while no budget says otherwise
_UNIT = 100.0


def wait(rule: PollRule, age: float, changes: float, observed: float) -> float:
    """Seconds, `age` seconds after the last change. The mean lag at a given number of looks is least when each source
    is looked at in proportion to the square root of its rate: that is `share`."""
    match rule:
        case "share":
            return math.sqrt(_SHORT / rate(changes, observed))
        case "age":
            return max(0.0, age) * _AGE_SHARE
        case "cube_root":
            return _UNIT * cube_root(age)


def wait_failing(failures: int) -> float:
    return _UNIT * cube_root(None, failures)


def cube_root(age: float | None, failures: int = 0) -> float:
    """What one look adds to the place of a source in a queue whose smallest is next."""
    if failures or age is None or age < 0:
        return (failures + 1) * math.cbrt(MONTH)
    return math.cbrt(age)


# One decision for all sources of a worker: the rule's waits, bent so that they use the poll budget, within bounds.

#: what was not used of the budget for so long may be used at once
BURST_SECONDS = 600.0
#: the population is weighed again after so long, or when it has grown or shrunk by this share
_WEIGH_SECONDS, _WEIGH_SHARE = 3600.0, 0.1
#: waits are counted in cells this wide (natural logarithm)
CELL = 0.2
_FASTEST = 2.0**40


class Cell(msgspec.Struct, array_like=True):
    """Sources with the same bounds and about the same wait."""

    count: int = 0
    #: sum of 1 / wait
    looks: float = 0.0


Counted = tuple[Bounds, int, Cell]


class Policy:
    def __init__(
        self,
        rule: PollRule = "share",
        bounds: Bounds = Bounds(60.0, 604_800.0),  # noqa: B008  # frozen
        budget: float = 0.0,
    ) -> None:
        self.rule: PollRule = rule
        self.bounds = bounds
        self.budget = budget
        self._cells: dict[tuple[Bounds, int], Cell] = {}
        self._size = self._weighed = 0
        self._weighed_at = -math.inf
        self.pace = 1.0

    @classmethod
    def of(cls, settings: Settings) -> "Policy":
        return cls(settings.poll_rule, Bounds(settings.poll_min, settings.poll_max), settings.poll_budget)

    def bounds_of(self, own: SourceSettings) -> Bounds:
        """What the source, or its label, says, else what holds for all; the longer of two that exclude each other."""
        shortest = own.poll_min or min(self.bounds.shortest, own.poll_max or math.inf)
        return Bounds(shortest, max(shortest, own.poll_max or self.bounds.longest))

    def wait(self, age: float, changes: float, observed: float) -> float:
        return max(1.0, wait(self.rule, age, changes, observed))

    def after_success(self, bounds: Bounds, wait: float, now: float, chance: float) -> float:
        if self.budget and self._stale(now):
            self._weighed_at, self._weighed = now, self._size
            self.weigh()
        return interval(wait / self.pace, bounds, chance)

    def after_failure(self, bounds: Bounds, failures: int, pause: float, chance: float) -> float:
        """`pause` is what the class of the failure wants."""
        if self.rule != "cube_root":
            return pause
        return max(pause, interval(wait_failing(failures) / self.pace, bounds, chance))

    # the population

    def count(self, bounds: Bounds, wait: float, by: int) -> None:
        """A source with this wait comes (1) or goes (-1)."""
        if not self.budget or not wait:
            return
        key = bounds, math.floor(math.log(wait) / CELL)
        cell = self._cells.setdefault(key, Cell())
        self._size += by
        cell.count += by
        cell.looks += by / wait
        if cell.count <= 0:
            del self._cells[key]

    def cells(self) -> list[Counted]:
        """What `count` has counted, to be remembered over a restart."""
        return [(bounds, number, cell) for (bounds, number), cell in self._cells.items()]

    def restore(self, cells: Iterable[Counted]) -> None:
        for bounds, number, cell in cells:
            self._cells[bounds, number] = cell
            self._size += cell.count

    def _stale(self, now: float) -> bool:
        moved = abs(self._size - self._weighed) > _WEIGH_SHARE * self._weighed
        return moved or not self._weighed_at <= now < self._weighed_at + _WEIGH_SECONDS

    def weigh(self) -> None:
        """Find the pace at which all of them together use the budget; more looks than bounds allow cannot be used."""
        if not self._cells:
            return
        low, high = 1 / _FASTEST, _FASTEST
        while high / low > 1.001:
            self.pace = math.sqrt(low * high)
            low, high = (self.pace, high) if self.load() < self.budget else (low, self.pace)

    def load(self) -> float:
        """Looks per second at this pace."""
        return sum(
            cell.count / interval(cell.count / cell.looks / self.pace, bounds, 0.5)
            for (bounds, _), cell in self._cells.items()
        )


# What is known of a source's looks, and when the next one is: the state that every decision is made from.

_NONE = Bounds(0.0, 0.0)
_USUAL = SourceSettings()


@dataclass(slots=True, eq=False, kw_only=True)
class Plan:
    #: when the upstream was last asked and the mirror then was, or became, the same
    last_looked: float = 0.0
    last_changed: float = 0.0
    next_look: float = 0.0
    failures: int = 0
    failure: FailureClass | None = None
    #: the estimate of its rate of change
    changes: float = 0.0
    observed: float = FIRST_OBSERVED
    #: what the policy has counted it with; no wait: not yet
    wait: float = 0.0
    bounds: Bounds = _NONE

    def succeeded(
        self, at: float, changed: float | None, policy: Policy, chance: float, own: SourceSettings = _USUAL
    ) -> None:
        """Upstream and mirror were the same at `at`; `changed` is when it changed, if it did since the last look."""
        if 0 < self.last_looked < at:
            self.changes, self.observed = observe(
                self.changes, self.observed, at - self.last_looked, changed is not None
            )
        self.last_looked = at
        if changed is not None or not self.last_changed:
            self.last_changed = at if changed is None else changed
        self.failures = 0
        self.failure = None
        policy.count(self.bounds, self.wait, -1)
        self.bounds = policy.bounds_of(own)
        self.wait = policy.wait(at - self.last_changed, self.changes, self.observed)
        policy.count(self.bounds, self.wait, 1)
        self.next_look = at + policy.after_success(self.bounds, self.wait, at, chance)

    def failed(self, now: float, failure: Failure, policy: Policy, chance: float) -> None:
        self.failures = self.failures + 1 if failure.kind == self.failure else 1
        self.failure = failure.kind
        rest = pause(failure, self.failures, chance)
        self.next_look = now + policy.after_failure(self.bounds, self.failures, rest, chance)
