"""Loops that run for as long as their process does."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from skep.errors import SkepError

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
