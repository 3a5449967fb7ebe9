"""Few values of two sides: a median with its interval, and what runs that took turns say. Pure, and quick to import."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from statistics import median

import msgspec


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
