"""Which upstreams may be asked. URLs come from people and lists: none may reach what only this machine can reach.

An address is checked when it is used, not when it is written: the host is resolved here, every address it has is
judged, and the caller pins the connection to what was judged, so that a name that changes its mind gains nothing.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable

from skep.base.clock import Clock
from skep.base.errors import BadInput, NotAllowed
from skep.config.settings import Settings
from skep.net.urls import Parts, parse

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Lookup = Callable[[str, int], Awaitable[list[str]]]

#: link-local and the other places where clouds keep their machines' secrets: refused whatever the settings say
_NEVER: tuple[Network, ...] = tuple(
    ipaddress.ip_network(text)
    for text in ("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "100.100.100.200/32", "192.0.0.192/32")
)
_METADATA = {"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"}
#: IPv6 ranges whose last 32 bits are an IPv4 address
_CARRIERS = tuple(ipaddress.IPv6Network(text) for text in ("::/96", "64:ff9b::/96", "64:ff9b:1::/48"))
_KEEP = 60.0
_LOOKUP_SECONDS = 10.0
_REMEMBERED = 10_000


async def system_lookup(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Guard:
    def __init__(self, settings: Settings, clock: Clock, *, local: bool, lookup: Lookup = system_lookup) -> None:
        self._schemes = set(settings.allow_schemes) | ({"file"} if local else set())
        self._networks = tuple(_network(text) for text in settings.allow_networks)
        self._clock = clock
        self._lookup = lookup
        #: host -> until when its addresses are taken for known
        self._permitted: dict[str, tuple[float, list[str]]] = {}
        self._asking: dict[str, asyncio.Task[list[str]]] = {}

    def check_url(self, url: str) -> Parts:
        """BadUrl when it is none; NotAllowed when its scheme, or the address in it, may not be asked."""
        parts = parse(url)
        if parts.scheme == "file" and "file" not in self._schemes:
            raise NotAllowed(
                "folders of this machine may not be added here",
                hint="it is for admins, and only with the setting `allow_local` or while listening on loopback",
            )
        if parts.scheme not in self._schemes:
            allowed = ", ".join(sorted(self._schemes))
            raise NotAllowed(f"'{parts.scheme}://' is not allowed here", hint=f"`allow_schemes` permits: {allowed}")
        if parts.host in _METADATA:
            raise NotAllowed(f"'{parts.host}' is where clouds keep secrets; it is never asked")
        if parts.host not in self._permitted and (literal := _literal(parts.host)) is not None:
            self._judge(parts.host, literal)
        return parts

    async def resolve(self, host: str, port: int) -> list[str]:
        """The host's addresses, all of them permitted; NotAllowed otherwise, OSError when it has none."""
        until, addresses = self._permitted.get(host, (0.0, []))
        if until > self._clock.now():
            return addresses
        addresses = [host] if _literal(host) is not None else await self._look_up(host, port)
        for text in addresses:
            self._judge(host, ipaddress.ip_address(text.partition("%")[0]))
        if len(self._permitted) >= _REMEMBERED:
            del self._permitted[next(iter(self._permitted))]
        self._permitted[host] = (self._clock.now() + _KEEP, addresses)
        return addresses

    async def pins(self, parts: Parts) -> list[str]:
        """What keeps the connection at the addresses that were checked, as curl and git understand it."""
        addresses = await self.resolve(parts.host, parts.port)
        return [] if addresses == [parts.host] else [f"{parts.host}:{parts.port}:{','.join(addresses)}"]

    async def _look_up(self, host: str, port: int) -> list[str]:
        """One question for all who want to know at the same time."""
        asking = self._asking.get(host)
        if asking is None:
            asking = asyncio.ensure_future(asyncio.wait_for(self._lookup(host, port), _LOOKUP_SECONDS))
            asking.add_done_callback(lambda task: self._forget(host, task))
            self._asking[host] = asking
        return await asyncio.shield(asking)

    def _forget(self, host: str, task: asyncio.Task[list[str]]) -> None:
        del self._asking[host]
        if not task.cancelled():
            task.exception()  # seen, even when all who asked have gone

    def _judge(self, host: str, address: Address) -> None:
        shown = f"'{host}'" if host == str(address) else f"'{host}' ({address})"
        for form in _forms(address):
            if _within(form, _NEVER):
                raise NotAllowed(f"{shown} is a link-local or metadata address; it is never asked")
        if any(_within(form, self._networks) for form in _forms(address)):
            return
        if not all(form.is_global and not form.is_multicast and not form.is_reserved for form in _forms(address)):
            raise NotAllowed(
                f"{shown} is a private address", hint=f'permit its network: `allow_networks = ["{_example(address)}"]`'
            )


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _forms(address: Address) -> list[Address]:
    """The address and the IPv4 addresses it leads to by translation."""
    forms: list[Address] = [address]
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return [address.ipv4_mapped]
        if address.sixtofour:
            forms.append(address.sixtofour)
        if address.teredo:
            forms.extend(address.teredo)
        if any(address in network for network in _CARRIERS):
            forms.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return forms


def _within(address: Address, networks: tuple[Network, ...]) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise BadInput(f"`allow_networks`: '{text}' is no network", hint="write 192.168.1.0/24") from None


def _example(address: Address) -> Network:
    plain = _forms(address)[-1]
    return ipaddress.ip_network(f"{plain}/{24 if plain.version == 4 else 64}", strict=False)
