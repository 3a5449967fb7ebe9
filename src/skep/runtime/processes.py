"""The processes of this machine, as /proc tells. Standard library only: the keeper has to stay small."""

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

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
    return _looked(int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208  # often


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
