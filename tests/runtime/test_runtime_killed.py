"""Nothing that a run has started outlives it: not daemons, not zombies, not when worker, keeper or both are killed."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.runtime.kernel import everything
from skep.runtime.runtime import Runtime
from tests.runtime import lone_worker
from tests.runtime.conftest import DEADLINE, Tag, Told, ended, script, shell, until

#: forks twice into a session of its own, forgets its environment, and lives on
DAEMON = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-I", "-c", "import time; time.sleep(1000)", sys.argv[1]], {})
    os._exit(0)
os.wait()
"""
#: a daemon as above, then work without end
WRITER = (
    DAEMON
    + """
while True:
    with open("effect", "a") as file:
        file.write("line\\n")
"""
)


def keeper_of(runtime: Runtime) -> int:
    return int((runtime.folder / "keeper").read_text().splitlines()[1].split()[0])


@contextmanager
def worker(folder: Path, count: int, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, lone_worker.__file__, str(folder), str(count), *argv]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout and child.stdout.readline() == b"running\n"
        try:
            yield child
        finally:
            child.kill()


@pytest.mark.parametrize("code", [0, 1])
async def test_a_daemon_ends_with_its_run(runtime: Runtime, tag: Tag, code: int) -> None:
    end = await ended(runtime, script(f"{DAEMON}\nsys.exit({code})", tag.word))
    assert (end.code, end.reason) == (code, "")
    assert tag.pids() == []


async def test_daemons_of_others_live_on(runtime: Runtime, tag: Tag) -> None:
    told, code = Told(), f"{DAEMON}\nprint('there', flush=True)\nimport time; time.sleep(1000)"
    other = asyncio.create_task(runtime.run(script(code, tag.word, task="b"), told))
    await until(lambda: told.stdout)
    await until(lambda: len(tag.pids()) == 2)  # who is being executed has no command line for a moment
    kept = tag.pids()
    for _ in range(5):
        assert (await ended(runtime, script(DAEMON, "another", task="a"))).ok
    assert tag.pids() == kept
    await runtime.cancel("b", 1)
    assert (await other).reason == "cancelled" and tag.pids() == []


async def test_output_of_a_daemon_does_not_hold_the_run_open(runtime: Runtime, tag: Tag) -> None:
    told = Told()
    end = await runtime.run(shell("(setsid sh -c 'sleep 1000' $0 &); echo done", tag.word), told)
    assert end.ok and told.stdout == b"done\n" and tag.pids() == []


async def test_zombies_are_reaped(runtime: Runtime) -> None:
    code = "import os, time\nfor _ in range(50):\n  if os.fork() == 0: os._exit(0)\ntime.sleep(0.2)"
    assert (await ended(runtime, script(code))).ok
    keeper = keeper_of(runtime)
    await until(lambda: not [1 for process in everything().values() if process.parent == keeper])


async def test_the_worker_is_killed(tmp_path: Path, tag: Tag) -> None:
    with worker(tmp_path / "runtime", 5, sys.executable, "-I", "-c", WRITER, tag.word) as child:
        await until(lambda: len(tag.pids()) == 11)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    await until(lambda: tag.pids() == [])
    async with Runtime(tmp_path / "runtime", Settings(), SystemClock()) as runtime:
        assert (await ended(runtime, shell("true"))).ok


async def test_start_waits_for_the_keeper_of_a_killed_worker(tmp_path: Path, tag: Tag) -> None:
    with worker(tmp_path / "runtime", 5, sys.executable, "-I", "-c", WRITER, tag.word) as child:
        await until(lambda: len(tag.pids()) == 11)
        os.kill(child.pid, signal.SIGKILL)
        async with Runtime(tmp_path / "runtime", Settings(), SystemClock()):
            assert tag.pids() == []


async def test_a_worker_killed_again_and_again_while_it_starts_things(tmp_path: Path, tag: Tag) -> None:
    for n in range(4):
        with worker(tmp_path / "runtime", 8, sys.executable, "-I", "-c", WRITER, tag.word) as child:
            await until(lambda n=n: len(tag.pids()) > 3 * n)  # type: ignore[misc]
            os.kill(child.pid, signal.SIGKILL)
    async with Runtime(tmp_path / "runtime", Settings(), SystemClock()):
        assert tag.pids() == []


async def test_the_keeper_is_killed(runtime: Runtime, tag: Tag) -> None:
    runs = [asyncio.create_task(ended(runtime, script(WRITER, tag.word, task=f"t{n}"))) for n in range(3)]
    await until(lambda: len(tag.pids()) == 6)
    first = keeper_of(runtime)
    os.kill(first, signal.SIGKILL)
    async with asyncio.timeout(DEADLINE):
        ends = await asyncio.gather(*runs)
    assert {end.reason for end in ends} == {"lost"} and "kept" in ends[0].message
    assert tag.pids() == []
    assert (await ended(runtime, shell("true"))).ok
    assert keeper_of(runtime) != first


async def test_the_keeper_is_killed_between_runs(runtime: Runtime) -> None:
    assert (await ended(runtime, shell("true"))).ok
    os.kill(keeper_of(runtime), signal.SIGKILL)
    # one that was sent to the dead one is lost; the next one finds another
    ends = [await ended(runtime, shell("true", task=f"t{n}")) for n in range(3)]
    assert ends[-1].ok and {end.reason for end in ends} <= {"", "lost"}


async def test_worker_and_keeper_are_killed(tmp_path: Path, tag: Tag) -> None:
    folder = tmp_path / "runtime"
    with worker(folder, 5, sys.executable, "-I", "-c", WRITER, tag.word) as child:
        # who writes has its daemon, and nobody is between two forks any more
        await until(lambda: len(list(folder.glob("runs/*/work/effect"))) == 5 and len(tag.pids()) == 11)
        keeper = int((folder / "keeper").read_text().splitlines()[1].split()[0])
        os.kill(keeper, signal.SIGSTOP)
        os.kill(child.pid, signal.SIGKILL)
        os.kill(keeper, signal.SIGKILL)
    async with Runtime(folder, Settings(), SystemClock()) as runtime:
        assert tag.pids() == []
        assert (await ended(runtime, shell("true"))).ok


async def test_a_keeper_that_was_stopped_is_not_waited_for(
    tmp_path: Path, tag: Tag, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skep.runtime.supervisor_client._PATIENCE_SECONDS", 0.1)
    with worker(tmp_path / "runtime", 3, sys.executable, "-I", "-c", WRITER, tag.word) as child:
        await until(lambda: len(tag.pids()) == 7)
        os.kill(int((tmp_path / "runtime" / "keeper").read_text().splitlines()[1].split()[0]), signal.SIGSTOP)
        os.kill(child.pid, signal.SIGKILL)
    async with Runtime(tmp_path / "runtime", Settings(), SystemClock()):
        assert tag.pids() == []


async def test_left_overs_without_their_variables_are_found_by_the_notes(tmp_path: Path, tag: Tag) -> None:
    folder = tmp_path / "runtime"
    with worker(folder, 3, "/usr/bin/env", "-i", "/bin/sh", "-c", "sleep 1000; true", tag.word) as child:
        await until(lambda: len(tag.pids()) == 4)  # the worker's own command line names it too
        keeper = int((folder / "keeper").read_text().splitlines()[1].split()[0])
        os.kill(keeper, signal.SIGSTOP)
        os.kill(child.pid, signal.SIGKILL)
        os.kill(keeper, signal.SIGKILL)
    async with Runtime(folder, Settings(), SystemClock()):
        assert tag.pids() == []


async def test_another_folder_is_none_of_our_business(tmp_path: Path, runtime: Runtime, tag: Tag) -> None:
    running = asyncio.create_task(ended(runtime, shell("sleep 1000", tag.word)))
    await until(tag.pids)
    async with Runtime(tmp_path / "other", Settings(), SystemClock()):
        assert tag.pids()
    await runtime.cancel("tsk_1", 1)
    await running
