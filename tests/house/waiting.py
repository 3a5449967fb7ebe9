"""Waiting for what a running Skep must do sooner or later."""

import time
from collections.abc import Callable
from typing import TypeVar

from tests.house.running import RunningSkep

T = TypeVar("T")
#: only so that a broken test ends, and says what the server said
_SECONDS = 180.0


def until(found: Callable[[], T | None], skep: RunningSkep) -> T:
    last = time.monotonic() + _SECONDS
    while not (answer := found()):
        assert time.monotonic() < last, "it did not come" + skep.tail()
        time.sleep(0.1)
    return answer
