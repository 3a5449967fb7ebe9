"""A worker of a few lines, to be killed: runs so many commands, says what its keeper is, and waits."""

import asyncio
import sys
from pathlib import Path

import uvloop

from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.runtime.runtime import Runtime
from skep.tasks.model import Command


async def main(folder: str, count: str, *argv: str) -> None:
    async with Runtime(Path(folder), Settings(), SystemClock()) as runtime:
        commands = [Command(f"t{n}", 1, "ctx_1", argv) for n in range(int(count))]
        runs = [asyncio.create_task(runtime.run(command, lambda *_: None)) for command in commands]
        sys.stdout.write("running\n")
        sys.stdout.flush()
        await asyncio.gather(*runs)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(*sys.argv[1:]))
