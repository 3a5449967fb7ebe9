"""Replays a population through the schedule's own policy with a clock that jumps: no network, no waiting."""

import heapq
import random
from collections.abc import Sequence

import msgspec

from skep.schedule.cadence import Bounds
from skep.schedule.hosts import Bucket
from skep.schedule.plan import Plan
from skep.schedule.policy import BURST_SECONDS, Policy

_DAY = 86_400.0
#: the start of the clock, and the share of the time in which a policy learns and nothing is counted
_START, _LEARNING = 1_000_000.0, 1 / 3
#: Sourcegraph's bounds, beside which every rule is shown
SOURCEGRAPH = Bounds(45.0, 28_800.0)


class Freshness(msgspec.Struct, frozen=True):
    looks_per_day: float
    commits: int
    #: seconds from commit to seen, over all commits
    mean: float
    p50: float
    p95: float
    #: the longest that any source was not looked at
    longest: float


def simulate(rates: Sequence[float], days: float, policy: Policy, seed: int = 0) -> Freshness:
    """`rates` in commits a day; commits come at random (Poisson), the same ones for every policy."""
    chance, end, counted = random.Random(seed), _START + days * _DAY, _START + days * _DAY * _LEARNING  # noqa: S311
    commits = [_Commits(rate / _DAY, seed * 1_000_003 + n) for n, rate in enumerate(rates)]
    plans = [Plan() for _ in rates]
    bucket = Bucket(policy.budget, policy.budget * BURST_SECONDS, _START) if policy.budget else None
    queue = [(_START, n) for n in range(len(rates))]
    now, looks, longest = _START, 0, 0.0
    lags: list[float] = []
    while queue[0][0] < end and now < end:
        due, n = queue[0]
        now = max(now, due)
        if bucket is not None:
            now += bucket.delay(now)
            bucket.take()
        plan = plans[n]
        seen = commits[n].until(now)
        if now >= counted:
            looks += 1
            longest = max(longest, now - (plan.last_looked or _START))
            lags += [now - at for at in seen if at >= counted]
        plan.succeeded(now, seen[-1] if seen else None, policy, chance.random())
        heapq.heapreplace(queue, (plan.next_look, n))
    lags.sort()
    mean = sum(lags) / len(lags) if lags else 0.0
    per_day = looks / (days * (1 - _LEARNING))
    return Freshness(per_day, len(lags), mean, _at(lags, 0.5), _at(lags, 0.95), longest)


class _Commits:
    """Times of a Poisson process, made when they are asked for."""

    __slots__ = ("_next", "_random", "_rate")

    def __init__(self, rate: float, seed: int) -> None:
        self._rate = rate
        self._random = random.Random(seed)  # noqa: S311
        self._next = _START + self._gap()

    def until(self, now: float) -> list[float]:
        times = []
        while self._next <= now:
            times.append(self._next)
            self._next += self._gap()
        return times

    def _gap(self) -> float:
        return self._random.expovariate(self._rate) if self._rate else float("inf")


def _at(values: Sequence[float], share: float) -> float:
    return values[int(share * (len(values) - 1))] if values else 0.0
