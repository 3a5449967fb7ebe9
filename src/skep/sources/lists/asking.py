"""Asking a host which repositories it has: addresses checked, redirects bounded, secrets shown to nobody else."""

from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

from skep.base.clock import Clock
from skep.net.connection import NetworkError
from skep.net.guard import Guard
from skep.sources.credentials import sealed
from skep.sources.git.http import Http, Reply
from skep.sources.model import Key

_REDIRECTS = 3

#: from a host to what it may be shown, the first that is not at its limit
Keys = Callable[[str], Awaitable[Sequence[Key]]]


class Refused(Exception):
    """The host did not tell; nothing follows from that. The text is for people."""

    def __init__(self, message: str, pause: float = 0.0) -> None:
        super().__init__(message)
        self.pause = pause


class Asking:
    def __init__(self, http: Http, guard: Guard, clock: Clock, keys: Keys) -> None:
        self._http = http
        self._guard = guard
        self._clock = clock
        self._keys = keys
        #: name of a credential -> until when its limit is used up
        self._rests: dict[str, float] = {}

    async def get(self, url: str, show: Callable[[Key], str], *headers: str, validator: str = "") -> Reply:
        """With a validator of an earlier reply, 304 says that it is still the same. `show` makes a header of a key."""
        host = urlsplit(url).netloc
        if validator:
            name = "If-None-Match" if validator.startswith(('"', "W/")) else "If-Modified-Since"
            headers = (*headers, f"{name}: {validator}")
        keys = await self._keys(host) if sealed(self._guard.check_url(url.partition("?")[0])) else []
        fresh = [key for key in keys if self._rests.get(key.name, 0.0) <= self._clock.now()]
        for key in fresh or keys[:1]:
            reply = await self._follow(url, [*headers, show(key)])
            if not _limited(reply):
                return reply
            self._rests[key.name] = self._clock.now() + reply.retry_after
        return reply if keys else await self._follow(url, headers)

    async def _follow(self, url: str, headers: Sequence[str]) -> Reply:
        host = urlsplit(url).netloc
        for _ in range(_REDIRECTS):
            reply = await self._exchange(url, headers)
            if reply.status not in (301, 302, 307, 308):
                return reply
            if urlsplit(reply.redirect)[:2] != urlsplit(url)[:2]:
                raise Refused(f"{host} sends us to another host, which is not followed")
            url = reply.redirect
        raise Refused(f"{host} sends us round in circles")

    async def _exchange(self, url: str, headers: Sequence[str]) -> Reply:
        parts = self._guard.check_url(url.partition("?")[0])
        try:
            return await self._http.ask(url, headers, None, await self._guard.pins(parts))
        except (OSError, TimeoutError):
            raise Refused(f"the host '{parts.host}' was not found") from None
        except NetworkError as error:
            raise Refused(f"{parts.authority}: {error}") from None


def body_of(reply: Reply, host: str, unknown: str) -> bytes:
    """`unknown` is what a 404 means."""
    match reply.status:
        case 200:
            return reply.body
        case 404:
            raise Refused(unknown)
        case 401 | 403 | 429 if _limited(reply):
            raise Refused(f"{host} says we ask too often", float(reply.retry_after))
        case 401 | 403:
            raise Refused(f"{host} refuses access ({reply.status}); `skep credential set NAME --host {host} --api`")
        case status:
            raise Refused(f"{host} answers with status {status}")


def _limited(reply: Reply) -> bool:
    return reply.status == 429 or (reply.status in (401, 403) and reply.retry_after > 0)
