"""Where a series of numbers moves for good. Pure; why it is done so, and how well: docs/decisions/steps.md.

Values are compared by their logarithms, so that 5 % is 5 % at every height. The best division into level stretches is
found exactly, and a border between two of them is a step only when a test of both sides says so too.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from statistics import median

import msgspec
import numpy as np
from numpy.typing import NDArray

# Few values of two sides: a median with its interval, and what runs that took turns say. Pure, and quick to import.


class Spread(msgspec.Struct, frozen=True):
    """A median and between what it lies with 95 % confidence."""

    median: float
    low: float
    high: float


def spread_of(values: Sequence[float], level: float = 0.95) -> Spread:
    """By order statistics: nothing is assumed of the distribution. Of fewer than 6 values it is their whole range."""
    ordered = sorted(values)
    n, tail, k = len(ordered), 0.0, 0
    while k < n // 2 and (tail := tail + math.comb(n, k) / 2.0**n) <= (1.0 - level) / 2:
        k += 1
    rank = max(0, k - 1)
    return Spread(median(ordered), ordered[rank], ordered[n - 1 - rank])


class Compared(msgspec.Struct, frozen=True):
    """The second of two sides beside the first."""

    #: median of second / first, pair by pair
    ratio: float
    low: float
    high: float
    p: float


def compare(first: Sequence[float], second: Sequence[float]) -> Compared:
    """Of runs that took turns: what disturbs the machine disturbs both of a pair. Wilcoxon's signed ranks, exactly."""
    ratios = [b / a for a, b in zip(first, second, strict=True)]
    spread = spread_of(ratios)
    logs = [math.log(ratio) for ratio in ratios if ratio != 1.0]
    sizes = sorted(map(abs, logs))
    # equal ones share the mean of their ranks
    ranks = {size: bisect_left(sizes, size) + (sizes.count(size) + 1) / 2 for size in set(sizes)}
    up = sum(ranks[abs(one)] for one in logs if one > 0)
    down = sum(ranks[abs(one)] for one in logs if one < 0)
    return Compared(spread.median, spread.low, spread.high, _signed_ranks(min(up, down), len(logs)))


def _signed_ranks(smaller: float, n: int) -> float:
    """How likely the sum of the ranks of one side is so small when signs are chance."""
    ways = [1.0]
    for rank in range(1, n + 1):
        ways = [(a + b) / 2 for a, b in zip(ways + [0.0] * rank, [0.0] * rank + ways, strict=True)]
    return min(1.0, 2.0 * sum(ways[: math.floor(smaller) + 1]))


Floats = NDArray[np.float64]

#: a stretch has at least so many values
SHORTEST = 4
#: how much better a division has to explain the values, in squares of the noise, for each further step
_PRICE = 15.0
#: a border is a step below this probability of seeing it by chance
ALPHA = 0.001
#: values beyond so many times the noise from their neighbours count as if they were there
_OUTLIER = 3.5
#: places that explain the values so little worse than the best one are as likely
_DOUBT = 3.84
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


class Found(msgspec.Struct, frozen=True):
    """A step: from value number `at` on the level is another one."""

    at: int
    #: it may as well be anywhere from `low` to `high`
    low: int
    high: int
    before: float
    after: float
    p: float

    @property
    def change(self) -> float:
        """0.05: 5 % more."""
        return self.after / self.before - 1.0


def find_steps(values: Sequence[float], *, alpha: float = ALPHA, least: float = 0.0) -> list[Found]:
    """Oldest value first, all of them above 0. `least`: smaller changes are none."""
    if len(values) < 2 * SHORTEST:
        return []
    logs: Floats = np.log(np.asarray(values, dtype=np.float64))
    spread = _spread(logs)
    clipped = _clipped(logs, spread)
    borders = _divide(clipped, spread)
    while borders:
        edges = [0, *borders, len(clipped)]
        odds = [
            _chance(clipped[a:b], clipped[b:c], least) for a, b, c in zip(edges, edges[1:], edges[2:], strict=False)
        ]
        worst = int(np.argmax(odds))
        if odds[worst] <= alpha:
            return [
                _found(clipped, logs, spread, a, b, c, p)
                for a, b, c, p in zip(edges, edges[1:], edges[2:], odds, strict=False)
            ]
        del borders[worst]
    return []


def noise(values: Sequence[float]) -> float:
    """How much two measurements of the same differ, as a part of their size. Steps hardly count."""
    return _spread(np.log(np.asarray(values, dtype=np.float64))) if len(values) > 1 else 0.0


def _spread(logs: Floats) -> float:
    """From differences of neighbours; their median, so that steps and outliers do not count."""
    moves = np.abs(np.diff(logs))
    spread = float(np.median(moves)) * 1.4826 / math.sqrt(2.0)
    return max(spread, float(np.mean(moves)) * 0.1, 1e-9)


def _clipped(logs: Floats, spread: float) -> Floats:
    """A single value far from its neighbours must not make a stretch of its own."""
    padded = np.pad(logs, 2, mode="edge")
    near = np.median(np.lib.stride_tricks.sliding_window_view(padded, 5), axis=1)
    return np.clip(logs, near - _OUTLIER * spread, near + _OUTLIER * spread)


def _divide(values: Floats, spread: float) -> list[int]:
    """Optimal partitioning: the borders that make the squares of what is left, and the price of borders, least."""
    n = len(values)
    sums = np.concatenate(([0.0], np.cumsum((values - values.mean()) / spread)))
    best = np.full(n + 1, np.inf)
    best[0] = -_PRICE
    last = np.zeros(n + 1, dtype=np.int64)
    for end in range(SHORTEST, n + 1):
        starts = np.arange(end - SHORTEST + 1)
        # the sum of squares itself is the same for every division
        costs = best[: len(starts)] - (sums[end] - sums[starts]) ** 2 / (end - starts) + _PRICE
        last[end] = at = int(np.argmin(costs))
        best[end] = costs[at]
    borders: list[int] = []
    while (n := int(last[n])) > 0:
        borders.append(n)
    return borders[::-1]


def _chance(left: Floats, right: Floats, least: float) -> float:
    """Welch's test; 1 when the change is too small to speak of."""
    shift = abs(float(right.mean() - left.mean()))
    if shift < math.log1p(least):
        return 1.0
    a, b = (float(side.var(ddof=1)) / len(side) for side in (left, right))
    if a + b <= 0.0:
        return 0.0
    freedom = (a + b) ** 2 / (a**2 / (len(left) - 1) + b**2 / (len(right) - 1))
    return student(shift / math.sqrt(a + b), freedom)


def student(t: float, freedom: float) -> float:
    """Both tails of Student's distribution beyond t: an integral over an angle, where it is smooth."""
    low = math.atan(t / math.sqrt(freedom))
    half = min(math.pi / 2 - low, 20.0 / math.sqrt(freedom)) / 2
    heights = np.cos(low + half * (_NODES + 1.0)) ** (freedom - 1.0)
    scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(math.pi) / 2
    return min(1.0, 2.0 * half * float(heights @ _WEIGHTS) * math.exp(scale))


def _found(clipped: Floats, logs: Floats, spread: float, a: int, b: int, c: int, p: float) -> Found:
    """With the places where it may be as well: those that explain the two stretches nearly as well."""
    places = np.arange(a + 1, c)
    sums = np.concatenate(([0.0], np.cumsum((clipped[a:c] - clipped[a:c].mean()) / spread)))
    left, right = sums[places - a], sums[-1] - sums[places - a]
    costs = -(left**2 / (places - a)) - right**2 / (c - places)
    likely = places[costs <= costs[b - a - 1] + _DOUBT]
    before, after = (float(np.exp(np.median(side))) for side in (logs[a:b], logs[b:c]))
    return Found(b, int(likely.min()), int(likely.max()), before, after, p)


def between(left: Sequence[float], right: Sequence[float], alpha: float = 0.01) -> Found | None:
    """Do two measurements differ? Of few values each, so that one test has to do."""
    a, b = (np.log(np.asarray(side, dtype=np.float64)) for side in (left, right))
    p = _chance(a, b, 0.0) if min(len(a), len(b)) > 1 else 1.0
    return Found(1, 1, 1, float(np.median(left)), float(np.median(right)), p) if p <= alpha else None


def divided(values: Sequence[float]) -> Found:
    """The best place for one step in values that have one."""
    logs: Floats = np.log(np.asarray(values, dtype=np.float64))
    places = np.arange(1, len(logs))
    sums = np.concatenate(([0.0], np.cumsum(logs - logs.mean())))
    at = int(places[np.argmax(sums[places] ** 2 / places + sums[places] ** 2 / (len(logs) - places))])
    return Found(at, at, at, float(np.median(values[:at])), float(np.median(values[at:])), 0.0)
