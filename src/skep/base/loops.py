"""Loops that run for as long as their process does, and what is waited for side by side."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from skep.base.errors import SkepError

log = logging.getLogger(__name__)

Loop = Callable[[], Coroutine[Any, Any, None]]
_AGAIN_SECONDS = 2.0


async def kept(loop: Loop, final: tuple[type[SkepError], ...] = ()) -> None:
    """Until it returns, or raises what is `final`.

    A full disk, a database or network that is away, or something that nobody foresaw ends what the loop was doing, not
    the process that many others run in; it begins again a little later.
    """
    while True:
        try:
            return await loop()
        except final:
            raise
        except SkepError as error:
            log.warning("something could not be done, trying again", extra={"reason": error.message})
        except asyncio.CancelledError:
            # of what it waited for, perhaps, and not of the loop
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            log.exception("something was cancelled under a loop, trying again")
        except Exception:
            log.exception("something failed that nobody foresaw, trying again")
        await asyncio.sleep(_AGAIN_SECONDS)


async def first_of(*parts: Coroutine[Any, Any, None]) -> None:
    """Until one of them ends, with its error."""
    async with racing(*parts) as running:
        done = next(one for one in running if one.done())
    done.result()


@asynccontextmanager
async def racing(*parts: Awaitable[Any]) -> AsyncIterator[list[asyncio.Future[Any]]]:
    """The block begins when one of them has ended; after it all have. No task group: one that fails while it is
    cancelled forgets that it was cancelled."""
    running: list[asyncio.Future[Any]] = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        yield running
    finally:
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)


# How a process of a role ends: when it is told to, in good order, but not for ever.

stopping_log = logging.getLogger("skep.stop")
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
        stopping_log.error("something does not stop, ending the process")
        os._exit(1)
    if not running.cancelled() and (error := running.exception()) is not None:
        raise error
