"""A runtime in a folder of its own, and eyes for the processes that a run has started."""

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.runtime.kernel import look
from skep.runtime.runtime import Runtime
from skep.tasks.model import Command, Limits
from skep.tasks.model import RunEnded as Ended

DEADLINE = 120.0


class Tag:
    """A word that names the processes of one test in their command lines."""

    def __init__(self) -> None:
        self.word = f"tag{secrets.token_hex(8)}"

    def pids(self) -> list[int]:
        return [pid for pid in map(int, _numbers()) if self.word in _words(pid) and _lives(pid)]


def _numbers() -> list[str]:
    return [path.name for path in Path("/proc").iterdir() if path.name.isdigit()]


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return []


def _lives(pid: int) -> bool:
    found = look(pid)
    return found is not None and not found.zombie


async def until(true: Callable[[], object]) -> None:
    """Wait for a condition; a deadline only so that a broken test ends."""
    async with asyncio.timeout(DEADLINE):
        while not true():
            await asyncio.sleep(0.01)


class Told:
    """What `on_output` was told."""

    def __init__(self) -> None:
        self.stdout = b""
        self.stderr = b""

    def __call__(self, stream: str, data: bytes) -> None:
        setattr(self, stream, getattr(self, stream) + data)


def script(code: str, *args: str, task: str = "tsk_1", limits: Limits | None = None, grace: float = 5.0) -> Command:
    argv = (sys.executable, "-I", "-c", code, *args)
    return Command(task, 1, "ctx_1", argv, limits=limits or Limits(), grace=grace)


def shell(code: str, *args: str, task: str = "tsk_1", limits: Limits | None = None, grace: float = 5.0) -> Command:
    return Command(task, 1, "ctx_1", ("/bin/sh", "-c", code, "sh", *args), limits=limits or Limits(), grace=grace)


async def ended(runtime: Runtime, command: Command) -> Ended:
    async with asyncio.timeout(DEADLINE):
        return await runtime.run(command, lambda *_: None)


@pytest.fixture
def tag() -> Tag:
    return Tag()


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    async with Runtime(tmp_path / "runtime", Settings(), SystemClock()) as runtime:
        yield runtime
