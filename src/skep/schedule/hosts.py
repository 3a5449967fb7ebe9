"""How hard one upstream host may be asked: so many at once, so many a second, and not at all while it wants rest."""

import math
from dataclasses import dataclass
from urllib.parse import urlsplit

#: the host of local paths: no rate, only so many at once
LOCAL = ""


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


@dataclass(slots=True)
class _Host:
    tokens: float
    at: float
    running: int = 0
    rests_until: float = 0.0


class Hosts:
    """A pure state machine: the caller brings the time."""

    def __init__(self, concurrency: int, rate: float) -> None:
        self._concurrency = concurrency
        self._rate = rate
        self._burst = max(1.0, rate)
        self._hosts: dict[str, _Host] = {}

    def delay(self, name: str, now: float) -> float:
        """Seconds until it may be asked: 0 now, inf when somebody has to leave first."""
        host = self._host(name, now)
        if host.running >= self._concurrency:
            return math.inf
        if now < host.rests_until:
            return host.rests_until - now
        if name == LOCAL:
            return 0.0
        if now > host.at:
            host.tokens = min(self._burst, host.tokens + (now - host.at) * self._rate)
        host.at = now
        return 0.0 if host.tokens >= 1.0 else (1.0 - host.tokens) / self._rate

    def enter(self, name: str, now: float) -> None:
        host = self._host(name, now)
        host.running += 1
        host.tokens -= 1.0

    def leave(self, name: str) -> None:
        self._hosts[name].running -= 1

    def rest(self, name: str, until: float) -> None:
        """Nobody asks this host before `until`."""
        host = self._host(name, until)
        host.rests_until = max(host.rests_until, until)

    def resting(self, now: float) -> dict[str, float]:
        """What is worth remembering over a restart: host -> until."""
        return {name: host.rests_until for name, host in self._hosts.items() if host.rests_until > now}

    def _host(self, name: str, now: float) -> _Host:
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = _Host(self._burst, now)
        return host
