"""How hard one upstream host may be asked: so many at once, so many a second, and not at all while it wants rest."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

#: the host of local paths, and of replicas, whose holders are asked: no rate and no share, only so many at once
LOCAL, REPLICAS = "", "(replicas)"
_OWN = (LOCAL, REPLICAS)
#: a host that sent us away is asked at half the rate afterwards; this time doubles it again
_RECOVERY_SECONDS = 1800.0
_SLOWEST = 1 / 1024
#: a shorter wait would not move a clock that counts from 1970
_SOON = 1e-6
#: in so long everybody has had its turn at a host that permits fewer at once than there are workers
_TURN_SECONDS = 20.0


def host_of(url: str) -> str:
    """The upstream host (and port) of a URL, in any of the forms git knows; LOCAL for paths."""
    if "://" in url:
        try:
            parts = urlsplit(url)
            return LOCAL if parts.scheme == "file" else parts.netloc.rpartition("@")[2].lower()
        except ValueError:
            return LOCAL
    head, colon, _ = url.partition(":")
    return head.rpartition("@")[2].lower() if colon and "/" not in head else LOCAL


class Bucket:
    """So many a second, and so many at once after a pause."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = max(1.0, burst)
        self._tokens = self._burst
        self._at = now

    def delay(self, now: float, pace: float = 1.0) -> float:
        """Seconds until the next may go, at this share of the rate."""
        rate = self._rate * pace
        if now > self._at:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * rate)
        self._at = now
        delay = (1.0 - self._tokens) / rate
        return delay if delay > _SOON else 0.0

    def take(self) -> None:
        self._tokens -= 1.0


class Limit(NamedTuple):
    concurrency: int
    #: requests per second
    rate: float


class Rest(NamedTuple):
    """What is worth remembering of a host that sent us away."""

    until: float
    #: the share of its rate that it is asked at afterwards, until it has recovered
    pace: float

    def pace_at(self, now: float) -> float:
        since = max(0.0, now - self.until) / _RECOVERY_SECONDS
        return min(1.0, self.pace * math.exp2(min(since, 64.0)))


_FRESH = Rest(0.0, 1.0)


@dataclass(slots=True)
class _Host:
    limit: Limit
    bucket: Bucket
    running: int = 0
    rest: Rest = _FRESH


def places(concurrency: int, part: tuple[float, float], now: float) -> int:
    """How many at once are ours at this moment. Parts that are next to each other add up to theirs together, always;
    who has less than one has it for a while, in turn with others."""
    start, end = (concurrency * edge + now / _TURN_SECONDS % 1.0 for edge in part)
    return math.floor(end) - math.floor(start)


def _turn(concurrency: int, part: tuple[float, float], now: float) -> float:
    """Seconds until one is ours, when none is."""
    end = concurrency * part[1] + now / _TURN_SECONDS % 1.0
    return max(_SOON, (math.floor(end) + 1 - end) * _TURN_SECONDS)


class Hosts:
    """A pure state machine: the caller brings the time."""

    def __init__(self, limit: Limit, by_name: Mapping[str, Limit] | None = None) -> None:
        self._limit = limit
        self._by_name = dict(by_name or {})
        self._hosts: dict[str, _Host] = {}
        #: the part of every limit that is ours: from where to where, of 1
        self.share = (0.0, 1.0)

    def delay(self, name: str, now: float) -> float:
        """Seconds until it may be asked: 0 now, inf when somebody has to leave first."""
        host = self._host(name, now)
        part = (0.0, 1.0) if name in _OWN else self.share
        ours = places(host.limit.concurrency, part, now)
        if host.running >= max(1, ours):
            return math.inf
        if now < host.rest.until:
            return host.rest.until - now
        if not ours:
            return _turn(host.limit.concurrency, part, now)
        return 0.0 if name in _OWN else host.bucket.delay(now, (part[1] - part[0]) * host.rest.pace_at(now))

    def enter(self, name: str, now: float) -> None:
        host = self._host(name, now)
        host.running += 1
        host.bucket.take()

    def leave(self, name: str) -> None:
        self._hosts[name].running -= 1

    def rest(self, name: str, now: float, until: float) -> Rest:
        """Nobody asks this host before `until`; then slower. Answers to what was under way do not slow it again."""
        host = self._host(name, now)
        known = host.rest
        pace = max(_SLOWEST, known.pace_at(now) / 2) if now >= known.until else known.pace
        host.rest = Rest(max(known.until, until), pace)
        return host.rest

    def restore(self, name: str, now: float, rest: Rest) -> None:
        """As it was before a restart."""
        self._host(name, now).rest = rest

    def _host(self, name: str, now: float) -> _Host:
        host = self._hosts.get(name)
        if host is None:
            limit = self._by_name.get(name, self._limit)
            host = self._hosts[name] = _Host(limit, Bucket(limit.rate, limit.rate, now))
        return host
