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
