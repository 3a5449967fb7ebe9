"""Has anything moved? One exchange answers, without a process: protocol v2 `ls-refs`, or v0 where v2 is not known."""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from urllib.parse import urlsplit

import certifi
import msgspec

from skep.base.clock import Clock
from skep.base.errors import BadInput, BadUrl, NotAllowed
from skep.base.lazy import lazy_property
from skep.net.connection import NetworkError
from skep.net.guard import Guard
from skep.net.urls import Parts, parse
from skep.sources.git.http import Http, Reply
from skep.sources.model import Failure
from skep.sources.source_type import Look, Moved, Same

# The bytes of git's protocol (pure): packet lines, and the refs an upstream announces in them.
#
# Ref names are bytes to git and text to us: what is not UTF-8 becomes `\xNN`. Nothing is lost, as git allows no
# backslash in a ref name.

MOST_REFS = 2_000_000
_OID = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_LENGTH = re.compile(rb"[0-9a-fA-F]{4}")
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")


class BadAnswer(ValueError):
    """Not what git would send; the text says why, for people."""


class Refs(msgspec.Struct):
    """What an upstream announced, as it did."""

    oids: dict[str, str]
    #: the branch HEAD stands for, where the upstream says so
    head: str = ""
    #: the commit HEAD stands at
    head_oid: str = ""

    def versions(self, wanted: Callable[[Mapping[str, str]], dict[str, str]]) -> dict[str, str]:
        """entry -> version: the refs wanted, and `HEAD` -> a branch that exists."""
        versions = wanted(self.oids)
        head = choose_head(versions, self.head, self.head_oid)
        return {**versions, "HEAD": head} if head else versions


def choose_head(versions: dict[str, str], head: str, oid: str = "") -> str:
    """The default branch: what HEAD names; else what stands where HEAD stands; else the usual names; else the first."""
    branches = sorted(name for name in versions if name.startswith("refs/heads/"))
    usual = ["refs/heads/main", "refs/heads/master", "refs/heads/trunk"]
    same = [name for name in (*usual, *branches) if oid and versions.get(name) == oid]
    for name in (head, *same, *usual, *branches):
        if name in versions and name != "HEAD":
            return name
    return ""


def to_text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")


def to_bytes(name: str) -> bytes:
    parts = _ESCAPED.split(name)
    return b"".join(bytes([int(part, 16)]) if n % 2 else part.encode() for n, part in enumerate(parts))


def packet(payload: bytes) -> bytes:
    return b"%04x" % (len(payload) + 4) + payload


def packets(data: bytes) -> Iterator[bytes | None]:
    """Payloads; None for a flush packet, which ends a section."""
    view, at = memoryview(data), 0
    while at < len(data):
        head = bytes(view[at : at + 4])
        if not _LENGTH.fullmatch(head):
            raise BadAnswer("the answer is not in git's packet format")
        size = int(head, 16)
        if size < 4:
            at += 4
            if size == 0:
                yield None
            continue
        if at + size > len(data):
            raise BadAnswer("the answer ends in the middle of a packet")
        payload = bytes(view[at + 4 : at + size])
        if payload.startswith(b"ERR "):
            raise BadAnswer(f"the server says: {to_text(payload[4:]).strip()[:300]}")
        yield payload
        at += size


def complete(data: bytes) -> bool:
    """Servers that do not know protocol v2 answer with nothing at all; ours ends with a flush packet."""
    return data.endswith(b"0000")


def parse_v2(data: bytes) -> Refs:
    refs = Refs({})
    for packet in packets(data):
        if packet is None:
            break
        oid, _, rest = packet.rstrip(b"\n").partition(b" ")
        name, *attributes = rest.split(b" ")
        for attribute in attributes:
            if name == b"HEAD" and attribute.startswith(b"symref-target:"):
                refs.head = to_text(attribute[14:])
        _note(refs, oid, name)
    return refs


def parse_v0(data: bytes) -> Refs:
    refs, capabilities = Refs({}), b""
    lines = packets(data)
    if not (next(lines, b"") or b"").startswith(b"# service=git-upload-pack"):
        raise BadAnswer("the answer is not in git's smart format")
    for packet in lines:
        if packet is None or packet == b"version 1\n" or packet.startswith(b"shallow "):
            continue
        line, _, tail = packet.rstrip(b"\n").partition(b"\0")
        capabilities = capabilities or tail
        oid, _, name = line.partition(b" ")
        if not name.endswith(b"^{}"):
            _note(refs, oid, name)
    for word in capabilities.split(b" "):
        if word.startswith(b"symref=HEAD:"):
            refs.head = to_text(word[12:])
    return refs


def parse_ls_remote(out: bytes) -> Refs:
    """What `git ls-remote --symref` prints."""
    refs = Refs({})
    for line in out.splitlines():
        left, _, name = line.partition(b"\t")
        if left.startswith(b"ref: "):
            if name == b"HEAD":
                refs.head = to_text(left[5:])
        elif not name.endswith(b"^{}"):
            _note(refs, left, name)
    return refs


def _note(refs: Refs, oid: bytes, name: bytes) -> None:
    if not _OID.fullmatch(oid) or not name:
        raise BadAnswer("the answer has a line that is no ref")
    if len(refs.oids) >= MOST_REFS:
        raise BadAnswer(f"the repository has more than {MOST_REFS:,} refs")
    if name == b"HEAD":
        refs.head_oid = oid.decode()
    else:
        refs.oids[to_text(name)] = oid.decode()


# Which refs of an upstream are mirrored (pure): patterns as git's refspecs have them, with at most one `*`.

USUAL = ("refs/heads/*", "refs/tags/*")
#: refs of our own in a mirror: never fetched, told or served
OWN = "refs/skep/"
_MOST = 100
#: what git never allows in the name of a ref
_NO_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|\.lock(/|$)|/\.|/$|\.$")
_LS_REFS = packet(b"command=ls-refs\n") + packet(b"agent=skep/mirror") + b"0001" + packet(b"symrefs\n")


def check_patterns(patterns: tuple[str, ...]) -> None:
    hint = "such as refs/heads/*, refs/pull/*/head or, to leave some out, ^refs/heads/bot/*"
    if not 0 < len(patterns) <= _MOST or all(one.startswith("^") for one in patterns):
        raise BadInput(f"`refs` needs 1 to {_MOST} patterns, one of them without ^", hint=hint)
    for pattern in patterns:
        name = pattern.removeprefix("^").replace("*", "x", 1)
        if not name.startswith("refs/") or name.startswith(OWN) or len(name) > 1_000 or _NO_REF.search(name):
            raise BadInput(f"`refs`: {pattern[:100]!r} is no pattern of refs", hint=hint)


@lru_cache(maxsize=1_000)
def selection(patterns: tuple[str, ...] | None) -> "Selection":
    return Selection(patterns or USUAL)


class Selection:
    def __init__(self, patterns: tuple[str, ...]) -> None:
        self.patterns = patterns
        self._wanted = [_halves(one) for one in patterns if not one.startswith("^")]
        self._unwanted = [_halves(one[1:]) for one in patterns if one.startswith("^")]

    @lazy_property
    def request(self) -> bytes:
        """One exchange of protocol v2: where these refs stand, and where HEAD points to."""
        prefixes = ["HEAD", *(prefix for prefix, _ in self._wanted)]
        lines = (packet(f"ref-prefix {prefix}\n".encode()) for prefix in prefixes)
        return _LS_REFS + b"".join(lines) + b"0000"

    @property
    def exact(self) -> bool:
        """An upstream that is asked with `request` announces nothing else than these."""
        return self.patterns == USUAL

    def has(self, name: str) -> bool:
        return _any(name, self._wanted) and not _any(name, self._unwanted) and not name.startswith(OWN)

    def of(self, refs: Mapping[str, str]) -> dict[str, str]:
        return {name: oid for name, oid in refs.items() if self.has(name)}

    def refspecs(self, *, force: bool) -> list[str]:
        plus = "+" if force else ""
        specs = [one if one.startswith("^") else f"{plus}{one}:{one}" for one in self.patterns]
        return specs if self.exact else [*specs, f"^{OWN}*"]


def _halves(pattern: str) -> tuple[str, str | None]:
    """What stands before and after the `*`; None: there is no `*`."""
    prefix, star, suffix = pattern.partition("*")
    return prefix, suffix if star else None


def _any(name: str, patterns: list[tuple[str, str | None]]) -> bool:
    return any(
        name == prefix
        if suffix is None
        else name.startswith(prefix) and name.endswith(suffix) and len(name) >= len(prefix) + len(suffix)
        for prefix, suffix in patterns
    )


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
        except BadAnswer as error:
            return Failure("not_git", f"{url}: {error}")

    async def _ask(
        self, parts: Parts, pins: list[str], seen: str, wanted: Selection, auth: Sequence[str]
    ) -> Look | Parts:
        """The look, or the place nearby where the server wants to be asked."""
        base, host = str(parts).rstrip("/"), parts.authority
        if self._old.get(host, 0.0) < self._clock.now():
            reply = await self._http.ask(f"{base}/git-upload-pack", (*_V2, *auth), wanted.request, pins)
            if reply.status == 200 and reply.content_type == _POST_MEDIA and complete(reply.body):
                if not wanted.exact:
                    return announced("v2", parse_v2(reply.body).versions(wanted.of), seen, wanted)
                now = fingerprint("v2", reply.body)
                return Same() if now == seen else Moved(now, parse_v2(reply.body).versions(wanted.of))
            if reply.status not in _UNDECIDED:
                return _failure(base, reply)
        place = f"{base}/info/refs?service=git-upload-pack"
        reply = await self._http.ask(place, ("Accept: */*", *auth), None, pins)
        if reply.status == 200 and reply.content_type == _GET_MEDIA:
            versions = parse_v0(reply.body).versions(wanted.of)
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
