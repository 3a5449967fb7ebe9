"""The data folder: writable, of this program alone, and locked while it runs."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skep.errors import BadInput, Conflict, NoSpace


@contextmanager
def locked(data: Path) -> Iterator[Path]:
    """The lock is the kernel's: it falls with the process, however that ends."""
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(data / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise _explained(error, data) from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(file, 40, 0).decode(errors="replace").strip() or "unknown"
            raise Conflict(
                f"another Skep (process {owner}) is running on {data}",
                hint="stop it, or give this one its own folder with --data",
            ) from None
        _sign(file, data)
        yield data
    finally:
        os.close(file)


def _sign(file: int, data: Path) -> None:
    """Writing the process id proves that the folder can be written to, before anything else is started."""
    try:
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        os.fsync(file)
    except OSError as error:
        raise _explained(error, data) from error


def _explained(error: OSError, data: Path) -> BadInput | NoSpace:
    if error.errno == errno.ENOSPC:
        return NoSpace(f"the disk of {data} is full", hint="free some space, then start again")
    return BadInput(
        f"the data folder {data} cannot be used: {error.strerror}",
        hint="choose another with --data, or give this user the right to write there",
    )
