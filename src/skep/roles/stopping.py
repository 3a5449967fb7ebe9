"""How a process of a role ends: when it is told to, in good order, but not for ever."""

import asyncio
import logging
import os
import signal
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger("skep.stop")
_STOP_SECONDS = 8.0


def on_signals(*numbers: int) -> asyncio.Event:
    stop = asyncio.Event()
    for number in numbers or (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def run_until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Until `work` ends by itself, with its error, or is cancelled because of `stop`."""
    running, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    running.cancel()
    await asyncio.wait([running], timeout=_STOP_SECONDS)
    if not running.done():
        # whatever it waits for, nothing is lost: a kill would be as good
        log.error("something does not stop, ending the process")
        os._exit(1)
    if not running.cancelled() and (error := running.exception()) is not None:
        raise error
