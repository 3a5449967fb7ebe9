"""A client of several servers: what one does not answer is asked of the next."""

import http.client
import itertools
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.chaos.fleet import Process

#: a server that is stopped or cut off is not waited for any longer
ANSWER_SECONDS = 4.0
_PAUSE_SECONDS = 0.05
_CLOSED = (BrokenPipeError, ConnectionResetError, http.client.BadStatusLine)


class Away(Exception):
    """No answer, or one that says that the server cannot do it now."""


class Refused(Exception):
    """The server says that the request is wrong, or that somebody else was first."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status} {text}")
        self.status = status


class Caller:
    """For one thread. Keeps its connection until an answer does not come."""

    def __init__(self, servers: Sequence[Process], first: int = 0, seconds: float = ANSWER_SECONDS) -> None:
        self._turns = itertools.cycle([*servers[first:], *servers[:first]])
        self._seconds = seconds
        self.server = next(self._turns)
        #: how often another server was turned to
        self.turned = 0
        self._connection: http.client.HTTPConnection | None = None

    def get(self, path: str, **query: object) -> Any:
        return self.call("GET", f"{path}?{urlencode(query)}" if query else path)

    def post(self, path: str, body: object) -> Any:
        return self.call("POST", path, body)

    def refs(self, source: str) -> dict[str, str]:
        """Branches and tags, as a clone would see them; none when the server has no copy."""
        try:
            text = self._answer("GET", f"/git/{source}.git/info/refs?service=git-upload-pack", None)
        except Refused as error:
            if error.status != 404:
                raise
            return {}
        return dict(_advertised(text))

    def call(self, verb: str, path: str, body: object = None) -> Any:
        """Away when this server does not answer; the next call goes to the next server."""
        text = self._answer(verb, f"/api/v1/{path}", body)
        return json.loads(text) if text else None

    def _answer(self, verb: str, path: str, body: object) -> bytes:
        try:
            status, text = self._exchange(verb, path, json.dumps(body))
        except (OSError, http.client.HTTPException) as error:
            self.turn()
            raise Away(f"{type(error).__name__}: {error}") from error
        if status >= 500 or status == 429:
            self.turn()
            raise Away(f"{status} {text!r}")
        if status >= 300:
            raise Refused(status, text.decode(errors="replace"))
        return text

    def _exchange(self, verb: str, path: str, body: str) -> tuple[int, bytes]:
        if self._connection is not None and verb == "GET":
            with suppress(*_CLOSED):  # the server closes a connection that was idle for some seconds
                return self._send(verb, path, body)
            self.close()
        if self._connection is None:
            self._connection = http.client.HTTPConnection(urlsplit(self.server.url).netloc, timeout=self._seconds)
        return self._send(verb, path, body)

    def _send(self, verb: str, path: str, body: str) -> tuple[int, bytes]:
        assert self._connection is not None
        headers = {"Authorization": f"Bearer {self.server.token}", "Content-Type": "application/json"}
        self._connection.request(verb, path, body, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def turn(self) -> None:
        """To the next server."""
        self.close()
        self.server = next(self._turns)
        self.turned += 1

    def close(self) -> None:
        if self._connection is not None:
            with suppress(OSError):
                self._connection.close()
            self._connection = None


def patiently(caller: Caller, over: threading.Event, verb: str, path: str, body: object = None) -> Any:
    """Repeats the call until a server answers; None when the run is over before that."""
    while not over.is_set():
        try:
            return caller.call(verb, path, body)
        except Away:
            over.wait(_PAUSE_SECONDS)
    return None


def _advertised(text: bytes) -> Iterator[tuple[str, str]]:
    """The refs in git's own lines: four digits with the length, then `OBJECT NAME`."""
    while text:
        size = max(4, int(text[:4], 16))
        line, text = text[4:size].split(b"\0")[0].decode().strip(), text[size:]
        object, _, name = line.partition(" ")
        if name.startswith(("refs/heads/", "refs/tags/")) and not name.endswith("^{}"):
            yield name, object
