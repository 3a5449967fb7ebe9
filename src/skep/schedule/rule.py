"""How long a source waits for its next look, by rule. All are shares: a budget shortens or stretches them together."""

import math

from skep.config import PollRule
from skep.schedule.estimate import rate

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
