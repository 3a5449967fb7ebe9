"""Time and randomness as parameters: code that decides takes a Clock, tests give it a clock they move themselves."""

import random
import time
from typing import Protocol


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

    def set(self, now: float) -> float:
        """Returns by how many seconds it was set forward."""
        forward = now - self.now()
        self._began += forward
        return forward


def _passed() -> float:
    """Since some moment, also while the machine slept where that can be known."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
