"""The next look in seconds: spread so that sources do not come in herds, and rarer while a source fails."""

import math

import msgspec

from skep.model.source import Failure, FailureClass

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
