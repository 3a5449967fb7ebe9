"""Every descriptor has one owner: none is closed twice, and none that belongs to other code."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from skep.runtime.supervisor_client import NOTES, Keeping
from tests.runtime import descriptor_worker
from tests.runtime.conftest import DEADLINE, until
from tests.support.descriptors import WITHOUT_STRACE, closed_twice, traced

needs_strace = pytest.mark.skipif(bool(WITHOUT_STRACE), reason=WITHOUT_STRACE)
LOOPS = sorted(descriptor_worker.LOOPS)
_ROOT = Path(__file__).parents[2]


def work(loop: str, folder: Path, threads: int, *before: str) -> str:
    """What a worker prints that runs, cancels, breaks and stops tasks on this kind of loop."""
    command = [*before, sys.executable, "-m", descriptor_worker.__name__, loop, str(folder), str(threads)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_strace
def test_tracer_given_a_program_that_closes_twice_reports_it(tmp_path: Path) -> None:
    code = "import os; file = os.open('/dev/null', 0); os.close(file)\ntry: os.close(file)\nexcept OSError: pass"
    subprocess.run([*traced(tmp_path / "log"), sys.executable, "-c", code], check=True, timeout=600)
    assert len(closed_twice(tmp_path / "log")) == 1


@pytest.mark.parametrize("loop", LOOPS)
def test_runtime_with_threads_that_open_files_loses_none_of_them(tmp_path: Path, loop: str) -> None:
    opened, lost = (int(part.split()[0]) for part in work(loop, tmp_path / "runtime", 4).split(","))
    assert opened and lost == 0


@needs_strace
@pytest.mark.parametrize("loop", LOOPS)
def test_runtime_running_and_cancelling_tasks_closes_no_descriptor_twice(tmp_path: Path, loop: str) -> None:
    work(loop, tmp_path / "runtime", 0, *traced(tmp_path / "log"))
    assert closed_twice(tmp_path / "log") == []


@pytest.mark.parametrize("loop", LOOPS)
def test_supervisor_closed_while_a_message_waits_releases_the_sender(tmp_path: Path, loop: str) -> None:
    """And the loop does not watch a closed number: another file may get it."""
    new_loop: Callable[[], asyncio.AbstractEventLoop] = descriptor_worker.LOOPS[loop]
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_closed_while_waiting(tmp_path))


async def _closed_while_waiting(folder: Path) -> None:
    keeping = await Keeping.start(folder, lambda *_: None, lambda: None)
    notes = folder / NOTES
    await until(lambda: notes.exists() and len(notes.read_text().splitlines()) == 2)
    pid = int(notes.read_text().splitlines()[1].split()[0])
    os.kill(pid, signal.SIGSTOP)
    sending = asyncio.create_task(_send_all(keeping))
    await until(lambda: keeping.blocked)
    closing = asyncio.create_task(keeping.close())
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(sending, closing)


async def _send_all(keeping: Keeping) -> None:
    message = b'{"end": "nothing", "reason": "cancelled", "grace": 0}'
    for _ in range(10_000):
        await keeping.tell(message)
