"""A small disk that only a server under test sees, and that can be filled."""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.house.running import RunningSkep


@contextmanager
def on_small_disk(folder: Path, **settings: Any) -> Iterator[RunningSkep]:
    """Its data folder is 30 MB of memory, mounted in a mount namespace of its own."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root, or a user with namespaces of their own, can mount a small disk")
    folder.mkdir()
    mount = f'mount -t tmpfs -o size=30m none {folder} && exec "$@"'
    with RunningSkep(folder, before=("unshare", "-rm", "sh", "-c", mount, "sh"), **settings) as skep:
        skep.data = Path(f"/proc/{skep.process.pid}/root{folder}")
        yield skep


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """And it stays so: what others let go meanwhile is taken too."""
    filler, full, over = folder / "filler", threading.Event(), threading.Event()

    def fill() -> None:
        with filler.open("wb", buffering=0) as file:
            while not over.is_set():
                try:
                    file.write(os.urandom(1 << 16))
                except OSError:
                    full.set()
                    over.wait(0.02)

    filling = threading.Thread(target=fill)
    filling.start()
    try:
        full.wait()
        yield
    finally:
        over.set()
        filling.join()
        filler.unlink()
