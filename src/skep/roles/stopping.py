"""How a process of a role ends: when it is told to, in good order, but not for ever."""

import asyncio
import logging
import os
import signal
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger("skep.stop")
#: less than what whoever stops us waits before it kills: `skep up` its child 10 s, deploy/ everything else 30 s
CHILD_SECONDS, STOP_SECONDS = 8.0, 20.0


def on_signals(*numbers: int) -> asyncio.Event:
    stop = asyncio.Event()
    for number in numbers or (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def run_until(stop: asyncio.Event, work: Coroutine[Any, Any, None], seconds: float = STOP_SECONDS) -> None:
    """Until `work` ends by itself, with its error, or is cancelled because of `stop`; then it has `seconds` to end."""
    running, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    running.cancel()
    await asyncio.wait([running], timeout=seconds)
    if not running.done():
        # whatever it waits for, nothing is lost: a kill would be as good
        log.error("something does not stop, ending the process")
        os._exit(1)
    if not running.cancelled() and (error := running.exception()) is not None:
        raise error
