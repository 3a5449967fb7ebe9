"""One request, one answer, over kept-alive connections; the API's errors come out as the classes they were."""

import contextlib
import http.client
import socket
from collections.abc import Generator, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, BinaryIO, TypeVar
from urllib.parse import SplitResult, quote, urlencode

import msgspec

from skep.client.whereabouts import port_of
from skep.errors import NeedsToken, SkepError, Unavailable, class_of
from skep.model.answers import ErrorAnswer, Page

API = "/api/v1"
T = TypeVar("T")
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
