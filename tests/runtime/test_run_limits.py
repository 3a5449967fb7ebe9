"""Runs that take more than they may: each is ended, and says why."""

import asyncio
import signal

import msgspec
import pytest

from skep.runtime.runtime import Runtime
from skep.tasks.model import Command, Limits
from skep.tasks.model import RunEnded as Ended
from tests.runtime.conftest import Tag, Told, ended, script, shell

MB = 1_000_000


async def test_time(runtime: Runtime, tag: Tag) -> None:
    end = await ended(runtime, shell("sleep 1000", tag.word, limits=Limits(seconds=0.2), grace=60))
    assert (end.reason, end.signal, end.message) == ("time", signal.SIGTERM, "took longer than 0.2 s")
    assert tag.pids() == []


async def late(runtime: Runtime, command: Command) -> tuple[Ended, bytes]:
    """It took longer than it may, and was ready by then: how it ended, and what it said."""
    told, seconds = Told(), 0.2
    while b"ready" not in told.stdout:
        told, seconds = Told(), 2 * seconds
        end = await runtime.run(msgspec.structs.replace(command, limits=Limits(seconds=seconds)), told)
    return end, told.stdout


async def test_a_task_may_use_its_grace(runtime: Runtime) -> None:
    code = "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.01; done"
    end, said = await late(runtime, shell(code, grace=60))
    assert (end.reason, end.code, said) == ("time", 7, b"ready\nbye\n")


async def test_who_ignores_the_friendly_signal_gets_the_other(runtime: Runtime, tag: Tag) -> None:
    code = "trap '' TERM HUP INT; echo ready; while :; do sleep 0.01; done"
    end, _ = await late(runtime, shell(code, tag.word, grace=0.2))
    assert (end.reason, end.signal) == ("time", signal.SIGKILL)
    assert tag.pids() == []


async def test_cpu(runtime: Runtime) -> None:
    end = await ended(runtime, script("while True: pass", limits=Limits(cpu=0.3)))
    assert (end.reason, end.message) == ("cpu", "used more than 0.3 s of processor time")


async def test_cpu_counts_all_that_it_started(runtime: Runtime, tag: Tag) -> None:
    # the kernel's own limit may end one of them before the watch looks: who waited for it would end well
    code = "import os, time\nfor _ in range(3):\n  if os.fork() == 0:\n    while True: pass\ntime.sleep(1000)"
    end = await ended(runtime, script(code, tag.word, limits=Limits(cpu=0.6)))
    assert end.reason == "cpu" and tag.pids() == []


async def test_memory(runtime: Runtime) -> None:
    code = "kept = []\nwhile True: kept.append(bytearray(1_000_000))"
    end = await ended(runtime, script(code, limits=Limits(memory=100 * MB)))
    # the watch says so; who grows faster than it looks is stopped by the wall at twice the limit
    assert end.reason == "memory" or end.code == 1
    assert not end.ok and end.max_rss < 210 * MB


async def test_memory_of_all_that_it_started_together(runtime: Runtime, tag: Tag) -> None:
    code = (
        "import os, time\nfor _ in range(4):\n  if os.fork() == 0:\n    kept = bytearray(50_000_000)\n"
        "    time.sleep(1000)\ntime.sleep(1000)"
    )
    end = await ended(runtime, script(code, tag.word, limits=Limits(memory=120 * MB)))
    assert (end.reason, end.signal) == ("memory", signal.SIGKILL) and tag.pids() == []


async def test_many_addresses_are_not_much_memory(runtime: Runtime) -> None:
    code = "import mmap; m = mmap.mmap(-1, 10_000_000_000, prot=mmap.PROT_READ); print(m[5])"
    assert (await ended(runtime, script(code, limits=Limits(memory=100 * MB)))).ok


async def test_disk_in_one_file(runtime: Runtime) -> None:
    end = await ended(runtime, shell("exec head -c 100000000 /dev/zero > big", limits=Limits(disk=MB)))
    assert not end.ok and end.reason == "disk"


async def test_disk_beyond_its_limit_in_a_run_that_ends_before_the_watch_fails_the_run(runtime: Runtime) -> None:
    code = "head -c 800000 /dev/zero > a; head -c 800000 /dev/zero > b"
    end = await ended(runtime, shell(code, limits=Limits(disk=MB)))
    assert (end.ok, end.reason) == (False, "disk")


async def test_disk_in_many_files(runtime: Runtime, tag: Tag) -> None:
    code = "n=0; while :; do n=$((n+1)); head -c 500000 /dev/zero > $TMPDIR/$n; done"
    end = await ended(runtime, shell(code, tag.word, limits=Limits(disk=3 * MB)))
    assert (end.reason, end.message) == ("disk", "put more than 3,000,000 bytes into its folder")
    assert tag.pids() == []


async def test_a_fork_bomb(runtime: Runtime, tag: Tag) -> None:
    # bounded, so that a broken limit does not take the machine with it
    code = "import os, time\nfor _ in range(11): os.fork()\ntime.sleep(1000)"
    end = await ended(runtime, script(code, tag.word, limits=Limits(processes=40)))
    assert (end.reason, end.message) == ("processes", "had more than 40 processes at once")
    assert tag.pids() == []


async def test_a_fork_bomb_of_daemons(runtime: Runtime, tag: Tag) -> None:
    code = (
        "import os, time\nfor _ in range(200):\n  if os.fork() == 0:\n    os.setsid(); time.sleep(1000)\n"
        "time.sleep(1000)"
    )
    end = await ended(runtime, script(code, tag.word, limits=Limits(processes=40)))
    assert end.reason == "processes" and tag.pids() == []


async def test_output_beyond_the_limit_is_dropped(runtime: Runtime) -> None:
    told = Told()
    code = "import sys; sys.stdout.write('x' * 5000); sys.stderr.write('fine')"
    end = await runtime.run(script(code, limits=Limits(output=1000)), told)
    assert end.ok and end.stdout == 5000
    assert told.stdout == b"x" * 1000 + b"\n[skep: stdout beyond 1,000 bytes is dropped]\n"
    assert told.stderr == b"fine"


async def test_exactly_the_limit_is_kept(runtime: Runtime) -> None:
    told = Told()
    assert (await runtime.run(script("print('x' * 999)", limits=Limits(output=1000)), told)).ok
    assert told.stdout == b"x" * 999 + b"\n"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_a_flood_ends_the_run(runtime: Runtime, tag: Tag, stream: str) -> None:
    told = Told()
    code = f"import os\nwhile True: os.write({1 if stream == 'stdout' else 2}, b'x' * 65536)"
    end = await runtime.run(script(code, tag.word, limits=Limits(output=100_000)), told)
    assert (end.reason, end.signal) == ("output", signal.SIGKILL) and tag.pids() == []
    assert len(getattr(told, stream)) < 101_000
    [kept] = (runtime.folder / "runs").glob(f"*/{stream}")
    assert kept.stat().st_size < 101_000


async def test_limits_hold_before_the_first_line(runtime: Runtime) -> None:
    told = Told()
    code = (
        "import resource as r\n"
        "print([r.getrlimit(x) for x in (r.RLIMIT_CORE, r.RLIMIT_CPU, r.RLIMIT_DATA, r.RLIMIT_FSIZE)])"
    )
    await runtime.run(script(code, limits=Limits(cpu=5, memory=500 * MB, disk=7 * MB)), told)
    assert told.stdout == b"[(0, 0), (6, 7), (1000000000, 1000000000), (7000000, 7000000)]\n"


async def test_a_broken_pipe_ends_a_pipeline(runtime: Runtime) -> None:
    """The keeper is written in Python, which ignores SIGPIPE; commands must not."""
    told = Told()
    end = await runtime.run(shell("yes | head -n 1; kill -0 $$"), told)
    assert end.ok and (told.stdout, told.stderr) == (b"y\n", b"")


async def test_a_shell_bomb_leaves_others_alone(runtime: Runtime, tag: Tag) -> None:
    """It doubles again and again until it is ended; a run beside it does not notice."""
    # bounded, so that a broken limit does not take the machine with it
    code = "f() { [ $1 = 0 ] && exec sleep 1000; f $(($1-1)) | f $(($1-1)) & sleep 0.02; f $(($1-1)); }; f 7"
    beside = asyncio.create_task(ended(runtime, shell("sleep 2", task="beside")))
    end = await ended(runtime, shell(code, tag.word, limits=Limits(processes=100)))
    assert end.reason == "processes" and tag.pids() == []
    assert (await beside).ok
