"""The coordinator's link: a socket for this machine's worker and, where it is wanted, a port for others'."""

import contextlib
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc

from skep.config import Settings, is_loopback, split_address
from skep.errors import BadInput
from skep.link import carry
from skep.link.authority import days_left
from skep.link.dial import Dial
from skep.link.join import CERT, KEY, ca_of, token_of
from skep.link.listening import listen
from skep.link.server import LinkServer
from skep.roles.build import Rooms

log = logging.getLogger("skep.link")
#: a unix socket's path has at most 107 bytes
_LONGEST_SOCKET = 100
_SOON_DAYS = 30


async def open_link(settings: Settings, rooms: Rooms, stack: contextlib.AsyncExitStack) -> Dial:
    """Closed by the stack; returns how this machine's worker dials it, and knows whoever else it brings bytes to."""
    link, socket = LinkServer(rooms.desk, beat_every=settings.beat_every), _socket(Path(settings.data), stack)
    rooms.tunnels.attach(link)
    if token := token_of(settings):
        await rooms.core.fleet.tokens.know(token)
    if settings.link_listen:
        credentials = credentials_of(settings)
        address = await link.start(settings.link_listen, credentials, socket=socket)
        log.info("workers and managers may join", extra={"at": address, "tls": credentials is not None})
    else:
        await link.start(socket)
    stack.push_async_callback(link.stop)
    return Dial((socket,), ca_of(settings))


async def open_meeting(settings: Settings, rooms: Rooms, stack: contextlib.AsyncExitStack) -> None:
    """Where workers bring what an aggregator apart asked for; they attach to a coordinator."""
    methods = {carry.METHOD: rooms.tunnels.meeting.carry}
    server, address = await listen(methods, settings.link_listen, credentials_of(settings))
    stack.push_async_callback(server.stop, 1.0)
    log.info("workers may bring what is asked of them", extra={"at": address})


def _socket(data: Path, stack: contextlib.AsyncExitStack) -> str:
    path = data / "link.sock"
    if len(os.fsencode(path)) > _LONGEST_SOCKET:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="skep-"))) / "link.sock"
    path.unlink(missing_ok=True)
    return f"unix:{path}"


def credentials_of(settings: Settings) -> Any:
    """None, which is plain text, only where no other machine can listen."""
    folder = Path(settings.data) / "tls"
    cert, key = Path(settings.tls_cert or folder / CERT), Path(settings.tls_key or folder / KEY)
    if not settings.tls_cert and not cert.exists():
        if is_loopback(split_address(settings.link_listen)[0]):
            return None
        raise BadInput(
            f"link_listen ({settings.link_listen}) can be reached from elsewhere and has no certificate",
            hint="`skep ca init HOST` makes one; or name yours in tls_cert and tls_key",
        )
    try:
        chain, secret = cert.read_bytes(), key.read_bytes()
        left = days_left(chain, time.time())
    except (OSError, ValueError) as error:
        raise BadInput(
            f"the certificate {cert} with the key {key} cannot be used: {error}", hint="see tls_cert, tls_key"
        ) from error
    if left < _SOON_DAYS:
        about = "has expired: members refuse it" if left <= 0 else f"expires in {left:.0f} days"
        log.warning("the certificate of the link %s; `skep ca init` makes a new one", about, extra={"file": str(cert)})
    return grpc.ssl_server_credentials([(secret, chain)])
