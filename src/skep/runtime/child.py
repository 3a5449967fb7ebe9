"""From a fork of the keeper to the command: everything that has to hold before the first line of it runs."""

import os
import resource
import signal
from typing import Any

from skep.runtime import kernel
from skep.runtime.processes import mark


def become(order: dict[str, Any], files: list[int], keeper: int, notes: int, open_files: tuple[int, int]) -> None:
    """Without isolation."""
    os.setsid()
    kernel.become_reaper()
    # a command that turned into another user's could not be ended
    kernel.refuse_new_privileges()
    os.write(notes, f"{mark(os.getpid())}\n".encode())
    be_expendable()
    if os.getppid() == keeper:
        execute(order, files, open_files)


def execute(order: dict[str, Any], files: list[int], open_files: tuple[int, int]) -> None:
    """The last steps; returns only by an error."""
    os.chdir(order["folder"])
    os.dup2(files[0], 1)
    os.dup2(files[1], 2)
    resource.setrlimit(resource.RLIMIT_NOFILE, open_files)
    _limit(order["limits"])
    # when processors are short the worker comes first; and our own steps before this one
    os.nice(5)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and so would the command
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.execve(order["path"], order["argv"], order["environment"])  # noqa: S606


def be_expendable() -> None:
    """When memory is short the worker comes first."""
    file = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    os.write(file, b"500")
    os.close(file)


def broke(order: dict[str, Any], error: BaseException) -> dict[str, Any]:
    number = error.errno if isinstance(error, OSError) else None
    return {"broke": order["start"], "errno": number, "text": str(error)}


def used(usage: resource.struct_rusage) -> dict[str, Any]:
    return {"cpu": usage.ru_utime + usage.ru_stime, "rss": usage.ru_maxrss << 10}


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
