"""A worker of a few lines: runs, cancels and breaks tasks in many ways, while threads open files."""

import asyncio
import sys
from pathlib import Path

import uvloop

from skep.base.clock import SystemClock
from skep.base.errors import SkepError
from skep.config.settings import Settings
from skep.runtime.runtime import Runtime
from skep.runtime.task_api import TaskCall
from skep.tasks.model import Command, Limits
from tests.support.descriptors import ForeignFiles

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
ROUNDS = 5
AT_ONCE = 20


async def answer(call: TaskCall) -> None:
    """Nothing that a task asks for is there."""


def command(name: str, code: str, limits: Limits | None = None) -> Command:
    return Command(name, 1, "ctx_1", ("/bin/sh", "-c", code), limits=limits or Limits(), grace=0.0)


async def finished(runtime: Runtime, name: str) -> None:
    assert (await runtime.run(command(name, "echo out; echo err >&2"), lambda *_: None)).ok


async def cancelled(runtime: Runtime, name: str) -> None:
    """After its first output: both pipes are being read."""
    began = asyncio.Event()
    run = asyncio.create_task(runtime.run(command(name, "echo out; sleep 1000"), lambda *_: began.set()))
    await began.wait()
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)


async def cancelled_soon(runtime: Runtime, name: str) -> None:
    """Each after some more steps of the loop than the one before: one of them hits every moment of a start."""
    run = asyncio.create_task(runtime.run(command(name, "sleep 1000"), lambda *_: None))
    for _ in range(int(name.rpartition("-")[2])):
        await asyncio.sleep(0)
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)


async def never_started(runtime: Runtime, name: str) -> None:
    missing = Command(name, 1, "ctx_1", ("no-such-program",))
    assert (await runtime.run(missing, lambda *_: None)).reason == "not_found"
    not_a_program = Command(f"{name}-x", 1, "ctx_1", ("/etc/passwd",))
    assert not (await runtime.run(not_a_program, lambda *_: None)).ok


async def listener_broke(runtime: Runtime, name: str) -> None:
    def broken(*_: object) -> None:
        raise SkepError("the listener is broken")

    try:
        await runtime.run(command(name, "echo out; sleep 1000"), broken)
    except SkepError:
        return
    raise AssertionError("the error of the listener was lost")


async def flooded(runtime: Runtime, name: str) -> None:
    ended = await runtime.run(command(name, "yes", Limits(output=1000)), lambda *_: None)
    assert ended.reason == "output"


async def stopped(runtime: Runtime, name: str) -> None:
    """The worker stops while it runs."""
    await runtime.run(command(name, "echo out; sleep 1000"), lambda *_: None)


WAYS = (finished, cancelled, cancelled_soon, never_started, listener_broke, flooded)


async def main(folder: Path, threads: int) -> None:
    # a tracer that follows every process waits without end for the first one of a process namespace
    settings = Settings() if threads else Settings(task_isolation="none")
    with ForeignFiles(threads) as files:
        for number in range(ROUNDS):
            async with Runtime(folder / str(number), settings, SystemClock(), answer) as runtime:
                runs = [way(runtime, f"{way.__name__}-{n}") for way in WAYS for n in range(AT_ONCE)]
                last = [asyncio.create_task(stopped(runtime, f"stopped-{n}")) for n in range(AT_ONCE)]
                await asyncio.gather(*runs)
            await asyncio.gather(*last)
    print(f"{files.opened} opened, {files.lost} lost")  # noqa: T201


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=LOOPS[sys.argv[1]]) as runner:
        runner.run(main(Path(sys.argv[2]), int(sys.argv[3])))
