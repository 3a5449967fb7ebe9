"""How often a source changes, from looks that only say "changed since the last look" or "not": two numbers a source.

`changes` and `observed` are counts of changes and seconds in which older looks fade, with time and with each change, so
that a source that wakes or falls asleep is believed soon. A look that found a change may have missed others before it:
it counts as the number of changes to be expected in its interval, given that there was one.
"""

import math

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
