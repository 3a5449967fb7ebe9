"""Before anything is answered: is the Host ours, is the Origin ours, who asks? And headers that browsers obey.

A web page elsewhere must not reach a Skep on somebody's laptop, neither by a name it rebinds to 127.0.0.1 (Host) nor
by posting across origins (Origin, Sec-Fetch-Site).
"""

import asyncio
import base64
import binascii
import ipaddress
import logging
import time
from functools import lru_cache
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send
from litestar.types.asgi_types import HTTPReceiveMessage

from skep.access.tokens import Access
from skep.base.caller import Caller
from skep.base.errors import BadInput, NeedsToken, NotAllowed, TooLarge, TooSlow
from skep.config.settings import Settings, is_loopback
from skep.dataone.node_errors import PATHS as NODE_PATHS
from skep.interfaces.http.errors import QUEUE_PATHS, send_error, wants_page

# Bodies of callers without a token: they are small and arrive soon, or they are refused.

#: bytes of a body of a caller without a token
STRANGERS_LIMIT = 65_536
#: seconds in which it has to arrive
STRANGERS_SECONDS = 30.0
#: what git sends has limits of its own (see git.py): a clone names each ref that it wants, and git reads it as it comes
_GIT = "/git/"
#: a forge names each file that changed; what it sends is decoded only when its signature is right (see hooks.py)
_HOOKS = "/hooks/"


def bounded(scope: HTTPScope, receive: Receive) -> Receive:
    if scope["user"].known or scope["path"].startswith(_GIT):
        return receive
    return StrangersBody(scope, receive)


class StrangersBody:
    """`receive` of ASGI. It reads nothing and refuses nothing before a handler reads the body."""

    def __init__(self, scope: HTTPScope, receive: Receive, seconds: float = STRANGERS_SECONDS) -> None:
        self._scope = scope
        self._receive = receive
        self._seconds = seconds
        self._left: float = float("inf") if scope["path"].startswith(_HOOKS) else STRANGERS_LIMIT
        self._until: float | None = None
        self._is_whole = False

    async def __call__(self) -> HTTPReceiveMessage:
        if self._is_whole:  # the next message is that the client hangs up: there is no hurry
            return await self._next()
        if self._until is None:
            self._until = time.monotonic() + self._seconds
            self._take(_announced(self._scope), of=self._left)
        try:
            async with asyncio.timeout(max(0.0, self._until - time.monotonic())):
                message = await self._next()
        except TimeoutError:
            raise TooSlow(
                f"the body did not arrive within {self._seconds:g} seconds", hint="send it faster, or with a token"
            ) from None
        if message["type"] == "http.request":
            self._is_whole = not message.get("more_body", False)
            self._left = self._take(len(message["body"]), of=self._left)
        return message

    async def _next(self) -> HTTPReceiveMessage:
        return await self._receive()  # type: ignore[return-value]  # as this is HTTP

    def _take(self, size: int, of: float) -> float:
        if size > of:
            raise TooLarge(
                f"a request without a token has at most {STRANGERS_LIMIT:,} bytes",
                hint="send `Authorization: Bearer TOKEN`",
            )
        return of - size


def _announced(scope: HTTPScope) -> int:
    found = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    return int(found) if found.isdigit() else 0


log = logging.getLogger("skep.http")

_SAFE = {"GET", "HEAD", "OPTIONS"}
#: answered without asking who it is, so that they answer while the database is away
_OPEN = ("/healthz", "/readyz", "/static/")
_NOBODY = Caller("nobody", frozenset(), known=False)
#: who uses the topic queue without a token, where the settings allow it
_OLD_SCRIPT = Caller("anonymous", frozenset({"read", "write"}), known=False)
#: of every answer that does not say otherwise
_HEADERS: list[tuple[bytes, bytes]] = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"private, no-cache"),
]
#: what the guard looks at
_FIELDS = {b"host", b"origin", b"sec-fetch-site", b"authorization", b"cookie"}


class Hosts:
    """The names this server answers to."""

    def __init__(self, settings: Settings) -> None:
        self._listen = split_host(settings.listen)[0]
        public = urlsplit(settings.public_url)
        self._public = public.netloc.lower()
        self._names = {name.lower() for name in settings.allow_hosts} | ({self._public} if public.netloc else set())
        if public.hostname:
            self._names.add(public.hostname)
        #: asked with every request, and mostly the same
        self.serves = lru_cache(maxsize=256)(self._serves)

    def _serves(self, host: str) -> bool:
        name, port = split_host(host)
        if port and not port.isdecimal():
            return False
        if host.lower() in self._names or name in self._names:
            return True
        if is_loopback(self._listen):
            return name == self._listen or is_loopback(name)
        if self._listen in ("", "0.0.0.0", "::"):  # noqa: S104  (a rebound name is a name, never an address)
            return name == "localhost" or _address(name) is not None
        return name == self._listen

    def same_origin(self, origin: str, host: str) -> bool:
        """May a page of `origin` use this server, asked as `host`? Another port is another origin."""
        try:
            place = urlsplit(origin).netloc.lower()
        except ValueError:
            return False
        if not place:
            return False
        return place in {host.lower(), self._public} or place in self._names or split_host(place)[0] in self._names


class Guard:
    def __init__(self, app: ASGIApp, access: Access, settings: Settings) -> None:
        self._app = app
        self._access = access
        self._hosts = Hosts(settings)
        self._open_queue = settings.open_topics
        self._certified = Certified(settings)
        self.cookie = cookie_name(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP:
            await self._http(scope, receive, send)
        elif scope["type"] == ScopeType.WEBSOCKET:
            await send({"type": "websocket.close", "code": 1008, "reason": "no websockets here"})
        else:
            await self._app(scope, receive, send)

    async def _http(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        out = _Sending(scope, send)
        scope["user"] = _NOBODY
        try:
            await self._admit(scope)
            await self._app(scope, bounded(scope, receive), out)
        except Exception as error:
            if out.status:  # too late for an answer: the server cuts the connection
                raise
            await send_error(error, scope, out)
        finally:
            took = (time.monotonic() - began) * 1000
            log.debug("%s %s %s %.1f ms", scope["method"], scope["path"], out.status, took)

    async def _admit(self, scope: HTTPScope) -> None:
        fields = _fields(scope)
        host = fields.get("host", "")
        if not self._hosts.serves(host):
            raise NotAllowed(f"this server does not answer to the name {host!r}", hint="add it to `allow_hosts`")
        origin = fields.get("origin")
        site = fields.get("sec-fetch-site", "")
        # taking a message moves the consumer's place, with GET as well
        unsafe = scope["method"] not in _SAFE or scope["path"] == "/consumer/consume"
        if origin is not None and not self._hosts.same_origin(origin, host):
            raise NotAllowed(f"requests from {origin!r} are refused", hint="add its host to `allow_hosts`")
        if unsafe and origin is None and site in ("cross-site", "same-site"):
            raise NotAllowed("this request comes from another site", hint="open Skep itself and try there")
        if scope["path"].startswith(_OPEN):
            return
        if "authorization" in fields:
            scope["user"] = await self._access.caller(_token(fields["authorization"]))
            return
        if scope["path"].startswith(NODE_PATHS):
            scope["user"] = self._certified.caller(scope) or await self._access.caller(None)
            return
        session = _cookie(fields.get("cookie", ""), self.cookie)
        scope["user"] = await self._by_cookie(session)
        if self._open_queue and not scope["user"].known and scope["path"] in QUEUE_PATHS and not wants_page(scope):
            scope["user"] = _OLD_SCRIPT
        if unsafe and scope["user"].known and origin is None and site != "same-origin":
            raise NotAllowed("a browser session must say where it comes from", hint="use a token instead of a cookie")

    async def _by_cookie(self, session: str | None) -> Caller:
        """A session that ended makes its browser a stranger, so that it can still reach the login page."""
        try:
            return await self._access.caller(session)
        except NeedsToken:
            return await self._access.caller(None)


class Certified:
    """Who showed a client certificate to a proxy in front of us. Only those that are named are believed."""

    def __init__(self, settings: Settings) -> None:
        self._header = settings.client_subject_header.lower().encode()
        self._proxies = [ipaddress.ip_network(one) for one in settings.trusted_proxies]

    def caller(self, scope: HTTPScope) -> Caller | None:
        subject = next((value for name, value in scope["headers"] if name == self._header), b"").decode(
            "utf-8", "replace"
        )
        address = _address(scope["client"][0]) if scope["client"] else None
        if not subject or address is None or not any(address in network for network in self._proxies):
            return None
        return Caller(distinguished(subject), frozenset({"read", "write"}))


def distinguished(name: str) -> str:
    """`/DC=org/CN=x` and `CN=x, DC=org` are both CN=x,DC=org."""
    parts = reversed(name[1:].split("/")) if name.startswith("/") else name.split(",")
    return ",".join(part.strip() for part in parts)


class _Sending:
    """Adds the headers to every answer, and answers HEAD as GET without the body."""

    def __init__(self, scope: HTTPScope, send: Send) -> None:
        self._send = send
        self._bare = scope["method"] == "HEAD"
        self.status = 0
        if self._bare and not scope["path"].startswith(NODE_PATHS):  # there HEAD is another question
            scope["method"] = "GET"

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message["headers"])
            told = {name.lower() for name, _ in headers}
            message["headers"] = headers + [one for one in _HEADERS if one[0] not in told]
        elif self._bare and message["type"] == "http.response.body":
            message["body"] = b""
        await self._send(message)


def cookie_name(settings: Settings) -> str:
    """Browsers share cookies between the ports of a host, so each Skep of a machine has its own name."""
    return f"skep_{split_host(settings.listen)[1] or 'session'}"


def split_host(text: str) -> tuple[str, str]:
    """`[::1]:80` -> ("::1", "80")."""
    if text.startswith("["):
        name, _, rest = text[1:].partition("]")
        return name.lower(), rest.removeprefix(":")
    name, colon, port = text.rpartition(":")
    return (name.lower(), port) if colon and ":" not in name else (text.lower(), "")


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _fields(scope: HTTPScope) -> dict[str, str]:
    fields: dict[str, str] = {}
    for name, value in scope["headers"]:
        if name not in _FIELDS:  # ASGI gives names in small letters
            continue
        key = name.decode("latin-1")
        if key in ("host", "origin", "authorization") and key in fields:
            raise BadInput(f"the header {key!r} is there twice")
        fields[key] = value.decode("latin-1")
    return fields


def _token(header: str) -> str:
    """From `Bearer TOKEN`, or the password of `Basic …`: what git sends."""
    scheme, _, value = header.partition(" ")
    value = value.strip()
    if scheme.lower() == "basic":
        try:
            value = base64.b64decode(value, validate=True).decode("utf-8").partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            value = ""
    elif scheme.lower() != "bearer":
        value = ""
    if not value:
        raise NeedsToken("the Authorization header holds no token", hint="send `Authorization: Bearer TOKEN`")
    return value


def _cookie(header: str, name: str) -> str | None:
    try:
        morsel = SimpleCookie(header).get(name)
    except CookieError:
        return None
    return morsel.value if morsel else None
