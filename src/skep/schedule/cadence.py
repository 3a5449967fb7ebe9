"""When to look at a source again: one pure decision over its history."""

import math

import msgspec

from skep.model.source import Failure, FailureClass

#: look again after this share of the time that has passed since the last change
_AGE_SHARE = 0.5
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


def after_success(age: float, bounds: Bounds, chance: float) -> float:
    """Seconds until the next look, `age` seconds after the last change; `chance` in [0, 1) spreads them."""
    return _clamp(_jitter(max(0.0, age) * _AGE_SHARE, chance), bounds.shortest, bounds.longest)


def after_failure(failure: Failure, failures: int, chance: float) -> float:
    """Seconds until the next try, after `failures` (from 1) in a row of this class."""
    first, longest = _BACKOFF[failure.kind]
    pause = first if failures <= 1 else min(longest, first * 2.0 ** min(failures - 1, 64))
    pause = _jitter(pause, chance)
    wish = failure.retry_after
    if wish is None or math.isnan(wish):
        return pause
    return max(pause, _clamp(wish, 0.0, _LONGEST_RETRY_AFTER))


def worth_telling(failures: int, before: FailureClass | None, now: FailureClass) -> bool:
    """A failure is told when it begins or changes, then at every doubling: not at each repeat."""
    return before != now or failures & (failures - 1) == 0


def _jitter(seconds: float, chance: float) -> float:
    return seconds * (1 - _JITTER + 2 * _JITTER * chance)


def _clamp(value: float, low: float, high: float) -> float:
    return max(low, min(high, value))
