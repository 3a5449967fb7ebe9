"""A worker of a few lines, to be killed: runs so many commands, says what its keeper is, and waits."""

import asyncio
import sys
from pathlib import Path

import uvloop

from skep.clock import SystemClock
from skep.config import Settings
from skep.model.run import Command
from skep.runtime.service import Runtime


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
