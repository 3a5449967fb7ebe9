"""A gRPC server on a unix socket or an address."""

import errno
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc

from skep.config import split_address
from skep.errors import BadInput, Conflict, SkepError
from skep.link.dial import uri

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
