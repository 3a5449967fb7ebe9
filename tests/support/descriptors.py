"""Finds descriptors that a program closes twice: the second `close` hits whatever got the number in between."""

import os
import re
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

#: close(17) = -1 EBADF (Bad file descriptor)
_CLOSED_TWICE = re.compile(r"close\((\d+)\)\s+= -1 EBADF")
WITHOUT_STRACE = "" if shutil.which("strace") else "strace is not installed: run scripts/test-needs"


def traced(log: Path) -> list[str]:
    """Put this before a command: all failed calls of `close`, of its threads and of its children, go to files at `log`.

    The command keeps its process id: the tracer is a process next to it.
    """
    return ["strace", "-D", "-ff", "--seccomp-bpf", "-qq", "-e", "trace=close", "-e", "status=failed", "-o", str(log)]


def closed_twice(log: Path) -> list[str]:
    """One line for each, with the thread that did it. Read them when the command has ended."""
    return [
        f"{file.suffix[1:]}: {line}"
        for file in sorted(log.parent.glob(f"{log.name}.*"))
        for line in file.read_text().splitlines()
        if _CLOSED_TWICE.search(line)
    ]


class ForeignFiles:
    """Threads that open and close files of their own all the time, and notice when one is closed by other code."""

    def __init__(self, threads: int = 4) -> None:
        self.opened = 0
        self.lost = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            files = [os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC) for _ in range(8)]
            self._stop.wait(0.0002)
            self.opened += len(files)
            self.lost += sum(not _is_null(file) for file in files)
            for file in files:
                with suppress(OSError):
                    os.close(file)


def _is_null(file: int) -> bool:
    try:
        return os.fstat(file).st_rdev == os.makedev(1, 3)
    except OSError:
        return False
