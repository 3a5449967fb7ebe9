"""The folders of runs: one each, removed after success, kept after failure until enough newer ones have failed."""

import os
import shutil
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path

#: folders that a task may write to; it must not replace the files of its output
_OF_TASK = ("work", "tmp", "shm")


class Folders:
    """FOLDER/runs/STARTED-TASK-ATTEMPT with `work`, `tmp`, `shm`, `stdout` and `stderr`."""

    def __init__(self, folder: Path, history: int) -> None:
        self.folder = folder
        self._runs = folder / "runs"
        self._history = history
        self._busy: set[str] = set()
        #: runs end in several threads at once
        self._pruning = threading.Lock()

    def make(self, task: str, attempt: int, now: float) -> Path:
        started = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%S.%f")
        run = self._runs / f"{started}-{task}-{attempt}"
        self._busy.add(run.name)
        self._runs.mkdir(0o700, parents=True, exist_ok=True)
        run.mkdir(0o700)
        for name in _OF_TASK:
            (run / name).mkdir(0o700)
        return run

    def give(self, run: Path, uid: int, gid: int) -> None:
        """What is the task's own to another user."""
        for name in _OF_TASK:
            os.chown(run / name, uid, gid)
            for above, folders, files in os.walk(run / name):
                for one in (*folders, *files):
                    os.chown(Path(above, one), uid, gid, follow_symlinks=False)

    def leave(self, run: Path, *, keep: bool) -> None:
        try:
            if not keep:
                remove(run)
        finally:  # not before: a prune in another thread would remove it at the same time, and both would fail
            self._busy.discard(run.name)
        if keep:
            self.prune()

    def prune(self) -> None:
        with self._pruning:
            kept = sorted(name for name in self._names() if name not in self._busy)
            for name in kept[: max(0, len(kept) - self._history)]:
                remove(self._runs / name)

    def _names(self) -> list[str]:
        return [path.name for path in self._runs.iterdir()] if self._runs.exists() else []


def remove(folder: Path) -> None:
    """Whatever a task did to the modes of what is in it. What cannot be removed is tried again at the next prune."""
    try:
        shutil.rmtree(folder)
    except OSError:
        for above, names, _ in os.walk(folder):
            for path in (Path(above, name) for name in names):
                if not path.is_symlink():
                    path.chmod(stat.S_IRWXU)
        shutil.rmtree(folder, ignore_errors=True)


def size(folder: Path) -> int:
    """Bytes on disk. A task changes it meanwhile, so what vanishes is nothing."""
    total, ahead = 0, [str(folder)]
    while ahead:
        try:
            with os.scandir(ahead.pop()) as entries:
                for entry in entries:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        ahead.append(entry.path)
        except OSError:
            continue
    return total
