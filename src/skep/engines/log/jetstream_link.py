"""The connection to NATS: made again whenever it is gone, with errors for people that never hold a password."""

import asyncio
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error, NoRespondersError

from skep.engines.log.jetstream_wire import Answer, Fault
from skep.errors import BadInput, NoSpace, NotFound, SkepError, TooLarge, Unavailable

T = TypeVar("T")
#: the server's numbers for: account, server, memory and storage limits
_NO_SPACE = {10002, 10023, 10028, 10047}
_NO_SPACE_WORDS = ("no space left", "maximum bytes", "maximum messages", "insufficient")
_TOO_LARGE = 10054


class Address(msgspec.Struct, frozen=True):
    hosts: tuple[str, ...]
    user: str | None
    password: str | None
    replicas: int

    def __str__(self) -> str:
        return ", ".join(self.hosts)


def address(url: str) -> Address:
    """`nats://[user:password@ | token@]host[:port][,host[:port]…][?replicas=N]`"""
    wrong = BadInput(
        "the NATS URL for log cannot be understood", hint="nats://user:password@host1:4222,host2:4222?replicas=1"
    )
    try:
        split = urlsplit(url)
        who, at, where = split.netloc.rpartition("@")
        user, colon, password = who.partition(":")
        hosts = tuple(_with_port(host) for host in where.split(","))
        options = parse_qs(split.query, strict_parsing=True) if split.query else {}
        replicas = int(options.pop("replicas", ["1"])[0])
    except ValueError:
        raise wrong from None  # its words may hold the password
    if options or split.path.strip("/") or split.fragment or replicas < 1:
        raise wrong
    return Address(hosts, unquote(user) if at else None, unquote(password) if colon else None, replicas)


def _with_port(host: str) -> str:
    split = urlsplit(f"nats://{host}")
    if not split.hostname or split.path:
        raise ValueError
    return host if split.port else f"{host.rstrip(':')}:4222"


class Link:
    """One client for all; what must be told of its comings and goings is called `begun` and `lost`."""

    def __init__(self, to: Address, patience: float) -> None:
        self.to = to
        self.patience = patience
        #: rises whenever the server may have forgotten us
        self.turn = 0
        self.begun: Callable[[Client], "asyncio.Future[None] | asyncio.Task[None]"] | None = None
        self.lost: Callable[[], None] = lambda: None
        self.back: Callable[[], None] = lambda: None
        self._client: Client | None = None
        self._closed = False
        self._changed = asyncio.Event()
        self._connecting = asyncio.Lock()
        self._said = ""
