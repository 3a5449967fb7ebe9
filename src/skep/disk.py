"""Putting things on disk so that they are there after a power cut. A file's own flush does not cover its name."""

import os
from pathlib import Path
from typing import BinaryIO


def sync_file(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def sync_folders(*folders: Path) -> None:
    for folder in folders:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_private(path: Path, data: bytes) -> None:
    """Whole or not at all, and from its first byte on readable by this user alone."""
    aside = path.with_name(f"{path.name}.new")
    aside.unlink(missing_ok=True)
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        sync_file(file)
    aside.replace(path)
