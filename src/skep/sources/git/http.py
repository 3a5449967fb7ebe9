"""Many small HTTP exchanges on few connections: libcurl driven by the event loop, without threads.

Connections are kept and shared, HTTP/2 is used where offered, names are pinned to addresses that were checked before,
redirects are not followed, and a body has a bound.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import pycurl

from skep.net.connection import NetworkError
from skep.net.limits import pause

_FRIENDLY = {
    pycurl.E_COULDNT_RESOLVE_HOST: "the host name is not known",
    pycurl.E_COULDNT_CONNECT: "the host does not accept connections",
    pycurl.E_OPERATION_TIMEDOUT: "the host did not answer in time",
    pycurl.E_SSL_CONNECT_ERROR: "the host does not speak TLS as expected",
    pycurl.E_PEER_FAILED_VERIFICATION: "the host's TLS certificate is not trusted",
    pycurl.E_GOT_NOTHING: "the host closed the connection without an answer",
    pycurl.E_PARTIAL_FILE: "the answer broke off half-way",
    pycurl.E_RECV_ERROR: "the connection broke while reading",
    pycurl.E_SEND_ERROR: "the connection broke while writing",
    pycurl.E_WRITE_ERROR: "the answer is larger than allowed",
}


class Reply(NamedTuple):
    status: int
    body: bytes
    content_type: str
    #: where a redirect points to, made absolute
    redirect: str
    #: seconds; 0 when the server does not ask for a pause
    retry_after: int
    #: stands for what was answered, in a later question whether it is still so: its ETag, else its date
    validator: str = ""
    #: lines of the header
    head: Sequence[bytes] = ()


class Http:
    """Belongs to one event loop."""

    def __init__(self, *, ca: str, timeout: float, largest: int, connections: int, validators: bool = False) -> None:
        self._ca = ca
        self._timeout = timeout
        self._largest = largest
        self._validators = validators
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle | None = None
        self._free: list[Any] = []
        self._waiting: dict[Any, asyncio.Future[None]] = {}
        self._watched: dict[int, int] = {}
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)
        self._multi.setopt(pycurl.M_MAXCONNECTS, connections)
        self._multi.setopt(pycurl.M_PIPELINING, 2)  # several streams on one HTTP/2 connection

    async def ask(
        self,
        url: str,
        headers: Sequence[str],
        body: bytes | None,
        pins: Sequence[str],
    ) -> Reply:
        """GET, or POST when there is a body. `pins` are curl's HOST:PORT:ADDRESS."""
        head: list[bytes] = []
        parts: list[bytes] = []
        size = 0

        def take(chunk: bytes) -> int:
            nonlocal size
            size += len(chunk)
            parts.append(chunk)
            return len(chunk) if size <= self._largest else 0

        curl = self._free.pop() if self._free else self._new()
        curl.setopt(pycurl.URL, url)
        curl.setopt(pycurl.HTTPHEADER, list(headers))
        curl.setopt(pycurl.RESOLVE, list(pins))
        curl.setopt(pycurl.HEADERFUNCTION, head.append)
        curl.setopt(pycurl.WRITEFUNCTION, take)
        # TLS tells at once whether HTTP/2 is spoken; without it, waiting would be for nothing
        curl.setopt(pycurl.PIPEWAIT, url.startswith("https:"))
        if body is None:
            curl.setopt(pycurl.HTTPGET, 1)
        else:
            curl.setopt(pycurl.POST, 1)
            curl.setopt(pycurl.POSTFIELDS, body)
        try:
            await self._transfer(curl)
            status = curl.getinfo(pycurl.RESPONSE_CODE)
            reply = Reply(
                status,
                b"".join(parts),
                curl.getinfo(pycurl.CONTENT_TYPE) or "",
                curl.getinfo(pycurl.REDIRECT_URL) or "",
                curl.getinfo(pycurl.RETRY_AFTER) or (pause(head) if status in (403, 429) else 0),
                _validator(head) if self._validators else "",
                head,
            )
        except BaseException:
            curl.close()
            raise
        self._free.append(curl)
        return reply

    async def close(self) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(NetworkError("shutting down"))
        if self._waiting:
            await asyncio.wait(self._waiting.values())
            await asyncio.sleep(0)  # the askers take their handles away first
        for curl in self._free:
            curl.close()
        self._free.clear()
        # while they are open: a closed number may be another file's already
        for fd in list(self._watched):
            self._watch(pycurl.POLL_REMOVE, fd, None, None)
        self._multi.close()
        if self._timer is not None:
            self._timer.cancel()

    def _new(self) -> Any:
        curl = pycurl.Curl()
        for option, value in (
            (pycurl.NOSIGNAL, 1),
            (pycurl.PROXY, ""),
            (pycurl.FOLLOWLOCATION, 0),
            (pycurl.PATH_AS_IS, 1),
            (pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS),
            (pycurl.CAINFO, self._ca),
            (pycurl.SSL_VERIFYPEER, 1),
            (pycurl.SSL_VERIFYHOST, 2),
            (pycurl.TIMEOUT_MS, int(self._timeout * 1000)),
            (pycurl.CONNECTTIMEOUT_MS, int(min(self._timeout, 10) * 1000)),
            (pycurl.TCP_KEEPALIVE, 1),
            (pycurl.USERAGENT, "git/2.39 (skep)"),  # forges tell git and browsers apart by this
        ):
            curl.setopt(option, value)
        return curl

    async def _transfer(self, curl: Any) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting[curl] = future
        self._multi.add_handle(curl)
        try:
            await future
        finally:
            del self._waiting[curl]
            self._multi.remove_handle(curl)

    def _watch(self, event: int, fd: int, _multi: Any, _data: Any) -> None:
        """libcurl says which sockets it waits for."""
        before = self._watched.get(fd, 0)
        after = 0 if event == pycurl.POLL_REMOVE else event
        if after:
            self._watched[fd] = after
        else:
            self._watched.pop(fd, None)
        if after & pycurl.POLL_IN and not before & pycurl.POLL_IN:
            self._loop.add_reader(fd, self._act, fd, pycurl.CSELECT_IN)
        elif before & pycurl.POLL_IN and not after & pycurl.POLL_IN:
            self._loop.remove_reader(fd)
        if after & pycurl.POLL_OUT and not before & pycurl.POLL_OUT:
            self._loop.add_writer(fd, self._act, fd, pycurl.CSELECT_OUT)
        elif before & pycurl.POLL_OUT and not after & pycurl.POLL_OUT:
            self._loop.remove_writer(fd)

    def _set_timer(self, milliseconds: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if milliseconds >= 0:
            self._timer = self._loop.call_later(milliseconds / 1000, self._act, pycurl.SOCKET_TIMEOUT, 0)

    def _act(self, fd: int, events: int) -> None:
        self._multi.socket_action(fd, events)
        left = 1
        while left:
            left, done, failed = self._multi.info_read()
            for curl in done:
                self._finish(curl, None)
            for curl, code, text in failed:
                self._finish(
                    curl, NetworkError(_FRIENDLY.get(code) or f"{text or 'the exchange failed'} (curl {code})")
                )

    def _finish(self, curl: Any, error: NetworkError | None) -> None:
        future = self._waiting.get(curl)
        if future is None or future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


def _validator(head: Sequence[bytes]) -> str:
    fields = {name.lower(): value for line in head for name, _, value in [line.partition(b":")]}
    return fields.get(b"etag", fields.get(b"last-modified", b"")).decode("latin-1").strip()
