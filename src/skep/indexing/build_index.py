"""Plans and builds indexes, job after job, in a process of its own: `python -m skep.indexing.build_index NICENESS`."""

import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from typing import BinaryIO

import msgspec

from skep.analysis.worker import analyse
from skep.base.errors import SkepError
from skep.indexing.build import (
    Analyse,
    Batch,
    Broke,
    Compare,
    Compared,
    Counted,
    Job,
    Work,
    build,
    frame,
    plan,
    read_frame,
    to_job,
)
from skep.sources.git.documents import expected

_REPORT_SECONDS = 0.25


class _Reports:
    """Progress, not more often than somebody could look at it."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._next = 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _REPORT_SECONDS
            self.send(Counted(done, total))

    def send(self, message: msgspec.Struct) -> None:
        self._out.write(frame(message))
        self._out.flush()


def main() -> None:
    os.nice(int(sys.argv[1]))
    jobs: queue.SimpleQueue[Work] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()
    # whatever prints must not get between the frames
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        job = jobs.get()
        reports = _Reports(out)
        try:
            reports.send(_done(job, reports))
        except (SkepError, OSError, MemoryError) as error:
            reports.send(Broke(error.message if isinstance(error, SkepError) else f"{type(error).__name__}: {error}"))


def _done(job: Work, reports: _Reports) -> msgspec.Struct:
    match job:
        case Job():
            return plan(job, reports)
        case Batch():
            return build(job, reports)
        case Compare(folder, tips, ignore):
            return Compared(expected(Path(folder), tips, ignore))
        case Analyse():
            return analyse(job, reports)


def _listen(jobs: "queue.SimpleQueue[Work]") -> None:
    """When the worker is gone so is the reason to build: its end of the pipe closes, however it ended."""
    while (body := read_frame(sys.stdin.buffer)) is not None:
        jobs.put(to_job(body))
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
