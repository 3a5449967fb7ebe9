"""Where NATS is, and how to be let in there."""

from math import inf
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from skep.errors import BadInput


class Address(msgspec.Struct, frozen=True):
    hosts: tuple[str, ...]
    user: str | None
    password: str | None
    replicas: int
    #: seconds that a call waits for a server that is away or silent
    patience: float

    def __str__(self) -> str:
        return ", ".join(self.hosts)


def address(url: str) -> Address:
    """`nats://[user:password@ | token@]host[:port][,host[:port]…][?replicas=N&patience=SECONDS]`"""
    wrong = BadInput(
        "the NATS URL for log cannot be understood",
        hint="nats://user:password@host1:4222,host2:4222?replicas=1&patience=5",
    )
    try:
        place, _, query = url.partition("://")[2].partition("?")
        who, at, where = place.rpartition("@")
        user, colon, password = who.partition(":")
        hosts = tuple(_with_port(host) for host in where.removesuffix("/").split(","))
        options = parse_qs(query, strict_parsing=True, keep_blank_values=True) if query else {}
        replicas = int(options.pop("replicas", ["1"])[0])
        patience = float(options.pop("patience", ["5"])[0])
    except ValueError:
        raise wrong from None  # its words may hold the password
    if options or replicas < 1 or not 0 < patience < inf:
        raise wrong
    return Address(hosts, unquote(user) if at else None, unquote(password) if colon else None, replicas, patience)


def _with_port(host: str) -> str:
    split = urlsplit(f"nats://{host}")
    if not split.hostname or split.netloc != host:
        raise ValueError
    return host if split.port else f"{host.rstrip(':')}:4222"
