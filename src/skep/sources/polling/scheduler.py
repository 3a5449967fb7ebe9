"""Whose turn it is: pickers choose, hands work, and a timer wakes them when the next one is due."""

import asyncio
import heapq
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from skep.base.clock import Clock
from skep.config.settings import Settings
from skep.sources.polling.schedule import BURST_SECONDS, REPLICAS, Bucket, Hosts, Limit

# What is due next: a heap of times in which any key can be moved or taken out.

_SLACK = 64


class DueQueue:
    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []
        #: key -> the one ticket of it that counts; others in the heap are leftovers
        self._tickets: dict[str, int] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._tickets)

    def __contains__(self, key: str) -> bool:
        return key in self._tickets

    def put(self, key: str, due: float) -> None:
        """Add the key, or move it to another time."""
        self._next += 1
        self._tickets[key] = self._next
        heapq.heappush(self._heap, (due, self._next, key))
        if len(self._heap) > 2 * len(self._tickets) + _SLACK:
            self._heap = [item for item in self._heap if self._tickets.get(item[2]) == item[1]]
            heapq.heapify(self._heap)

    def discard(self, key: str) -> None:
        self._tickets.pop(key, None)

    def due(self) -> float | None:
        """When the first one is due."""
        heap, tickets = self._heap, self._tickets
        while heap and tickets.get(heap[0][2]) != heap[0][1]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop(self, now: float) -> str | None:
        """Take the one that is due longest; of the same time, the one that was put first."""
        due = self.due()
        if due is None or due > now:
            return None
        key = heapq.heappop(self._heap)[2]
        del self._tickets[key]
        return key


# Which source is next: the one due longest whose host may be asked. Those of a busy host wait aside, in order.


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


# A fixed number of tasks that take whatever is ready: no task, queue or lock per piece of work.


class Hands:
    def __init__(self, size: int, take: Callable[[], str | None], work: Callable[[str], Awaitable[None]]) -> None:
        self._size = size
        self._take = take
        self._work = work
        self._idle: list[asyncio.Future[str]] = []

    def start(self, group: asyncio.TaskGroup) -> None:
        for _ in range(self._size):
            group.create_task(self._hand())

    def feed(self) -> None:
        """Something may be ready: give it to idle hands."""
        while self._idle and (key := self._take()) is not None:
            self._idle.pop().set_result(key)

    async def _hand(self) -> None:
        while True:
            key = self._take()
            if key is None:
                waiting = asyncio.get_running_loop().create_future()
                self._idle.append(waiting)
                key = await waiting
            await self._work(key)


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
