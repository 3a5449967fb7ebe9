"""The coordinator's end of the link: attaches members, pushes orders, takes outcomes. What they mean is the Desk's."""

import asyncio
import logging
import os
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

import grpc

from skep.engines.db.base import Bell
from skep.errors import BadInput, Conflict, SkepError
from skep.link.frames import HELLO_LIMIT, JOINED_LIMIT, Joiner
from skep.link.messages import (
    PROTOCOL,
    Ack,
    AnswerBody,
    AskBody,
    Beat,
    Hello,
    Order,
    Outcome,
    Refused,
    UpFrame,
    Welcome,
)
from skep.link.session import Session
from skep.link.wire import Wire
from skep.model.credential import Key
from skep.model.task import Run, TaskHold

log = logging.getLogger(__name__)

METHOD = "/skep.Link/Attach"
#: what gRPC itself lets through; smaller excess gets our own, clearer answer
_OPTIONS = [("grpc.max_receive_message_length", 4 << 20), ("grpc.so_reuseport", 0)]
_HELLO_SECONDS = 10.0
#: the length of sockaddr_un.sun_path, less its final zero
_SOCKET_PATH = 107


class Desk(Protocol):
    """What the link asks of its coordinator."""

    async def hello(self, hello: Hello, *, local: bool) -> str | Refused:
        """The id of the member whose token this is, or why not. `local`: it came by the unix socket."""
        ...

    async def watch(self, hello: Hello) -> None:
        """Raises as soon as the member may no longer be attached; never returns."""
        ...

    async def beat(self, member: str, beat: Beat) -> None: ...

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

    def interest(self, after: int) -> tuple[int, list[str]]:
        """Sources people were interested in since this count, and the count now."""
        ...

    async def gone(self, member: str, boot: int) -> None:
        """The member's stream has ended, and no newer one took its place."""
        ...


class LinkServer:
    def __init__(self, desk: Desk, *, beat_every: float) -> None:
        self._desk = desk
        self._beat_every = beat_every
        self._sessions: dict[str, Session] = {}
        self._server: Any = None

    def listen(self, target: str, credentials: Any = None) -> str:
        """Listen on `unix:PATH` or `HOST:PORT` (port 0: any), without credentials in plain text; before `start`.

        Returns the target to dial."""
        if self._server is None:
            self._server = grpc.aio.server(options=_OPTIONS)
        path = _socket_path(target)
        try:
            if credentials is None:
                port = self._server.add_insecure_port(target)
            else:
                port = self._server.add_secure_port(target, credentials)
        except RuntimeError as error:
            raise Conflict(f"cannot listen on {target}", hint="is another Skep using it?") from error
        if path is not None:
            path.chmod(0o600)
        return target if path is not None else f"{target.rpartition(':')[0]}:{port}"

    async def start(self, target: str) -> str:
        try:
            address = self.listen(target)
        except SkepError:
            await self.stop(None)
            raise
        handler = grpc.stream_stream_rpc_method_handler(self._attach)
        service, method = METHOD.strip("/").split("/")
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        await self._server.start()
        return address

    async def stop(self, grace: float | None = 1.0) -> None:
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
            await wire.write([refused])

    async def _admit(self, wire: Wire, peer: str) -> Session | Refused:
        try:
            async with asyncio.timeout(_HELLO_SECONDS):
                first = await wire.read()
        except TimeoutError:
            return Refused(None, "bad_input", "no Hello came")
        if not first or not isinstance(first[0], Hello):
            return Refused(None, "bad_input", "a stream begins with Hello")
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
            if older.boot > hello.boot:
                return Refused(None, "replaced", f"a newer process of {member} is attached")
            await older.end(Refused(None, "replaced", f"a newer process of {member} has attached"))
        self._sessions[member] = session
        wire.limit(JOINED_LIMIT)
        return session

    async def _serve(self, session: Session) -> Refused | None:
        log.info("%s attached (boot %d)", session.member, session.boot)
        try:
            await session.wire.write([Welcome(PROTOCOL, self._beat_every)])
            return await session.run()
        finally:
            try:
                # before the next stream of the member is let in: what it takes must not be released with this one
                if not session.replaced:
                    await self._desk.gone(session.member, session.boot)
            finally:
                del self._sessions[session.member]
                session.over.set()
            log.info("%s detached", session.member)


def _socket_path(target: str) -> Path | None:
    if not target.startswith("unix:"):
        return None
    path = Path(target.removeprefix("unix:"))
    if len(os.fsencode(path)) > _SOCKET_PATH:
        raise BadInput(f"the socket path {path} is longer than {_SOCKET_PATH} bytes", hint="use a shorter data folder")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path
