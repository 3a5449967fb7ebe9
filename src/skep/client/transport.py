"""One request, one answer, over kept-alive connections; the API's errors come out as the classes they were."""

import http.client
from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import SplitResult, urlencode

import msgspec

from skep.client.whereabouts import port_of
from skep.errors import NeedsToken, SkepError, Unavailable
from skep.model.answers import ErrorAnswer

T = TypeVar("T")
Query = Mapping[str, str | int | float | None]
#: what ends a connection that the server closed while it lay in the pool
_STALE = (http.client.BadStatusLine, ConnectionResetError, BrokenPipeError)


class Transport:
    """Usable by several threads: a connection is taken from the pool for one exchange and put back after it."""

    def __init__(self, url: SplitResult, token: str, timeout: float) -> None:
        self._url = url
        self._token = token
        self._timeout = timeout
        self._idle: list[http.client.HTTPConnection] = []

    def call(
        self,
        method: str,
        path: str,
        answer: type[T],
        *,
        query: Query | None = None,
        body: object = None,
        timeout: float | None = None,
    ) -> T:
        asked = urlencode([(key, value) for key, value in (query or {}).items() if value is not None])
        target = self._url.path.rstrip("/") + path + ("?" + asked if asked else "")
        content = None if body is None else msgspec.json.encode(body)
        status, data = self._exchange(method, target, content, timeout or self._timeout)
        if status >= 300:
            raise _error(status, data, self._url.geturl())
        if answer is type(None):
            return None
        try:
            return msgspec.json.decode(data, type=answer)
        except msgspec.MsgspecError as error:
            raise _foreign(self._url.geturl(), str(error)) from error

    def _exchange(self, method: str, target: str, content: bytes | None, timeout: float) -> tuple[int, bytes]:
        """A POST never goes out on a used connection: were that one dead, nobody could tell whether it was done."""
        if self._idle and method != "POST":
            connection = self._idle.pop()
            try:
                return self._ask(connection, method, target, content, timeout)
            except _STALE:
                pass
        try:
            return self._ask(self._connect(), method, target, content, timeout)
        except TimeoutError as error:
            raise Unavailable(f"{self._url.geturl()} did not answer in {timeout:g} s", hint="try again") from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise Unavailable(f"cannot reach {self._url.geturl()}: {reason}", hint="is `skep up` running?") from error
        except http.client.HTTPException as error:
            raise _foreign(self._url.geturl(), repr(error)) from error

    def _connect(self) -> http.client.HTTPConnection:
        secure = self._url.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        return kind(self._url.hostname or "", port_of(self._url))

    def _ask(
        self, connection: http.client.HTTPConnection, method: str, target: str, content: bytes | None, timeout: float
    ) -> tuple[int, bytes]:
        headers = {"Accept": "application/json"}
        if content is not None:
            headers["Content-Type"] = "application/json"
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
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
        if response.will_close:
            connection.close()
        else:
            self._idle.append(connection)
        return response.status, data

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


def _error(status: int, data: bytes, url: str) -> SkepError:
    try:
        body = msgspec.json.decode(data, type=ErrorAnswer).error
    except msgspec.MsgspecError:
        return _foreign(url, f"HTTP status {status}")
    kind = _by_code(SkepError).get(body.code, SkepError)
    hint = body.hint
    if kind is NeedsToken and not hint:
        hint = "set SKEP_TOKEN to a token of this server"
    return kind(body.message, hint=hint, column=body.column)


def _by_code(kind: type[SkepError]) -> dict[str, type[SkepError]]:
    return {kind.code: kind} | {code: sub for child in kind.__subclasses__() for code, sub in _by_code(child).items()}


def _foreign(url: str, what: str) -> SkepError:
    return Unavailable(f"{url} does not answer as a Skep server does: {what}", hint="check SKEP_URL")
