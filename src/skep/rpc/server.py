"""The coordinator's end of the link: attaches members, pushes orders, takes outcomes. What they mean is the Desk's."""

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

import grpc

from skep.base.errors import BadInput, Conflict, SkepError, Unavailable
from skep.config.settings import split_address
from skep.rpc import tunnel
from skep.rpc.connect import uri
from skep.rpc.messages import (
    HELLO_LIMIT,
    JOINED_LIMIT,
    PROTOCOL,
    Ack,
    AnswerBody,
    AskBody,
    Beat,
    Broken,
    Down,
    Hello,
    Joiner,
    Open,
    Order,
    Outcome,
    Refused,
    UpFrame,
    Welcome,
    Wire,
)
from skep.rpc.session import Session
from skep.rpc.tunnel import Meeting
from skep.sources.model import Key
from skep.storage.database import Bell
from skep.tasks.model import Run, TaskHold

# A gRPC server on a unix socket or an address.

_OPTIONS = [
    #: what gRPC itself lets through; smaller excess gets our own, clearer answer
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.so_reuseport", 0),
    #: a machine that vanished says nothing, and ours ping often while they wait for a slow reader
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
]
#: the length of sockaddr_un.sun_path, less its final zero
_SOCKET_PATH = 107


async def listen(
    methods: Mapping[str, Callable[[object, Any], Awaitable[None]]],
    target: str,
    credentials: Any = None,
    *,
    beside: str = "",
) -> tuple[Any, str]:
    """On `unix:PATH` or `HOST:PORT` (port 0: any); the server, to be stopped, and the target to dial.

    `beside`: a unix socket besides, which needs no credentials."""
    server = grpc.aio.server(options=_OPTIONS)
    for method, do in methods.items():
        service, name = method.strip("/").split("/")
        handlers = {name: grpc.stream_stream_rpc_method_handler(do)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    try:
        dialled = _bind(server, target, credentials)
        if beside:
            _bind(server, beside, None)
    except SkepError:
        await server.stop(None)
        raise
    await server.start()
    return server, dialled


def _bind(server: Any, target: str, credentials: Any) -> str:
    path = _socket_path(target)
    try:
        secure = credentials is not None
        port = server.add_secure_port(target, credentials) if secure else server.add_insecure_port(uri(target))
    except RuntimeError:
        raise _explained(target) from None
    if path is None:
        return f"{target.rpartition(':')[0]}:{port}"
    path.chmod(0o600)
    return target


def _explained(target: str) -> SkepError:
    """gRPC does not say why it cannot listen there; the system does when it is asked again."""
    if not target.startswith("unix:"):
        try:
            host, port = split_address(target)
            with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
                pass
        except OSError as error:
            why = "it is taken" if error.errno == errno.EADDRINUSE else error.strerror
            return BadInput(f"cannot listen on {target}: {why}", hint="choose another with --link-listen HOST:PORT")
    return Conflict(f"cannot listen on {target}", hint="is another Skep using it?")


def _socket_path(target: str) -> Path | None:
    if not target.startswith("unix:"):
        return None
    path = Path(target.removeprefix("unix:"))
    if len(os.fsencode(path)) > _SOCKET_PATH:
        raise BadInput(f"the socket path {path} is longer than {_SOCKET_PATH} bytes", hint="use a shorter data folder")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


log = logging.getLogger(__name__)

METHOD = "/skep.Link/Attach"
_HELLO_SECONDS = 10.0


class Desk(Protocol):
    """What the link asks of its coordinator."""

    async def hello(self, hello: Hello, *, local: bool) -> str | Refused:
        """The id of the member whose token this is, or why not. `local`: it came by the unix socket."""
        ...

    async def watch(self, hello: Hello) -> None:
        """Raises as soon as the member may no longer be attached; never returns."""
        ...

    async def beat(self, member: str, boot: int, beat: Beat) -> None:
        """Replaced when a newer process of the member has attached, here or elsewhere."""
        ...

    async def done(self, member: str, orders: Sequence[int]) -> None: ...

    async def outcomes(self, member: str, outcomes: Sequence[Outcome]) -> list[Ack | Refused]:
        """Answers once they are durable."""
        ...

    async def orders(self, member: str) -> list[Order]:
        """The member's unconfirmed orders, oldest first; a bounded number of them."""
        ...

    def bell(self, member: str) -> AbstractAsyncContextManager[Bell]:
        """Rings when orders of the member may have been added."""
        ...

    async def ask(self, member: str, boot: int, body: AskBody, again: bool) -> AnswerBody:
        """A SkepError becomes the answer. Cancelled when nobody waits for it any more."""
        ...

    async def runs(self, member: str) -> tuple[list[Run], set[TaskHold]]:
        """What the member should begin, and everything it should be running."""
        ...

    def runs_bell(self, member: str) -> AbstractAsyncContextManager[Bell]: ...

    async def keys(self) -> tuple[Key, ...]:
        """The credentials that workers use."""
        ...

    def keys_bell(self) -> AbstractAsyncContextManager[Bell]: ...

    def now(self) -> float:
        """The time by which members go."""
        ...

    async def share(self, member: str) -> tuple[float, float]:
        """The part of what upstream hosts permit that the member may use."""
        ...

    def interest(self, after: int) -> tuple[int, list[str]]:
        """Sources people were interested in since this count, and the count now."""
        ...

    async def openings(self, member: str) -> list[Open]:
        """Tunnels that others want of the member; each is told once."""
        ...

    def openings_bell(self, member: str) -> AbstractAsyncContextManager[Bell]: ...

    async def gone(self, member: str, boot: int, *, down: bool) -> None:
        """The member's stream has ended, and no newer one took its place. Not `down`: because we are stopping."""
        ...


class LinkServer:
    def __init__(self, desk: Desk, *, beat_every: float) -> None:
        self._desk = desk
        self._beat_every = beat_every
        self.meeting = Meeting()
        self._sessions: dict[str, Session] = {}
        self._server: Any = None
        #: where this process itself can dial it
        self.target = ""

    async def start(self, target: str, credentials: Any = None, *, socket: str = "") -> str:
        """Listen on `unix:PATH` or `HOST:PORT` (port 0: any); returns the target to dial. `socket`: there too."""
        methods = {METHOD: self._attach, tunnel.METHOD: self.meeting.carry}
        self._server, dialled = await listen(methods, target, credentials, beside=socket)
        self.target = socket or dialled
        return dialled

    def has(self, member: str) -> bool:
        return member in self._sessions

    async def push(self, member: str, message: Down) -> None:
        """To a member that is attached here, now or never."""
        session = self._sessions.get(member)
        if session is None:
            raise Unavailable(f"{member} is not attached", hint="it will be tried again when it is back")
        await session.wire.write([message])

    async def stop(self, grace: float = 1.0) -> None:
        stopping = Refused(None, "stopping", "the coordinator is stopping")
        await asyncio.gather(*(session.end(stopping) for session in list(self._sessions.values())))
        if self._server is not None:
            await self._server.stop(grace)

    async def _attach(self, _: object, context: Any) -> None:
        wire = Wire(context, Joiner(UpFrame, HELLO_LIMIT))
        try:
            session = await self._admit(wire, context.peer())
            if isinstance(session, Refused):
                refused: Refused | None = session
            else:
                refused = await self._serve(session)
        except SkepError as error:
            refused = Refused(None, error.code, error.message, error.hint)
        if refused is not None:
            log.info("a stream from %s ends: %s", context.peer(), refused.message)
            with contextlib.suppress(Broken):
                await wire.write([refused])

    async def _admit(self, wire: Wire, peer: str) -> Session | Refused:
        try:
            async with asyncio.timeout(_HELLO_SECONDS):
                first = await wire.read()
        except TimeoutError:
            return Refused(None, "bad_input", "no Hello came")
        if not first or not isinstance(first[0], Hello) or not first[0].roles:
            return Refused(None, "bad_input", "a stream begins with Hello, which names a role")
        hello = first[0]
        if hello.protocol != PROTOCOL:
            return Refused(
                None,
                "protocol",
                f"the coordinator speaks link protocol {PROTOCOL}, the {hello.roles[0]} {hello.protocol}",
                "run the same version of Skep on both",
            )
        member = await self._desk.hello(hello, local=peer.startswith("unix:"))
        if isinstance(member, Refused):
            return member
        session = Session(self._desk, wire, hello, self._beat_every)
        while older := self._sessions.get(member):
            await older.end(Refused(None, "replaced", f"a newer process of {member} has attached"))
        self._sessions[member] = session
        wire.limit(JOINED_LIMIT)
        return session

    async def _serve(self, session: Session) -> Refused | None:
        """gRPC cancels when the stream breaks, also while its end is in work already: that is not cut short."""
        serving = asyncio.create_task(self._attached(session))
        try:
            await asyncio.wait([serving])
        except asyncio.CancelledError:
            session.leave()
            await asyncio.wait([serving])
            raise
        return await serving

    async def _attached(self, session: Session) -> Refused | None:
        log.info("%s attached (boot %d)", session.member, session.boot)
        try:
            await session.wire.write([Welcome(PROTOCOL, self._beat_every)])
            return await session.run()
        finally:
            try:
                # before the next stream of the member is let in: what it takes must not be released with this one
                if not session.replaced:
                    await self._desk.gone(session.member, session.boot, down=not session.stopping)
            finally:
                del self._sessions[session.member]
                self.meeting.lost(session.member)
                session.over.set()
            log.info("%s detached", session.member)
