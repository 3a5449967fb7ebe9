"""Builds index deltas, one job after the other, in a process of its own: `python -m skep.worker.build_index`."""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from skep.engines.index.trigram.build import TrigramBuilder
from skep.errors import SkepError
from skep.model.search import Delta
from skep.sources.git.plan import documents
from skep.sources.git.process import environment
from skep.worker.jobs import Broke, Counted, Finished, Job, frame, read_frame, to_job

_REPORT_SECONDS = 0.25
#: whoever searches or fetches goes before
_NICENESS = 5


def build(job: Job, report: Callable[[int, int], None]) -> Delta | None:
    """From `base` to what HEAD of the mirror stands at; from nothing when the mirror does not know `base` any more."""
    folder = Path(job.folder)
    commit = _commit(folder, "HEAD")
    if commit is None:
        return None
    base = _commit(folder, job.base) if job.base else None
    found, gone, total = documents(folder, base, commit, job.max_file)
    report(0, total)
    shards = TrigramBuilder().build(job.number, found, Path(job.out), lambda done: report(done, total))
    return Delta(job.source, job.number, _branch(folder), base, commit, shards, tuple(gone))


def _commit(folder: Path, name: str) -> str | None:
    return _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}") or None


def _branch(folder: Path) -> str:
    return _git(folder, "symbolic-ref", "--quiet", "--short", "HEAD")


def _git(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *args], env=environment(), capture_output=True, check=False)
    return done.stdout.decode("utf-8", "backslashreplace").strip() if done.returncode == 0 else ""


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
    os.nice(_NICENESS)
    jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()
    # whatever prints must not get between the frames
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        job = jobs.get()
        reports = _Reports(out)
        try:
            reports.send(Finished(build(job, reports)))
        except (SkepError, OSError, MemoryError) as error:
            reports.send(Broke(error.message if isinstance(error, SkepError) else f"{type(error).__name__}: {error}"))


def _listen(jobs: "queue.SimpleQueue[Job]") -> None:
    """When the worker is gone so is the reason to build: its end of the pipe closes, however it ended."""
    while (body := read_frame(sys.stdin.buffer)) is not None:
        jobs.put(to_job(body))
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
