"""The worker role: mirrors and indexes what it holds, and speaks only the link."""

import asyncio
import gc
import logging
import os
import signal
import sys
from functools import partial
from pathlib import Path

import msgspec
import uvloop

from skep.clock import MemberClock
from skep.config import Settings
from skep.dataone.kind import DataoneKind
from skep.errors import BadInput, NewerSchema, Replaced, SkepError
from skep.link.dial import Dial
from skep.link.lines import LineBuffer
from skep.loops import kept
from skep.roles.child import Start
from skep.roles.folder import locked
from skep.roles.logs import set_up_logs
from skep.roles.stopping import CHILD_SECONDS, on_signals, run_until
from skep.sources.base import Kind
from skep.sources.git.kind import GitKind
from skep.worker.service import Worker

log = logging.getLogger("skep.worker")


def main() -> None:
    """As a child of `skep up`: settings from the first line of stdin, until stdin ends."""
    start = msgspec.json.decode(sys.stdin.buffer.readline(), type=Start)
    lines = set_up_logs(start.settings.log_level)
    try:
        # the worker of a server that was killed may still be on its way out
        folder = locked(Path(start.settings.data) / "worker")
        with folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_as_child(start, lines))
    except SkepError as error:
        log.error("the worker cannot run", extra={"reason": error.message, "hint": error.hint})
        sys.exit(1)


async def _as_child(start: Start, lines: LineBuffer) -> None:
    loop, stop = asyncio.get_running_loop(), on_signals(signal.SIGTERM)
    # Ctrl-C reaches the whole terminal: the parent decides, and closes the pipe
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    loop.add_reader(sys.stdin.fileno(), _at_end, stop)
    try:
        await run_until(stop, work(start.settings, start.link, start.token, lines), CHILD_SECONDS)
    finally:
        loop.remove_reader(sys.stdin.fileno())


async def work(settings: Settings, link: Dial, token: str, lines: LineBuffer) -> None:
    """Until a newer process of the same worker comes; one that fails begins anew, in the same process."""
    gc.freeze()  # what was imported stays: to look through it for garbage would stop the loop
    await kept(partial(_work, settings, link, token, lines), final=(BadInput, NewerSchema, Replaced))


async def _work(settings: Settings, link: Dial, token: str, lines: LineBuffer) -> None:
    data, clock = Path(settings.data), MemberClock()
    while True:  # it returns when its clock was set back
        kinds: dict[str, Kind] = {"git": GitKind(settings, data, clock), "dataone": DataoneKind(settings, data, clock)}
        await Worker(settings, data, link, token, clock, kinds, lines).run()


def _at_end(stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        stop.set()


if __name__ == "__main__":
    main()
