"""Whose turn it is: pickers choose, hands work, and a timer wakes them when the next one is due."""

import asyncio
from collections.abc import Awaitable, Callable

from skep.clock import Clock
from skep.config import Settings
from skep.schedule.hosts import REPLICAS, Bucket, Hosts, Limit
from skep.schedule.picker import Picker
from skep.schedule.policy import BURST_SECONDS
from skep.worker.hands import Hands

#: fetches that take long, at the same time
_HEAVY_AT_ONCE = 1
#: the clock may be set: never sleep longer than this on what it said
_LONGEST_NAP = 5.0

Work = Callable[[str], Awaitable[None]]


class Turns:
    def __init__(
        self, settings: Settings, clock: Clock, *, look: Work, fetch: Work, blocked: Callable[[], bool]
    ) -> None:
        self._clock = clock
        self._blocked = blocked
        self.hosts = _hosts(settings)
        budget = settings.poll_budget
        self._budget = Bucket(budget, budget * BURST_SECONDS, clock.now()) if budget else None
        self.looks, self.fetches, self.heavy = Picker(self.hosts), Picker(self.hosts), Picker(self.hosts)
        self._haulers = Hands(_HEAVY_AT_ONCE, lambda: self._take(self.heavy), fetch)
        self._lookers = Hands(settings.poll_concurrency, lambda: self._take(self.looks), look)
        self._fetchers = Hands(settings.fetch_concurrency, lambda: self._take(self.fetches), fetch)
        #: source -> the host it has entered
        self._entered: dict[str, str] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = 0.0
        self._started = False

    def start(self, group: asyncio.TaskGroup) -> None:
        self._started = True
        self._lookers.start(group)
        self._fetchers.start(group)
        self._haulers.start(group)

    def stop(self) -> None:
        self._started = False
        if self._timer is not None:
            self._timer.cancel()

    def running(self, source: str) -> bool:
        return source in self._entered

    def bump(self, source: str) -> None:
        now = self._clock.now()
        for picker in self._pickers:
            picker.bump(source, now)

    @property
    def _pickers(self) -> tuple[Picker, ...]:
        return self.fetches, self.heavy, self.looks

    def drop_fetch(self, source: str) -> None:
        self.fetches.discard(source)
        self.heavy.discard(source)

    def leave(self, source: str) -> None:
        """The source's work is done; fetches go before looks, for somebody has been promised them."""
        host, now = self._entered.pop(source), self._clock.now()
        self.hosts.leave(host)
        for picker in self._pickers:
            picker.freed(host, now)
        if len(self.fetches):
            self._fetchers.feed()

    def kick(self) -> None:
        """Something may have become possible."""
        if self._started:
            self._fetchers.feed()
            self._haulers.feed()
            self._lookers.feed()
            self._arm()

    def _take(self, picker: Picker) -> str | None:
        now = self._clock.now()
        budget = self._budget if picker is self.looks else None
        source = None if self._blocked() or (budget and budget.delay(now)) else picker.take(now)
        if source is None:
            self._arm()
        else:
            self._entered[source] = picker.entered
            if budget:
                budget.take()
        return source

    def _arm(self) -> None:
        now = self._clock.now()
        times = [due for due in (self.fetches.due(), self.heavy.due()) if due is not None]
        if (due := self.looks.due()) is not None:
            times.append(max(due, now + self._budget.delay(now)) if self._budget else due)
        if not times or self._blocked():
            return
        loop = asyncio.get_running_loop()
        at = loop.time() + min(max(min(times) - now, 0.0), _LONGEST_NAP)
        if self._timer is not None:
            if self._wakes_at <= at:
                return
            self._timer.cancel()
        self._wakes_at = at
        self._timer = loop.call_at(at, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.kick()


def _hosts(settings: Settings) -> Hosts:
    usual = Limit(settings.host_concurrency, settings.host_rate)
    by_name = {
        host.name.lower(): Limit(host.concurrency or usual.concurrency, host.rate or usual.rate)
        for host in settings.host
    }
    # whatever has to be copied, upstreams do not wait for all hands
    by_name[REPLICAS] = Limit(max(1, settings.fetch_concurrency // 2), usual.rate)
    return Hosts(usual, by_name)
