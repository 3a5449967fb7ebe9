"""A network of its own for one process, whose wire can be made slow, or swallow what is sent without a word."""

import ctypes
import os
import socket
import subprocess
from pathlib import Path
from typing import Self

#: nobody has this address: what is sent there is lost, and nobody says so
_NOBODY = "02:00:00:00:00:99"


class Network:
    def __init__(self) -> None:
        number = os.getpid() % 16_000
        self.name = f"skep{number}"
        self._wire = f"skep{number}n"
        net = f"10.{200 + number // 6_400}.{number // 64 % 100}.{number % 64 * 4}".rpartition(".")
        #: of the machine, and of the one inside
        self.near, self.far = (f"{net[0]}.{int(net[2]) + one}" for one in (1, 2))
        #: in front of a command that is to run inside
        self.before = ("ip", "netns", "exec", self.name)

    def __enter__(self) -> Self:
        _ip("netns", "add", self.name)
        _ip("link", "add", self._wire, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        for device, address, inside in ((self._wire, self.near, ()), ("eth0", self.far, ("-n", self.name))):
            _ip(*inside, "addr", "add", f"{address}/30", "dev", device)
            _ip(*inside, "link", "set", device, "up")
        _ip("-n", self.name, "link", "set", "lo", "up")
        return self

    def __exit__(self, *_: object) -> None:
        _ip("netns", "del", self.name)

    def cut(self) -> None:
        """No reset, no error, no link that is down: packets leave and never arrive."""
        for device, address, inside in self._ends:
            _ip(*inside, "neigh", "replace", address, "lladdr", _NOBODY, "dev", device, "nud", "permanent")

    def mend(self) -> None:
        for device, address, inside in self._ends:
            _ip(*inside, "neigh", "del", address, "dev", device)

    def shape(self, rate: str) -> None:
        for device, _, inside in self._ends:
            limit = ("root", "tbf", "rate", rate, "burst", "64kb", "latency", "100ms")
            subprocess.run(["tc", *inside, "qdisc", "replace", "dev", device, *limit], check=True)

    @property
    def _ends(self) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
        return (self._wire, self.far, ()), ("eth0", self.near, ("-n", self.name))

    def listener(self) -> socket.socket:
        """On the loopback of the one inside: what this process serves there does not need the wire."""
        libc = ctypes.CDLL(None, use_errno=True)
        outside, inside = (os.open(path, os.O_RDONLY) for path in ("/proc/thread-self/ns/net", _path(self.name)))
        try:
            _enter(libc, inside)
            return socket.create_server(("127.0.0.1", 0))
        finally:
            _enter(libc, outside)
            os.close(outside)
            os.close(inside)


def _path(name: str) -> Path:
    return Path("/run/netns") / name


def _enter(libc: ctypes.CDLL, network: int) -> None:
    if libc.setns(network, 0):
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True)
