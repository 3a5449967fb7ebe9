"""System calls that the standard library does not offer. Standard library only: the supervisor has to stay small."""

import ctypes
import os
import signal
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

NEW_MOUNTS, NEW_NAMES, NEW_IPC = 0x00020000, 0x04000000, 0x08000000
NEW_USER, NEW_PIDS, NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000

READ_ONLY, NO_SETUID, NO_DEVICES, NO_EXECUTION = 1, 2, 4, 8
BIND, RECURSIVE, FOLLOWING = 0x1000, 0x4000, 0x80000

_SUBREAPER, _PARENT_DEATH, _DUMPABLE, _DROP_BOUND, _NO_NEW_PRIVILEGES = 36, 1, 4, 24, 38
#: these have the same number on every architecture
_CLONE3, _MOUNT_SETATTR, _LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 435, 442, 444, 445, 446
_AT_RECURSIVE, _HERE = 0x8000, -100
_CAPABILITIES_VERSION = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
#: keeps the interpreter's lock, which a new process could not take again
_locked_libc = ctypes.PyDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def clone(flags: int) -> int:
    """As os.fork, and the new process is in new namespaces."""
    args = struct.pack("8Q", flags, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    return _checked(_locked_libc.syscall(_CLONE3, args, len(args)), "clone3")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    call = (source.encode(), target.encode(), kind.encode() or None, flags, options.encode() or None)
    _checked(_libc.mount(*call[:3], ctypes.c_ulong(flags), call[4]), f"mount {source} at {target}")


def bind(source: str, target: str) -> None:
    mount(source, target, flags=BIND | RECURSIVE)


def restrict(target: str, flags: int, *, recursive: bool) -> None:
    """Adds READ_ONLY, NO_SETUID, NO_DEVICES to a mount; `recursive`: and to those below it."""
    attributes = struct.pack("4Q", flags, 0, 0, 0)
    call = (_MOUNT_SETATTR, _HERE, target.encode(), _AT_RECURSIVE if recursive else 0, attributes, len(attributes))
    _checked(_libc.syscall(*call), f"mount_setattr {target}")


def pivot_root(new: str, old: str) -> None:
    _checked(_libc.pivot_root(new.encode(), old.encode()), "pivot_root")


def become_reaper() -> None:
    """Whatever loses its parent below this process becomes its child, and not init's."""
    _libc.prctl(_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    _libc.prctl(_PARENT_DEATH, signal.SIGKILL, 0, 0, 0)


def be_opaque() -> None:
    """Other processes of the same user cannot read its memory, variables and files."""
    _libc.prctl(_DUMPABLE, 0, 0, 0, 0)


def refuse_new_privileges() -> None:
    _checked(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "prctl")


def drop_bounds() -> None:
    """No program that this process executes gets a capability, whatever its user."""
    number = 0
    while _libc.prctl(_DROP_BOUND, number, 0, 0, 0) == 0:
        number += 1


def drop_capabilities() -> None:
    header = struct.pack("Ii", _CAPABILITIES_VERSION, 0)
    _checked(_libc.capset(header, struct.pack("6I", *[0] * 6)), "capset")


class Landlock:
    """Rights of files: what is not allowed is refused, for this process and all that it starts."""

    _READ = 0b0000_0000_0000_1101
    #: by version of the interface; the second has what renaming needs
    _HANDLED = (0, 0x1FFF, 0x3FFF, 0x7FFF, 0x7FFF, 0xFFFF)
    _OF_FILES = 0b1100_0000_0000_0111
    _SCOPES = 0b11

    @staticmethod
    def version() -> int:
        """0: this kernel has none that can be used."""
        found = int(_libc.syscall(_LANDLOCK_CREATE, None, 0, 1))
        return found if found >= 2 else 0

    def __init__(self) -> None:
        version = self.version()
        self._handled = self._HANDLED[min(version, len(self._HANDLED) - 1)]
        # signals and abstract sockets stay inside where the kernel can do that
        attributes = struct.pack("3Q", self._handled, 0, self._SCOPES if version >= 6 else 0)
        size = 24 if version >= 6 else 8
        self._rules = _checked(_libc.syscall(_LANDLOCK_CREATE, attributes, size, 0), "landlock_create_ruleset")

    def allow(self, path: str, *, writing: bool) -> None:
        rights = self._handled if writing else self._READ & self._handled
        file = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not os.path.isdir(path):
                rights &= self._OF_FILES
            rule = struct.pack("=Qi", rights, file)
            _checked(_libc.syscall(_LANDLOCK_ADD, self._rules, 1, rule, 0), f"landlock_add_rule {path}")
        finally:
            os.close(file)

    def restrict(self) -> None:
        _checked(_libc.syscall(_LANDLOCK_RESTRICT, self._rules, 0), "landlock_restrict_self")
        os.close(self._rules)


def limit_namespaces() -> None:
    """In a user namespace of its own: no further one below it."""
    with suppress(OSError):
        file = os.open("/proc/sys/user/max_user_namespaces", os.O_WRONLY)
        os.write(file, b"0")
        os.close(file)


# The processes of this machine, as /proc tells. Standard library only: the keeper has to stay small.

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

Table = dict[int, "Process"]


class Process(NamedTuple):
    parent: int
    group: int
    #: ended, and not yet waited for
    zombie: bool
    #: seconds, with those of children it has waited for
    cpu: float
    rss: int
    #: ticks since the machine started: with its pid, the name of a process
    born: int


def look(pid: int) -> Process | None:
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return None
    try:
        # the name in brackets may hold anything, brackets too
        field = os.read(file, 4096).rpartition(b")")[2].split()
    except ProcessLookupError:
        return None
    finally:
        os.close(file)
    cpu = sum(map(int, field[11:15])) / _TICK
    return Process(int(field[1]), int(field[2]), field[0] in b"ZX", cpu, int(field[21]) * _PAGE, int(field[19]))


def everything() -> Table:
    return _looked(int(name) for name in os.listdir("/proc") if name.isdigit())  # often


def younger(pid: int) -> Table:
    """Those that may have begun since `pid` did, not long ago: numbers are given out in order."""
    newest = int(Path("/proc/loadavg").read_text().split()[4])
    if pid < newest < pid + 100:
        return _looked(range(pid + 1, newest + 1))
    return everything()


def _looked(pids: Iterable[int]) -> Table:
    return {pid: found for pid in pids if (found := look(pid)) is not None}


def tree(table: Table, roots: Iterable[int]) -> set[int]:
    """The roots and all below them."""
    children: dict[int, list[int]] = {}
    for pid, process in table.items():
        children.setdefault(process.parent, []).append(pid)
    found, ahead = set(), list(roots)
    while ahead:
        if (pid := ahead.pop()) not in found:
            found.add(pid)
            ahead += children.get(pid, ())
    return found


def end_all(find: Callable[[Table], set[int]]) -> int:
    """End whatever `find` finds. All are stopped before any is killed: a dead parent would hide its children."""
    stopped: set[int] = set()
    while fresh := {pid for pid in _alive(find) if pid not in stopped}:
        _tell(fresh, signal.SIGSTOP)
        stopped |= fresh
    _tell(stopped, signal.SIGKILL)
    return len(stopped)


def _alive(find: Callable[[Table], set[int]]) -> Iterator[int]:
    table = everything()
    return (pid for pid in find(table) if pid in table and not table[pid].zombie)


def _tell(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def mark(pid: int) -> str:
    """A name that no other process has for as long as the machine runs; empty when it is gone."""
    process = look(pid)
    return f"{pid} {process.born}" if process else ""


def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
