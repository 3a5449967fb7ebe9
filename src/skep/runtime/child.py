"""From a fork of the keeper to the command: everything that has to hold before the first line of it runs."""

import ctypes
import os
import resource
import signal
from typing import Any

from skep.runtime.processes import mark

_SUBREAPER, _NO_NEW_PRIVILEGES = 36, 38
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def become_reaper() -> None:
    """Whatever loses its parent below this process becomes its child, and not init's."""
    _prctl(_SUBREAPER, 1, 0, 0, 0)


def become(order: dict[str, Any], files: list[int], keeper: int, notes: int, open_files: tuple[int, int]) -> None:
    os.setsid()
    become_reaper()
    # a command that turned into another user's could not be ended
    _prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    os.write(notes, f"{mark(os.getpid())}\n".encode())
    _be_expendable()
    os.chdir(order["folder"])
    os.dup2(files[0], 1)
    os.dup2(files[1], 2)
    resource.setrlimit(resource.RLIMIT_NOFILE, open_files)
    _limit(order["limits"])
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and so would the command
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if os.getppid() == keeper:
        os.execve(order["path"], order["argv"], order["environment"])  # noqa: S606


def _be_expendable() -> None:
    """When processor or memory are short the worker comes first."""
    os.nice(5)
    file = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    os.write(file, b"500")
    os.close(file)


def _limit(limits: dict[str, Any]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if (cpu := limits["cpu"]) is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (int(cpu) + 1, int(cpu) + 2))
    if (disk := limits["disk"]) is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (disk, disk))
    if (memory := limits["memory"]) is not None:
        # not RLIMIT_AS: Java, Go and node reserve far more addresses than they use. Twice, so that whoever grows is
        # found by the watch, which can say why; this is the wall for one that grows faster than the watch looks
        resource.setrlimit(resource.RLIMIT_DATA, (2 * memory, 2 * memory))
