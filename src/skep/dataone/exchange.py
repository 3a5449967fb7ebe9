"""Requests to nodes over connections that stay open, with nothing between socket and parser.

A harvest is two small requests for each object: a client for everything would cost more than all that is done with the
answers. Whoever answers may be hostile, so an answer is bounded in size and in time.
"""

import asyncio
import math
import ssl
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urljoin

import httptools

from skep.sources.git.http import NetworkError, Reply
from skep.sources.git.url import Parts

#: bytes that may come without any of the body among them
_MOST_HEAD = 512 << 10
#: who sends fewer bytes a second than this, for so many seconds, does not answer
_SLOW, _PATIENCE = 100, 15.0
_CONNECT_SECONDS = 10.0
#: connections that are kept
_IDLE = 64
_FRIENDLY: dict[type[OSError], str] = {
    ssl.SSLCertVerificationError: "the host's TLS certificate is not trusted",
    ssl.SSLError: "the host does not speak TLS as expected",
    TimeoutError: "the host did not answer in time",
    OSError: "the host does not accept connections",
}
_Key = tuple[str, str, int, str]
_Take = Callable[[bytes], object]


class _Closed(NetworkError):
    """Before anything came: as happens to a connection that was idle for too long."""


class _Connection(asyncio.Protocol):
    """One exchange at a time. Its `on_…` are called by the parser."""

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.open = True
        self.head: list[bytes] = []
        self._heard = self._spare = 0
        self._in_body = False
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[int] | None = None
        self._transport: Any = None

    async def ask(self, request: bytes, take: _Take, seconds: float) -> int:
        """The status; what is said before the body is in `head` then."""
        self._take, self._until = take, self._loop.time() + seconds
        self.head, self._heard, self._spare = [], 0, 0
        self._answer = self._loop.create_future()
        self._wait(min(_PATIENCE, seconds))
        self._transport.write(request)
        try:
            return await self._answer
        except BaseException:
            # an answer that nobody waits for must not become the next one's
            self.abort()
            raise
        finally:
            self._timer.cancel()

    def abort(self) -> None:
        self.open = False
        self._transport.abort()

    def _wait(self, patience: float) -> None:
        self._timer = self._loop.call_later(patience, self._judge, self._heard, patience)

    def _judge(self, before: int, patience: float) -> None:
        if self._heard - before < _SLOW * patience or self._loop.time() >= self._until:
            self._fail(NetworkError("the host did not answer in time"))
        else:
            self._wait(patience)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._heard += len(data)
        self._spare += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail(NetworkError("the host does not speak HTTP as expected"))
        if self._spare > _MOST_HEAD:
            self._fail(NetworkError("the answer is larger than allowed"))

    def connection_lost(self, error: Exception | None) -> None:
        """Without a length, an answer ends with its connection."""
        self.open = False
        lengths = (b"content-length:", b"transfer-encoding:")
        if error is None and self._in_body and not any(line.lower().startswith(lengths) for line in self.head):
            self._end()
        else:
            broken = NetworkError("the answer broke off half-way")
            self._fail(broken if self._heard else _Closed("the host closed the connection without an answer"))

    def on_message_begin(self) -> None:
        self._in_body = False
        if self._answer is None or self._answer.done():
            raise NetworkError("nobody asked for this one")  # ends the parser, and that the connection

    def on_header(self, name: bytes, value: bytes) -> None:
        self.head.append(name + b": " + value)

    def on_headers_complete(self) -> None:
        self._in_body = self._parser.get_status_code() >= 200

    def on_body(self, chunk: bytes) -> None:
        self._spare = 0
        try:
            if self._take(chunk) == 0:
                self._fail(NetworkError("the answer is larger than allowed"))
        except OSError as error:  # a full disk is not the host's fault
            self._fail(error)

    def on_message_complete(self) -> None:
        if self._in_body:
            self._end()
        else:
            self.head.clear()  # the answer itself is yet to come

    def _end(self) -> None:
        self._in_body = False
        self.open = self.open and self._parser.should_keep_alive()
        if self._answer and not self._answer.done():
            self._answer.set_result(self._parser.get_status_code())

    def _fail(self, error: NetworkError | OSError) -> None:
        self.abort()
        if self._answer and not self._answer.done():
            self._answer.set_exception(error)


class Exchange:
    """Belongs to one event loop."""

    def __init__(self, *, ca: str, timeout: float, largest: int) -> None:
        self._ca = ca
        self._timeout = timeout
        self._largest = largest
        #: longest idle first
        self._idle: list[_Connection] = []
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def ask(
        self,
        to: Parts,
        addresses: Sequence[str],
        target: str,
        headers: Sequence[str] = (),
        body: bytes | None = None,
        *,
        into: _Take | None = None,
        certificate: str = "",
    ) -> Reply:
        """GET, or POST when there is a body. What goes `into` something has no bound, and as long as it comes no end;
        0 from it is the end. `certificate`: ours, with its key, in PEM."""
        if not (target.isascii() and target.isprintable()) or " " in target:
            raise NetworkError("it sends us to an address that is none")
        parts: list[bytes] = []
        size = 0

        def take(chunk: bytes) -> int:
            nonlocal size
            size += len(chunk)
            parts.append(chunk)
            return int(size <= self._largest)

        asked = [f"{'GET' if body is None else 'POST'} {target} HTTP/1.1", f"Host: {to.authority.rpartition('@')[2]}"]
        asked += ["User-Agent: skep", "Accept: */*", *headers]
        asked += [] if body is None else [f"Content-Length: {len(body)}"]
        request = "\r\n".join([*asked, "\r\n"]).encode() + (body or b"")
        status, head = await self._exchange(
            (to.scheme, to.host, to.port, certificate),
            addresses,
            request,
            into or take,
            math.inf if into else self._timeout,
        )
        if status == 200:
            return Reply(status, b"".join(parts), "", "", 0, head=head)
        lines = [line.decode("latin-1").partition(":") for line in head]
        said = {name.lower(): value.strip() for name, _, value in lines}
        where = urljoin(f"{to.scheme}://{to.authority}{target}", said["location"]) if "location" in said else ""
        pause = _pause(said.get("retry-after", ""), said.get("date", ""))
        return Reply(status, b"".join(parts), "", where, pause, head=head)

    async def _exchange(
        self, key: _Key, addresses: Sequence[str], request: bytes, take: _Take, seconds: float
    ) -> tuple[int, list[bytes]]:
        while True:
            kept = next((one for one in reversed(self._idle) if one.key == key and one.open), None)
            if kept is not None:
                self._idle.remove(kept)
            connection = kept or await self._connect(key, addresses)
            try:
                return await connection.ask(request, take, seconds), connection.head
            except _Closed:
                if kept is None:
                    raise
            finally:
                self._keep(connection)

    def _keep(self, connection: _Connection) -> None:
        if connection.open:
            self._idle.append(connection)
        else:
            connection.abort()
        if len(self._idle) > _IDLE:
            self._idle.pop(0).abort()

    async def _connect(self, key: _Key, addresses: Sequence[str]) -> _Connection:
        scheme, host, port, certificate = key
        secure = self._context(certificate) if scheme == "https" else None
        loop = asyncio.get_running_loop()
        failed: OSError = OSError()
        for address in addresses:
            try:
                async with asyncio.timeout(min(_CONNECT_SECONDS, self._timeout)):
                    made = await loop.create_connection(
                        lambda: _Connection(key), address, port, ssl=secure, server_hostname=host if secure else None
                    )
                return made[1]
            except (OSError, TimeoutError) as error:
                failed = error
        raise NetworkError(next(words for kind, words in _FRIENDLY.items() if isinstance(failed, kind)))

    def _context(self, certificate: str) -> ssl.SSLContext:
        context = self._contexts.get(certificate)
        if context is None:
            context = ssl.create_default_context(cafile=self._ca)
            if certificate:
                # it can only be taken from a file, which nobody else may read
                with tempfile.NamedTemporaryFile("w") as file:
                    file.write(certificate)
                    file.flush()
                    try:
                        context.load_cert_chain(file.name)
                    except ssl.SSLError:
                        raise NetworkError("our certificate, or its key, cannot be used") from None
            self._contexts[certificate] = context
        return context

    def close(self) -> None:
        for one in self._idle:
            one.abort()


def _pause(value: str, date: str) -> int:
    """Seconds, from a number of them or a time by the host's clock."""
    if value.isdecimal():
        return int(value[:9])
    with suppress(ValueError, TypeError):
        return max(0, int((parsedate_to_datetime(value) - parsedate_to_datetime(date)).total_seconds()))
    return 0
