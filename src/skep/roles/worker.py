"""The worker role: mirrors and indexes what it holds, and speaks only the link."""

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

import msgspec
import uvloop

from skep.clock import SystemClock
from skep.errors import SkepError
from skep.link.lines import LineBuffer
from skep.roles.child import Start
from skep.roles.folder import locked
from skep.roles.logs import set_up_logs
from skep.sources.git.kind import GitKind
from skep.worker.service import Worker

log = logging.getLogger("skep.worker")
_STOP_SECONDS = 8.0


def main() -> None:
    """As a child of `skep up`: settings from the first line of stdin, until stdin ends."""
    start = msgspec.json.decode(sys.stdin.buffer.readline(), type=Start)
    lines = set_up_logs(start.settings.log_level)
    try:
        # the worker of a server that was killed may still be on its way out
        folder = locked(Path(start.settings.data) / "worker")
        with folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_work(start, lines))
    except SkepError as error:
        log.error("the worker cannot run", extra={"reason": error.message, "hint": error.hint})
        sys.exit(1)


async def _work(start: Start, lines: LineBuffer) -> None:
    settings, data, clock = start.settings, Path(start.settings.data), SystemClock()
    worker = Worker(settings, data, start.link, start.token, clock, {"git": GitKind(settings, data, clock)}, lines)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Ctrl-C reaches the whole terminal: the parent decides, and closes the pipe
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_reader(sys.stdin.fileno(), _at_end, stop)
    running = asyncio.create_task(worker.run())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
    loop.remove_reader(sys.stdin.fileno())
    stopping.cancel()
    running.cancel()
    await asyncio.wait([running], timeout=_STOP_SECONDS)
    if not running.done():
        # whatever it waits for, nothing is lost: a kill would be as good
        log.error("the worker does not stop, ending it")
        os._exit(1)
    if not running.cancelled() and (error := running.exception()) is not None:
        raise error


def _at_end(stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        stop.set()


if __name__ == "__main__":
    main()
