"""The threads of searches, of which few run at once: as many as there are processors, and of long ones one less.

They share the interpreter with the event loop. If all of them ran, it would wait for its turn among them, and a short
search would take as long as the long ones beside it.
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Semaphore

_THREADS = 32
#: seconds after which a search is a long one
_LONG = 0.02


class Lanes(ThreadPoolExecutor):
    def __init__(self, at_once: int = max(2, os.cpu_count() or 1)) -> None:
        super().__init__(_THREADS, thread_name_prefix="search")
        self.short, self.long = Semaphore(at_once), Semaphore(max(1, at_once - 1))


class Ride:
    """One search on the lanes: its thread waits here until it may go on. False: `until` came first."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._lane: Semaphore | None = None
        self._since = 0.0

    def begin(self, until: float) -> bool:
        return self._enter(self._lanes.short, until)

    def go_on(self, until: float) -> bool:
        if self._lane is self._lanes.short and time.monotonic() - self._since > _LONG:
            self.end()
            return self._enter(self._lanes.long, until)
        return True

    def _enter(self, lane: Semaphore, until: float) -> bool:
        if not lane.acquire(timeout=max(0.0, until - time.monotonic())):
            return False
        self._lane, self._since = lane, time.monotonic()
        return True

    def end(self) -> None:
        if self._lane is not None:
            self._lane.release()
            self._lane = None
