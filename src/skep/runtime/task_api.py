"""What a task may ask of its context: a small HTTP API on this machine, so that any language can use it.

Each run has a token of its own, and with the run its token and its waiting requests end. Routes: docs/tasks.md.
"""

import asyncio
import logging
import re
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec
import uvicorn
from uvicorn.server import ServerState

from skep.base.answers import ErrorAnswer, ErrorBody
from skep.base.errors import BadInput, NeedsToken, NotFound, SkepError, TooLarge, Unavailable
from skep.base.loops import racing
from skep.runtime.sandbox import PORT
from skep.tasks.model import Command, TaskHold

log = logging.getLogger("skep.runtime")

_LARGEST_BODY = 1_000_000
_LONGEST_WAIT = 60.0
_VERBS = {
    ("GET", "checkpoints"): "checkpoint.get",
    ("PUT", "checkpoints"): "checkpoint.set",
    ("GET", "latches"): "latch.get",
    ("PUT", "latches"): "latch.set",
    ("POST", "latches", "down"): "latch.down",
    ("GET", "state"): "state.get",
    ("PUT", "state"): "state.set",
    ("POST", "benchmark"): "benchmark.call",
    ("PUT", "evaluations"): "evaluation.set",
}
_NAMELESS = {
    ("POST", "tasks"): "task.add",
    ("PUT", "result"): "result.set",
    ("POST", "results"): "results.add",
    ("POST", "log"): "log.add",
}
_NAME = re.compile(r"[^\x00-\x1f/]{1,200}")


class TaskCall(msgspec.Struct, frozen=True):
    """What a running task asks for."""

    task: str
    attempt: int
    context: str
    #: such as `checkpoint.set`
    verb: str
    #: of the checkpoint, latch or key
    name: str
    body: Any
    #: seconds to wait for a checkpoint to be set, a latch to be down, a key to be there
    wait: float


Handler = Callable[[TaskCall], Awaitable[Any]]
_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Scope]]
_Send = Callable[[_Scope], Awaitable[None]]


class Api:
    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._runs: dict[str, tuple[Command, set[asyncio.Future[Any]]]] = {}
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._address = ""
        self._config = uvicorn.Config(
            self._answer,
            interface="asgi3",
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        self._state = ServerState()
        #: of runs that are in a network of their own
        self._inside: dict[TaskHold, asyncio.Server | None] = {}

    @asynccontextmanager
    async def open(self, command: Command, *, inside: bool = False) -> AsyncIterator[dict[str, str]]:
        """The variables by which one run finds its way in, for as long as it lives. `inside`: by `attach`."""
        if not inside and self._serving is None:
            self._serve()
        token, hold = secrets.token_urlsafe(24), (command.task, command.attempt)
        waiting: set[asyncio.Future[Any]] = set()
        self._runs[token] = command, waiting
        if inside:
            self._inside[hold] = None
        try:
            yield {"SKEP_API": f"http://127.0.0.1:{PORT}" if inside else self._address, "SKEP_TOKEN": token}
        finally:
            del self._runs[token]
            if server := self._inside.pop(hold, None):
                server.close()
            for request in waiting:
                request.cancel()

    async def attach(self, command: Command, listener: socket.socket) -> None:
        """Serves a run on a socket that listens in its network; until its `open` ends."""
        hold = (command.task, command.attempt)
        if not self._config.loaded:
            self._config.load()
        listener.setblocking(False)
        server = await asyncio.get_running_loop().create_server(self._protocol, sock=listener)
        if hold in self._inside:
            self._inside[hold] = server
        else:  # it has ended meanwhile
            server.close()

    def _protocol(self) -> asyncio.Protocol:
        kind: Any = self._config.http_protocol_class
        made: asyncio.Protocol = kind(config=self._config, server_state=self._state, app_state={})
        return made

    async def close(self) -> None:
        if self._server and self._serving:
            self._server.should_exit = True
            await self._serving

    def _serve(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self._address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self._server = _Server(self._config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))

    async def _answer(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        try:
            if scope["type"] != "http":
                raise BadInput("only HTTP is spoken here")
            status, answer = 200, await self._called(scope, receive)
        except SkepError as error:
            status, answer = error.status, ErrorAnswer(ErrorBody(error.code, error.message, error.hint))
        except Exception:
            log.exception("a request of a task failed")
            status, answer = 500, ErrorAnswer(ErrorBody("internal", "internal error", "the worker's log tells more"))
        body = msgspec.json.encode(answer)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _called(self, scope: _Scope, receive: _Receive) -> Any:
        given = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
        if (found := self._runs.get(given.removeprefix("Bearer "))) is None:
            raise NeedsToken("this is for running tasks", hint="send 'Authorization: Bearer $SKEP_TOKEN'")
        command, waiting = found
        call = _call(command, scope, await _body(receive))
        doing = asyncio.ensure_future(self._handler(call))
        waiting.add(doing)
        try:
            async with racing(doing, _left(receive)):
                if doing.cancelled() or not doing.done():
                    raise Unavailable("the task has ended")
                return doing.result()
        finally:
            waiting.discard(doing)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]  # signals are the worker's
        yield


def _call(command: Command, scope: _Scope, body: Any) -> TaskCall:
    # split before decoding: a name may hold a slash in disguise, and is refused by its own rule
    noun, *rest = [unquote(part) for part in scope["raw_path"].decode("latin-1").strip("/").split("/")]
    name, *more = rest or [""]
    known = _VERBS if rest else _NAMELESS
    if (verb := known.get((scope["method"], noun, *more))) is None:
        raise NotFound(f"there is no {scope['method']} {scope['path']}", hint="docs/tasks.md lists what there is")
    if rest and not _NAME.fullmatch(name):
        raise BadInput(f"{name!r} is no name", hint="1 to 200 characters without '/' and control characters")
    query = parse_qs(scope["query_string"].decode("latin-1"))
    return TaskCall(
        command.task, command.attempt, command.context, verb, name, body, _wait(query.get("wait", ["0"])[0])
    )


def _wait(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise BadInput(f"wait={text!r} is no number of seconds")
    return min(seconds, _LONGEST_WAIT)


async def _body(receive: _Receive) -> Any:
    data, more = b"", True
    while more:
        message = await receive()
        data += message.get("body", b"")
        more = message.get("more_body", False)
        if len(data) > _LARGEST_BODY:
            raise TooLarge(f"a request may have {_LARGEST_BODY:,} bytes", hint="hand large data over in files")
    try:
        return msgspec.json.decode(data) if data else None
    except msgspec.DecodeError as error:
        raise BadInput(f"the request is not JSON: {error}") from None


async def _left(receive: _Receive) -> None:
    """Returns when the asker has gone."""
    while (await receive())["type"] != "http.disconnect":
        continue
