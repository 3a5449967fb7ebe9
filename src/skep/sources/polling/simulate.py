"""Replays a population through the schedule's own policy with a clock that jumps: no network, no waiting."""

import heapq
import random
import tomllib
from argparse import Namespace
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from skep.base.errors import BadInput
from skep.interfaces.input_files import read_text
from skep.interfaces.terminal import in_json, print_table
from skep.sources.polling.schedule import BURST_SECONDS, Bounds, Bucket, Plan, Policy

# Sources to try a schedule on: groups that change at a rate of their own.


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sources: Annotated[int, Meta(ge=1)]
    commits_per_day: Annotated[float, Meta(ge=0, le=86_400)]


class Population(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    group: Annotated[tuple[Group, ...], Meta(min_length=1)]

    def rates(self) -> list[float]:
        """Commits per day of each source."""
        return [group.commits_per_day for group in self.group for _ in range(group.sources)]


#: share of the sources, commits a day: few are busy, most sleep
_MIX = ((0.01, 20.0), (0.09, 2.0), (0.30, 0.2), (0.60, 0.02))


def mix(sources: int) -> Population:
    groups = [(max(1, round(sources * share)), commits) for share, commits in _MIX]
    return Population(tuple(Group(count, commits) for count, commits in groups))


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


# `skep simulate`: how fresh mirrors would be, and at what load, by the schedule's own policy and no network.

_SIMULATE_DAY = 86_400.0


def run(args: Namespace) -> None:
    rates = _population(args).rates()
    if not 0 < args.poll_min <= args.poll_max or args.budget < 0 or not 0 < args.days <= 3650:
        raise BadInput("these make no schedule", hint="0 < poll-min <= poll-max, 0 < days <= 3650, budget at least 0")
    theirs = simulate(rates, args.days, Policy("age", SOURCEGRAPH, args.budget / _SIMULATE_DAY), args.seed)
    budget = (args.budget or theirs.looks_per_day) / _SIMULATE_DAY
    ours = simulate(rates, args.days, Policy(args.rule, Bounds(args.poll_min, args.poll_max), budget), args.seed)
    found = {args.rule: ours, "age/2 within 45 s and 8 h": theirs}
    if in_json(args, *({"rule": name, **msgspec.structs.asdict(freshness)} for name, freshness in found.items())):
        return
    head = ("RULE", "LOOKS/DAY", "EACH", "MEAN LAG", "P50", "P95", "LONGEST UNSEEN")
    print_table(head, [_row(name, freshness, len(rates)) for name, freshness in found.items()])
    if ours.mean and theirs.mean:
        print(f"{ours.commits} commits; {args.rule} sees them {theirs.mean / ours.mean:.2f} times as soon")


def _population(args: Namespace) -> Population:
    if not args.file:
        if not 0 < args.sources <= 1_000_000:
            raise BadInput(f"{args.sources} sources cannot be simulated", hint="1 to 1000000")
        return mix(args.sources)
    try:
        return msgspec.convert(tomllib.loads(read_text(args.file)), Population)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        hint = "[[group]] with sources = 100 and commits_per_day = 0.5, as often as needed"
        raise BadInput(f"{args.file}: is no population: {error}", hint=hint) from error


def _row(name: str, found: Freshness, sources: int) -> tuple[str, ...]:
    lags = (found.mean, found.p50, found.p95, found.longest)
    return (name, f"{found.looks_per_day:.0f}", f"{found.looks_per_day / sources:.2f}", *map(_minutes, lags))


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
