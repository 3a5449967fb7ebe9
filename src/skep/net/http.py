"""Requests to nodes over connections that stay open.

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
from urllib.parse import urljoin

from skep.net.connection import Closed, Connection, NetworkError, Take
from skep.net.urls import Parts
from skep.sources.git.http import Reply

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


class _Connection(Connection):
    def __init__(self, key: _Key) -> None:
        super().__init__()
        self.key = key


class Exchange:
    """Belongs to one event loop."""

    def __init__(self, *, ca: str, timeout: float, largest: int) -> None:
        """`timeout`: seconds of an exchange, and those without an answer, or with hardly any of it, of a download."""
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
        into: Take | None = None,
        start: int = 0,
        certificate: str = "",
        method: str = "",
    ) -> Reply:
        """GET, or POST when there is a body, unless `method` says otherwise. What is given (200) goes `into` something:
        then it has no bound, and as long as it comes no end; 0 from that is the end. With `start`, only what is behind
        so many bytes goes there, however the host answers that. `certificate`: ours, with its key, in PEM."""
        if not (target.isascii() and target.isprintable()) or " " in target:
            raise NetworkError("it sends us to an address that is none")
        parts: list[bytes] = []
        size = 0

        def take(chunk: bytes) -> int:
            nonlocal size
            size += len(chunk)
            parts.append(chunk)
            return int(size <= self._largest)

        method = method or ("GET" if body is None else "POST")
        asked = [f"{method} {target} HTTP/1.1", f"Host: {to.authority.rpartition('@')[2]}"]
        asked += ["User-Agent: skep", "Accept: */*", *headers, *([f"Range: bytes={start}-"] if start else [])]
        asked += [] if body is None else [f"Content-Length: {len(body)}"]
        request = "\r\n".join([*asked, "\r\n"]).encode() + (body or b"")
        status, head = await self._exchange(
            (to.scheme, to.host, to.port, certificate),
            addresses,
            request,
            lambda connection: _apart(connection, into, take, start) if into else take,
            math.inf if into else self._timeout,
        )
        if _given(status, head, start):
            return Reply(200, b"".join(parts), "", "", 0, head=head)
        lines = [line.decode("latin-1").partition(":") for line in head]
        said = {name.lower(): value.strip() for name, _, value in lines}
        where = urljoin(f"{to.scheme}://{to.authority}{target}", said["location"]) if "location" in said else ""
        pause = _pause(said.get("retry-after", ""), said.get("date", ""))
        return Reply(status, b"".join(parts), "", where, pause, head=head)

    async def _exchange(
        self,
        key: _Key,
        addresses: Sequence[str],
        request: bytes,
        take: Callable[[Connection], Take],
        seconds: float,
    ) -> tuple[int, list[bytes]]:
        while True:
            kept = next((one for one in reversed(self._idle) if one.key == key and one.open), None)
            if kept is not None:
                self._idle.remove(kept)
            connection = kept or await self._connect(key, addresses)
            try:
                return await connection.ask(request, take(connection), seconds, self._timeout), connection.head
            except Closed:
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


def _given(status: int, head: Sequence[bytes], start: int) -> bool:
    """All of it, or the rest from there."""
    rest = b"content-range: bytes %d-" % start
    return status == 200 or (status == 206 and start > 0 and any(line.lower().startswith(rest) for line in head))


def _apart(connection: Connection, into: Take, take: Take, start: int) -> Take:
    """What a host says instead is not what was asked for, however long it is."""
    passed = 0

    def sorted_out(chunk: bytes) -> object:
        nonlocal passed
        if not _given(connection.status, connection.head, start):
            return take(chunk)
        if connection.status == 200 and passed < start:
            chunk, passed = chunk[start - passed :], passed + len(chunk)
        return into(chunk) if chunk else None

    return sorted_out


def _pause(value: str, date: str) -> int:
    """Seconds, from a number of them or a time by the host's clock."""
    if value.isdecimal():
        return int(value[:9])
    with suppress(ValueError, TypeError):
        return max(0, int((parsedate_to_datetime(value) - parsedate_to_datetime(date)).total_seconds()))
    return 0
