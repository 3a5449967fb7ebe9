"""How many workers there should be. Pure: what was seen goes in, a number comes out."""

import math

import msgspec


class Load(msgspec.Struct, frozen=True):
    """What there is to do, and who does it."""

    #: those that are alive
    workers: int
    #: tasks that wait for one
    ready: int
    #: tasks that have one
    placed: int
    #: tasks of contexts that ended within the last minute
    ended: int


class Aim(msgspec.Struct, frozen=True):
    least: int = 1
    most: int = 10
    #: seconds in which what waits should be done
    within: float = 60.0


def wanted(load: Load, aim: Aim) -> int:
    """As many as do what waits in time, at the rate of those there are: twice as many at most, or one less."""
    return min(max(_wanted(load, aim), aim.least), aim.most)


def _wanted(load: Load, aim: Aim) -> int:
    if load.workers == 0:
        return 1 if load.ready else 0
    if not load.ready:
        return load.workers - (load.placed < load.workers)
    if not load.ended:
        return load.workers + 1
    needed = load.ended + load.ready * 60.0 / aim.within
    return min(math.ceil(load.workers * needed / load.ended), 2 * load.workers)
