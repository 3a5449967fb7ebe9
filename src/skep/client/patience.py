"""How long to wait before the next attempt, and when to give up."""

import random
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from skep.errors import Unavailable

T = TypeVar("T")

_FIRST = 0.05
_MOST = 2.0


class Patience:
    """Pauses double, and are spread so that many clients do not come back at the same moment."""

    def __init__(
        self,
        seconds: float | None,
        *,
        begun: float | None = None,
        now: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`seconds` after `begun`, or after now, the error is final; None: never."""
        self._seconds = seconds
        self._now = now
        self._chance = chance
        self._next = _FIRST
        self._begun = now() if begun is None else begun

    def restart(self) -> None:
        self._next = _FIRST
        self._begun = self._now()

    def pause(self, error: Unavailable) -> float:
        """Seconds to wait, or the error when patience is at its end."""
        left = None if self._seconds is None else self._begun + self._seconds - self._now()
        if left is not None and left <= 0:
            raise error
        pause, self._next = self._next * (0.5 + self._chance() / 2), min(self._next * 2, _MOST)
        return pause if left is None else min(pause, left)


def follow(events: Callable[[str], Iterator[T | None]], place: Callable[[T], str]) -> Iterator[T]:
    """What comes after the `place` of the last one, None being a sign of life. Once it has begun it outlives the
    server's restarts."""
    last, patience, begun = "", Patience(None), False
    while True:
        try:
            for one in events(last):
                begun = True
                patience.restart()
                if one is not None:
                    last = place(one)
                    yield one
            return
        except Unavailable as error:
            if not begun:
                raise
            time.sleep(patience.pause(error))


def persist(attempt: Callable[[], T], patience: Patience, wait: Callable[[float], object] = time.sleep) -> T:
    """Attempts until it is done or patience ends; other errors than Unavailable are final at once."""
    while True:
        try:
            return attempt()
        except Unavailable as error:
            wait(patience.pause(error))
