"""The network of a run: a namespace for each member, all joined by a bridge, with packet filters that cut them apart.

Nothing of it is connected to the network of the machine. All names begin with the process id of the run; a later run
removes what a dead run left behind.
"""

import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Self

from tests.chaos.schedule import MEMBERS, Event

_PREFIX = "chaos"
_NETWORK = "10.77.0"
NETWORK = f"{_NETWORK}.0/24"
_HUB = "hub"
_CLONE_NEWNET = 0x40000000


@cache
def why_not() -> str:
    """The reason why this machine cannot make namespaces; empty when it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [name for name in ("ip", "nft", "flock") if not shutil.which(name)]
    if missing:
        return f"{', '.join(missing)} is not installed (scripts/test-needs installs it)"
    probe = f"{_PREFIX}{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"this machine refuses network namespaces: {made.stderr.strip()}"
    _ip("netns", "del", probe)
    return ""


def address_of(member: str) -> str:
    return f"{_NETWORK}.{10 + MEMBERS.index(member)}"


def ruleset(member: str, cuts: Iterable[Event]) -> str:
    """The input of `nft` for one member: which packets it does not send."""
    lines = ["table inet chaos", "delete table inet chaos", "table inet chaos {", " chain out {"]
    lines.append("  type filter hook output priority 0; policy accept;")
    for event in cuts:
        for sender, receiver in event.directions:
            if sender == member:
                verdict = "meta l4proto tcp reject with tcp reset" if event.kind == "block" else "drop"
                lines.append(f"  ip daddr {address_of(receiver)} {verdict}")
    return "\n".join([*lines, " }", "}", ""])


class World:
    """This thread, and those that it starts later, are in the namespace of the member `home`."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._own = f"{_PREFIX}{os.getpid()}-"
        self._cuts: list[Event] = []

    def __enter__(self) -> Self:
        remove_stale()
        try:
            self._make()
            self.enter(self._home)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        remove(self._own)

    def _make(self) -> None:
        hub = self._own + _HUB
        _ip("netns", "add", hub)
        _ip("-n", hub, "link", "add", "br0", "type", "bridge")
        _ip("-n", hub, "link", "set", "br0", "up")
        for member in MEMBERS:
            name = self.name(member)
            _ip("netns", "add", name)
            _ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", member, "netns", hub)
            _ip("-n", hub, "link", "set", "dev", member, "master", "br0", "up")
            _ip("-n", name, "addr", "add", f"{address_of(member)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def name(self, member: str) -> str:
        return self._own + member

    @contextmanager
    def inside(self, member: str) -> Iterator[None]:
        """This thread, and the processes that it starts meanwhile, are in the namespace of the member."""
        with open("/proc/thread-self/ns/net", "rb") as before:  # noqa: PTH123
            self.enter(member)
            try:
                yield
            finally:
                _enter(before.fileno())

    def enter(self, member: str) -> None:
        """This thread, and the threads and processes that it starts, stay there."""
        with open(f"/run/netns/{self.name(member)}", "rb") as file:  # noqa: PTH123
            _enter(file.fileno())

    def cut(self, event: Event) -> None:
        self._cuts.append(event)
        self._filter(event)

    def heal(self, event: Event) -> None:
        self._cuts.remove(event)
        self._filter(event)

    def _filter(self, event: Event) -> None:
        for sender in {sender for sender, _ in event.directions}:
            nft = ["ip", "netns", "exec", self.name(sender), "nft", "-f", "-"]
            subprocess.run(nft, input=ruleset(sender, self._cuts), text=True, check=True, capture_output=True)

    def processes(self, member: str) -> dict[int, str]:
        """Each process in the namespace of the member, with its command line."""
        return _processes(self.name(member))


def remove_stale() -> None:
    """Removes the namespaces of runs whose process is dead."""
    for name in _namespaces():
        owner = name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            remove(f"{_PREFIX}{owner}-")


def remove(prefix: str) -> None:
    for name in _namespaces():
        if name.startswith(prefix):
            for pid in _processes(name):
                if pid != os.getpid():
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            _ip("netns", "del", name)


def _namespaces() -> list[str]:
    folder = Path("/run/netns")
    return [path.name for path in folder.iterdir() if path.name.startswith(_PREFIX)] if folder.exists() else []


def _processes(name: str) -> dict[int, str]:
    listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False).stdout
    return {int(pid): _command(int(pid)) for pid in listed.split()}


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "(ended)"


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*args: str) -> None:
    done = subprocess.run(["ip", *args], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(args)}: {done.stderr.strip()}")
