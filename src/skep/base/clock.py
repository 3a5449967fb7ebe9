"""Time and randomness as parameters: code that decides takes a Clock, tests give it a clock they move themselves."""

import random
import time
from typing import Protocol

#: seconds that are not worth setting a clock for
_UNSURE = 1.0


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def random(self) -> float:
        """A number in [0, 1)."""
        ...


class SystemClock:
    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)  # noqa: S311  # jitter, not secrets

    def now(self) -> float:
        return time.time()

    def random(self) -> float:
        return self._random.random()


class MemberClock(SystemClock):
    """It passes on evenly however the machine's clock is set, and is set itself by the coordinator's."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)
        self._began = time.time() - _passed()

    def now(self) -> float:
        return self._began + _passed()

    def move(self, seconds: float) -> None:
        """Forward, or back."""
        self._began += seconds


def behind(said: float, now: float, theirs: float) -> float:
    """By how many seconds a clock is behind another, which answered `theirs` when it was told `said`, and whose answer
    came `now`; 0 where the time that took explains it."""
    took = now - said
    if took < 0:  # it was set since it said so
        return 0.0
    seconds = theirs - (said + took / 2)
    return seconds if abs(seconds) > took / 2 + _UNSURE else 0.0


def _passed() -> float:
    """Since some moment, also while the machine slept where that can be known."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
