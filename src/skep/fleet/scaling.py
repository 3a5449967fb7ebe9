"""How many workers there should be. Pure: what was seen goes in, a number comes out."""

import math

import msgspec

from skep.model.answers import TaskLoad


class Aim(msgspec.Struct, frozen=True):
    least: int = 1
    most: int = 10
    #: seconds in which what waits should be done
    within: float = 60.0


def wanted(workers: int, tasks: TaskLoad, aim: Aim) -> int:
    """As many as do what waits in time, at the rate of the `workers` there are: twice as many at most, or one less."""
    return min(max(_wanted(workers, tasks, aim), aim.least), aim.most)


def _wanted(workers: int, tasks: TaskLoad, aim: Aim) -> int:
    if workers == 0:
        return 1 if tasks.ready else 0
    if not tasks.ready:
        return workers - (tasks.placed < workers)
    if not tasks.ended:
        return workers + 1
    needed = tasks.ended + tasks.ready * 60.0 / aim.within
    return min(math.ceil(workers * needed / tasks.ended), 2 * workers)
