"""The data folder, and the file of the database: writable, of this process alone, and locked while it runs."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skep.config import Settings
from skep.engines.db.sqlite import path_of
from skep.errors import BadInput, Conflict, NoSpace


@contextmanager
def locked(data: Path) -> Iterator[None]:
    hint = "stop it, or give this one its own folder with --data"
    with _locked(data, "lock", f"is running on {data}", hint):
        yield


@contextmanager
def database_locked(settings: Settings) -> Iterator[None]:
    """A file belongs to one serving process, whatever its data folder is: nobody tells another what was written."""
    if not settings.database.startswith("sqlite:"):
        yield
        return
    path = path_of(settings.database, Path(settings.data)).resolve()
    hint = "stop it, or share a PostgreSQL: see docs/deploying.md"
    with _locked(path.parent, f"{path.name}.lock", f"has the database {path} open", hint):
        yield


@contextmanager
def _locked(folder: Path, name: str, what: str, hint: str) -> Iterator[None]:
    """The lock is the kernel's: it falls with the process, however that ends."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise _explained(error, folder) from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(file, 40, 0).decode(errors="replace").strip() or "unknown"
            raise Conflict(f"another Skep (process {owner}) {what}", hint=hint) from None
        _sign(file, folder)
        yield
    finally:
        os.close(file)


def _sign(file: int, folder: Path) -> None:
    """Writing the process id proves that the folder can be written to, before anything else is started."""
    try:
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        os.fsync(file)
    except OSError as error:
        raise _explained(error, folder) from error


def _explained(error: OSError, folder: Path) -> BadInput | NoSpace:
    if error.errno == errno.ENOSPC:
        return NoSpace(f"the disk of {folder} is full", hint="free some space, then start again")
    return BadInput(
        f"the folder {folder} cannot be used: {error.strerror}",
        hint="choose another (--data, --database), or give this user the right to write there",
    )
