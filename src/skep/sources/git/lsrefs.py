"""Has anything moved? One exchange answers, without a process: protocol v2 `ls-refs`, or v0 where v2 is not known."""

import hashlib
import os
from collections.abc import Sequence
from urllib.parse import urlsplit

import certifi

from skep.clock import Clock
from skep.connection import NetworkError
from skep.errors import BadUrl, NotAllowed
from skep.model.source import Failure
from skep.sources.base import Look, Moved, Same
from skep.sources.git import pktline
from skep.sources.git.guard import Guard
from skep.sources.git.http import Http, Reply
from skep.sources.git.selection import Selection
from skep.sources.git.url import Parts, parse

LARGEST_ANSWER = 256 << 20
_V2 = ("Git-Protocol: version=2", "Content-Type: application/x-git-upload-pack-request", "Accept: */*", "Expect:")
_POST_MEDIA = "application/x-git-upload-pack-result"
_GET_MEDIA = "application/x-git-upload-pack-advertisement"
#: a server that does not know v2 may learn it
_FORGET_V0 = 86_400.0
_LONGEST_PAUSE = 21_600.0
_MOST_HOPS = 4
#: answers to a POST after which it is worth asking in the old way
_UNDECIDED = {200, 301, 302, 307, 308, 400, 404, 405, 411, 415, 501}


def ca_bundle() -> str:
    """The certificates to trust; the usual variable wins, for forges with a certificate of their own."""
    return os.environ.get("SSL_CERT_FILE") or certifi.where()


class LsRefs:
    def __init__(self, http: Http, guard: Guard, clock: Clock) -> None:
        self._http = http
        self._guard = guard
        self._clock = clock
        #: host -> until when to ask it in the old way
        self._old: dict[str, float] = {}
        #: URL -> where its server wants to be asked (with or without `.git`, under its new name)
        self._spelling: dict[str, str] = {}

    def spelling(self, url: str) -> str:
        return self._spelling.get(url, url)

    async def ask(self, url: str, parts: Parts, seen: str, wanted: Selection, auth: Sequence[str] = ()) -> Look:
        """`parts` are those of `url`; `auth` are headers for this host only."""
        if url in self._spelling:
            parts = self._guard.check_url(self._spelling[url])
        try:
            for _ in range(_MOST_HOPS):
                answer = await self._ask(parts, await self._guard.pins(parts), seen, wanted, auth)
                if not isinstance(answer, Parts):
                    if isinstance(answer, Failure):
                        self._spelling.pop(url, None)
                    return answer
                parts = self._guard.check_url(str(answer))
                self._spelling[url] = str(parts)
            del self._spelling[url]
            return Failure("gone", f"{url} is redirected in circles")
        except NotAllowed as error:
            return Failure("blocked", f"{error.message}; {error.hint}".rstrip("; "))
        except (OSError, TimeoutError):
            return Failure("network", f"the host '{parts.host}' was not found")
        except NetworkError as error:
            return Failure("network", f"{parts.authority}: {error}")
        except pktline.BadAnswer as error:
            return Failure("not_git", f"{url}: {error}")

    async def _ask(
        self, parts: Parts, pins: list[str], seen: str, wanted: Selection, auth: Sequence[str]
    ) -> Look | Parts:
        """The look, or the place nearby where the server wants to be asked."""
        base, host = str(parts).rstrip("/"), parts.authority
        if self._old.get(host, 0.0) < self._clock.now():
            reply = await self._http.ask(f"{base}/git-upload-pack", (*_V2, *auth), wanted.request, pins)
            if reply.status == 200 and reply.content_type == _POST_MEDIA and pktline.complete(reply.body):
                if not wanted.exact:
                    return announced("v2", pktline.parse_v2(reply.body).versions(wanted.of), seen, wanted)
                now = fingerprint("v2", reply.body)
                return Same() if now == seen else Moved(now, pktline.parse_v2(reply.body).versions(wanted.of))
            if reply.status not in _UNDECIDED:
                return _failure(base, reply)
        place = f"{base}/info/refs?service=git-upload-pack"
        reply = await self._http.ask(place, ("Accept: */*", *auth), None, pins)
        if reply.status == 200 and reply.content_type == _GET_MEDIA:
            versions = pktline.parse_v0(reply.body).versions(wanted.of)
            if all(len(oid) == 40 for name, oid in versions.items() if name != "HEAD"):
                # (a repository with long ids is asked in the old way, whatever its host knows)
                self._old[host] = self._clock.now() + _FORGET_V0
            return announced("v0", versions, seen, wanted)
        return nearby(parts, reply.redirect) or _failure(base, reply)


def announced(how: str, versions: dict[str, str], seen: str, wanted: Selection) -> Look:
    """Where the bytes hold more than we follow, the refs we follow are compared."""
    now = fingerprint(how, repr((wanted.patterns, sorted(versions.items()))).encode())
    return Same() if now == seen else Moved(now, versions)


def fingerprint(how: str, data: bytes) -> str:
    return f"{how}:{hashlib.blake2b(data, digest_size=20).hexdigest()}"


def nearby(parts: Parts, redirect: str) -> Parts | None:
    """Where a redirect leads to, if that may be followed: another path (a renamed repository, `x` for `x.git`) at the
    same place, or from http to https of the same host."""
    target, found, _ = redirect.partition("/info/refs?")
    try:
        there = parse(target)
    except BadUrl:
        return None
    same = (there.scheme, there.port) == (parts.scheme, parts.port)
    safer = (parts.scheme, there.scheme) == ("http", "https") and (parts.port, there.port) == (80, 443)
    return there if found and there.host == parts.host and (same or safer) and there != parts else None


def _failure(url: str, reply: Reply) -> Failure:
    pause = min(float(reply.retry_after), _LONGEST_PAUSE) if reply.retry_after > 0 else None
    match reply.status:
        case 301 | 302 | 303 | 307 | 308:
            return Failure("gone", f"{url} has moved to {_shown(reply.redirect)}; update the URL of the source")
        case 401:
            return Failure("auth", f"{url} asks for a password: it is private, or there is no such repository")
        case 429 | 503 | 403 if pause:
            return Failure("rate_limited", f"{url}: the server asks to come back in {pause:.0f} s", pause)
        case 429:
            return Failure("rate_limited", f"{url}: the server says we ask too often")
        case 403:
            return Failure("auth", f"{url}: the server refuses access (403)")
        case 404 | 410:
            return Failure("gone", f"{url}: there is no such repository ({reply.status}), or it is private")
        case status if status >= 500:
            return Failure("network", f"{url}: the server has a problem ({status})", pause)
        case 200:
            kind = reply.content_type.partition(";")[0][:60] or "something unnamed"
            return Failure("not_git", f"{url} is no git repository: the server answers with {kind}, not smart HTTP")
        case status:
            return Failure("not_git", f"{url} is no git repository: the server answers with status {status}")


def _shown(redirect: str) -> str:
    """A place to show to people: without the secrets and questions a server may have put into it."""
    place = urlsplit(redirect)
    path = place.path.removesuffix("/info/refs").removesuffix("/git-upload-pack")
    return f"{place.scheme}://{(place.hostname or '')}{f':{place.port}' if place.port else ''}{path}"[:300]
