"""One request, one answer, over kept-alive connections; the API's errors come out as the classes they were."""

import contextlib
import http.client
import os
import random
import socket
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, TypeVar
from urllib.parse import SplitResult, quote, urlencode, urlsplit

import msgspec

from skep.base.answers import ErrorAnswer, Page
from skep.base.errors import BadInput, NeedsToken, SkepError, Unavailable, class_of
from skep.config.settings import is_loopback

# How long to wait before the next attempt, and when to give up.

T = TypeVar("T")

_FIRST = 0.05
_MOST = 2.0


class Patience:
    """Pauses double, and are spread so that many clients do not come back at the same moment."""

    def __init__(
        self,
        seconds: float | None,
        *,
        begun: float | None = None,
        now: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`seconds` after `begun`, or after now, the error is final; None: never."""
        self._seconds = seconds
        self._now = now
        self._chance = chance
        self._next = _FIRST
        self._begun = now() if begun is None else begun

    def restart(self) -> None:
        self._next = _FIRST
        self._begun = self._now()

    def pause(self, error: Unavailable) -> float:
        """Seconds to wait, or the error when patience is at its end."""
        left = None if self._seconds is None else self._begun + self._seconds - self._now()
        if left is not None and left <= 0:
            raise error
        pause, self._next = self._next * (0.5 + self._chance() / 2), min(self._next * 2, _MOST)
        return pause if left is None else min(pause, left)


def follow(events: Callable[[str], Iterator[T | None]], place: Callable[[T], str]) -> Iterator[T]:
    """What comes after the `place` of the last one, None being a sign of life. Once it has begun it outlives the
    server's restarts."""
    last, patience, begun = "", Patience(None), False
    while True:
        try:
            for one in events(last):
                begun = True
                patience.restart()
                if one is not None:
                    last = place(one)
                    yield one
            return
        except Unavailable as error:
            if not begun:
                raise
            time.sleep(patience.pause(error))


def persist(attempt: Callable[[], T], patience: Patience, wait: Callable[[float], object] = time.sleep) -> T:
    """Attempts until it is done or patience ends; other errors than Unavailable are final at once."""
    while True:
        try:
            return attempt()
        except Unavailable as error:
            wait(patience.pause(error))


# Where the server is and which token opens it.
#
# On one machine nobody should have to copy a token: `skep up` notes under its port, in its user's own state folder,
# which
# data folder it serves, and the client of the same user reads `admin.token` there. A token found that way is only ever
# sent to a loopback address.

DEFAULT_URL = "http://127.0.0.1:7337"
TOKEN_FILE = "admin.token"  # noqa: S105 - a name, no secret


def find_url(url: str | None, environ: Mapping[str, str]) -> SplitResult:
    text = url or environ.get("SKEP_URL") or DEFAULT_URL
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise BadInput(f"'{text}' is not the URL of a Skep server", hint=f"SKEP_URL is written like {DEFAULT_URL}")
    return parts


def find_token(token: str | None, url: SplitResult, environ: Mapping[str, str]) -> str:
    """Empty when there is none: reading may be open all the same."""
    given = (token or environ.get("SKEP_TOKEN") or "").strip()
    if given or not is_loopback(url.hostname or ""):
        return _sendable(given)
    for folder in _data_folders(port_of(url), environ):
        try:
            return _sendable((folder / TOKEN_FILE).read_text(encoding="utf-8").strip())
        except (OSError, UnicodeDecodeError):
            continue
    return ""


def _sendable(token: str) -> str:
    if not (token.isascii() and (token.isprintable() or not token)) or " " in token:
        raise BadInput("the token holds characters no token has", hint="check SKEP_TOKEN")
    return token


def port_of(url: SplitResult) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _data_folders(port: int, environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("SKEP_DATA"):
        yield Path(environ["SKEP_DATA"])
    with contextlib.suppress(OSError, UnicodeDecodeError):
        yield Path(_note(port, environ).read_text(encoding="utf-8"))
    yield Path("skep-data")


def _note(port: int, environ: Mapping[str, str]) -> Path:
    state = environ.get("XDG_STATE_HOME") or Path(environ.get("HOME") or "~").expanduser() / ".local" / "state"
    return Path(state) / "skep" / "servers" / str(port)


def advertise(port: int, data: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Called by a server that listens. Without a writable home its users give SKEP_TOKEN or SKEP_DATA."""
    note = _note(port, environ)
    try:
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = note.with_name(f"{port}.{os.getpid()}")
        fresh.write_text(str(data.absolute()), encoding="utf-8")
        fresh.replace(note)
    except OSError:
        return


def withdraw(port: int, data: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Takes back only its own note: another server may listen on the port by now."""
    note = _note(port, environ)
    try:
        if note.read_text(encoding="utf-8") == str(data.absolute()):
            note.unlink()
    except OSError:
        return


API = "/api/v1"
Query = Mapping[str, str | int | float | Sequence[str] | None]
_CHUNK = 1 << 18
_NONE: Mapping[str, str] = MappingProxyType({})
#: what ends a connection that the server closed while it lay in the pool
_STALE = (http.client.BadStatusLine, ConnectionResetError, BrokenPipeError)


class Transport:
    """Usable by several threads: a connection is taken from the pool for one exchange and put back after it."""

    def __init__(self, url: SplitResult, token: str, timeout: float) -> None:
        self.url = url
        self._token = token
        self.timeout = timeout
        self._idle: list[http.client.HTTPConnection] = []
        self._busy: set[http.client.HTTPConnection] = set()
        self._closed = False

    def twin(self) -> "Transport":
        """To the same server, with connections of its own."""
        return Transport(self.url, self._token, self.timeout)

    def call(
        self,
        method: str,
        path: str,
        answer: type[T],
        *,
        query: Query | None = None,
        body: object = None,
        timeout: float | None = None,
        repeatable: bool = False,
    ) -> T:
        """`repeatable`: doing it twice is the same as once."""
        status, data = self.exchange(method, path, query=query, body=body, timeout=timeout, repeatable=repeatable)
        if status >= 300:
            raise self.error(status, data)
        if answer is type(None):
            return None
        return self.decoded(data, answer)

    def exchange(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        timeout: float | None = None,
        repeatable: bool = False,
    ) -> tuple[int, bytes]:
        """Status and content, whatever they are."""
        content = None if body is None else msgspec.json.encode(body)
        reuse = repeatable or method != "POST"
        with self.explained(timeout or self.timeout) as seconds:
            return self._exchange(method, self.target(path, query), content, seconds, reuse)

    def decoded(self, data: bytes, answer: type[T]) -> T:
        try:
            return msgspec.json.decode(data, type=answer)
        except msgspec.MsgspecError as error:
            raise _foreign(self.url.geturl(), str(error)) from error

    def error(self, status: int, data: bytes) -> SkepError:
        return _error(status, data, self.url.geturl())

    def lines(
        self, path: str, *, query: Query, headers: Mapping[str, str], timeout: float
    ) -> Generator[str, None, None]:
        """An empty line once the answer has begun, then its lines as they come, until the server ends it."""
        with self._opened("GET", self.target(path, query), timeout, headers) as response:
            yield ""
            for line in response:
                yield line.decode("utf-8", "replace").rstrip("\r\n")

    def chunks(self, path: str, *, timeout: float) -> Generator[bytes, None, None]:
        """The answer's bytes, a piece at a time."""
        with self._opened("GET", self.target(path, None), timeout) as response:
            while chunk := response.read(_CHUNK):
                yield chunk

    def upload(self, path: str, file: BinaryIO, answer: type[T], *, query: Query, timeout: float) -> T:
        """The file as it is, a piece at a time."""
        headers = {"Content-Type": "application/octet-stream"}
        with self._opened("POST", self.target(path, query), timeout, headers, file) as response:
            return self.decoded(response.read(), answer)

    @contextlib.contextmanager
    def _opened(
        self, method: str, target: str, timeout: float, headers: Mapping[str, str] = _NONE, body: BinaryIO | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        """An answer that is read as it comes, on a connection of its own."""
        connection = self._connect()
        self._busy.add(connection)
        with self.explained(timeout), contextlib.closing(connection):
            try:
                connection.timeout = timeout
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused in the middle: it says why
                    connection.request(method, target, body, {**self.headers(), **headers})
                response = connection.getresponse()
                if response.status >= 300:
                    raise self.error(response.status, response.read())
                yield response
            finally:
                self._busy.discard(connection)

    def target(self, path: str, query: Query | None) -> str:
        asked = urlencode([(key, value) for key, value in (query or {}).items() if value is not None], doseq=True)
        return self.url.path.rstrip("/") + path + ("?" + asked if asked else "")

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _exchange(
        self, method: str, target: str, content: bytes | None, timeout: float, reuse: bool
    ) -> tuple[int, bytes]:
        """What must not be done twice never goes out on a used connection: were that one dead, nobody could tell
        whether it was done."""
        if reuse and (idle := self._from_pool()):
            with contextlib.suppress(*_STALE):
                return self._ask(idle, method, target, content, timeout)
        return self._ask(self._connect(), method, target, content, timeout)

    @contextlib.contextmanager
    def explained(self, timeout: float) -> Iterator[float]:
        try:
            yield timeout
        except TimeoutError as error:
            raise Unavailable(f"{self.url.geturl()} did not answer in {timeout:g} s", hint="try again") from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise Unavailable(f"cannot reach {self.url.geturl()}: {reason}", hint="is `skep up` running?") from error
        except http.client.HTTPException as error:
            raise _foreign(self.url.geturl(), repr(error)) from error

    def _connect(self) -> http.client.HTTPConnection:
        if self._closed:
            raise ConnectionAbortedError("this client was closed")
        secure = self.url.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        return kind(self.url.hostname or "", port_of(self.url))

    def _ask(
        self, connection: http.client.HTTPConnection, method: str, target: str, content: bytes | None, timeout: float
    ) -> tuple[int, bytes]:
        headers = {"Accept": "application/json", **self.headers()}
        if content is not None:
            headers["Content-Type"] = "application/json"
        self._busy.add(connection)
        try:
            connection.timeout = timeout
            if connection.sock is not None:
                connection.sock.settimeout(timeout)
            connection.request(method, target, content, headers)
            response = connection.getresponse()
            data = response.read()
        except BaseException:
            connection.close()
            raise
        finally:
            self._busy.discard(connection)
        if response.will_close:
            connection.close()
        else:
            self._idle.append(connection)
        if self._closed:
            self._empty_pool()
        return response.status, data

    def _from_pool(self) -> http.client.HTTPConnection | None:
        """Another thread may have been faster."""
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _empty_pool(self) -> None:
        while idle := self._from_pool():
            idle.close()

    def close(self) -> None:
        """What is under way in other threads ends with Unavailable."""
        self._closed = True
        for connection in list(self._busy):
            if connection.sock is not None:
                with contextlib.suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)
        self._empty_pool()


class Noun:
    """The verbs of one noun of the API."""

    #: its path
    at: str

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _of(self, id: str, verb: str = "") -> str:
        return f"{self.at}/{quote(id, safe='')}" + (f"/{verb}" if verb else "")


def pages(
    transport: Transport, path: str, kind: type[Page[Any]], limit: int, **wanted: str | Sequence[str] | None
) -> Iterator[Any]:
    """`wanted` chooses among them: a state, a cause."""
    page = ""
    while True:
        answer = transport.call("GET", path, kind, query={"page": page, "limit": limit, **wanted})
        yield from answer.items
        page = answer.next_page
        if not page:
            return


def _error(status: int, data: bytes, url: str) -> SkepError:
    try:
        body = msgspec.json.decode(data, type=ErrorAnswer).error
    except msgspec.MsgspecError:
        return _foreign(url, f"HTTP status {status}")
    kind = class_of(body.code)
    hint = body.hint
    if kind is NeedsToken and not hint:
        hint = "set SKEP_TOKEN to a token of this server"
    return kind(body.message, hint=hint, column=body.column)


def _foreign(url: str, what: str) -> SkepError:
    return Unavailable(f"{url} does not answer as a Skep server does: {what}", hint="check SKEP_URL")
