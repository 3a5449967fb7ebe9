"""Which source is next: the one due longest whose host may be asked. Those of a busy host wait aside, in order."""

import math
from collections import OrderedDict

from skep.schedule.hosts import Hosts
from skep.schedule.queue import DueQueue


class Picker:
    """Several pickers may share one Hosts; each is told by `freed` when somebody left a host."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._queue = DueQueue()
        #: hosts with somebody waiting, by the time they may be asked again
        self._ready = DueQueue()
        self._waiting: dict[str, OrderedDict[str, None]] = {}
        self._host_of: dict[str, str] = {}
        #: the host that the last `take` entered
        self.entered = ""

    def __len__(self) -> int:
        return len(self._host_of)

    def __contains__(self, key: str) -> bool:
        return key in self._host_of

    def put(self, key: str, host: str, due: float) -> None:
        self.discard(key)  # it may wait aside, for another host perhaps
        self._host_of[key] = host
        self._queue.put(key, due)

    def bump(self, key: str, now: float) -> None:
        """Before everybody else, if it is here at all."""
        host = self._host_of.get(key)
        if host is None:
            return
        if key in self._waiting.get(host, ()):
            self._waiting[host].move_to_end(key, last=False)
        else:
            self._queue.put(key, min(now, self._queue.due() or now) - 1e-6)

    def discard(self, key: str) -> None:
        host = self._host_of.pop(key, None)
        if host is None:
            return
        self._queue.discard(key)
        waiting = self._waiting.get(host)
        if waiting is not None:
            waiting.pop(key, None)
            self._tidy(host)

    def take(self, now: float) -> str | None:
        """The next one, with its host entered: the caller leaves it."""
        while (host := self._ready.pop(now)) is not None:
            delay = self._hosts.delay(host, now)
            if delay > 0:
                self._retry(host, now + delay)
                continue
            key, _ = self._waiting[host].popitem(last=False)
            self._ready.put(host, now)
            self._tidy(host)
            return self._enter(key, host, now)
        while (key_due := self._queue.pop(now)) is not None:
            host = self._host_of[key_due]
            if host in self._waiting:
                self._waiting[host][key_due] = None
                continue
            delay = self._hosts.delay(host, now)
            if delay <= 0:
                return self._enter(key_due, host, now)
            self._waiting[host] = OrderedDict({key_due: None})
            self._retry(host, now + delay)
        return None

    def freed(self, host: str, now: float) -> None:
        if host in self._waiting:
            self._ready.put(host, now)

    def due(self) -> float | None:
        """When `take` may have something, unless somebody leaves a host before."""
        times = [time for time in (self._queue.due(), self._ready.due()) if time is not None]
        return min(times, default=None)

    def _enter(self, key: str, host: str, now: float) -> str:
        del self._host_of[key]
        self._hosts.enter(host, now)
        self.entered = host
        return key

    def _retry(self, host: str, at: float) -> None:
        if at < math.inf:
            self._ready.put(host, at)

    def _tidy(self, host: str) -> None:
        if not self._waiting[host]:
            del self._waiting[host]
            self._ready.discard(host)
