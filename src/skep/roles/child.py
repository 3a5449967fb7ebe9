"""The worker as a child process of `skep up`: started with its settings on stdin, restarted when it dies.

The pipe stays open for as long as the parent lives; when it ends, the child stops by itself. No token or setting ever
stands in a command line or an environment.
"""

import asyncio
import contextlib
import logging
import sys

import msgspec

from skep.config import Settings
from skep.link.dial import Dial

log = logging.getLogger("skep.up")


class Start(msgspec.Struct, frozen=True):
    """What the child reads from the first line of its stdin."""

    settings: Settings
    link: Dial
    token: str


async def keep_worker(start: Start) -> None:
    """Run the child for ever; a crash is logged and followed by a new start, with a growing pause."""
    pause = 0.5
    while True:
        began = asyncio.get_running_loop().time()
        code = await _run(start)
        if asyncio.get_running_loop().time() - began > 60.0:
            pause = 0.5
        log.warning("worker ended, starting it again", extra={"exit_code": code, "pause": pause})
        await asyncio.sleep(pause)
        pause = min(pause * 2, 30.0)


async def _run(start: Start) -> int:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "skep.roles.worker",
        stdin=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdin is not None
    try:
        child.stdin.write(msgspec.json.encode(start) + b"\n")
        with contextlib.suppress(ConnectionError):
            await child.stdin.drain()
        return await child.wait()
    finally:
        # closing the pipe asks it to stop; a child that does not is ended
        child.stdin.close()
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
            try:
                await asyncio.wait_for(child.wait(), 10.0)
            except TimeoutError:
                child.kill()
                await child.wait()
