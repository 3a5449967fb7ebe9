import asyncio
import os
import signal
from functools import partial
from multiprocessing import active_children

import pytest

from skep.base.child_process import Ended, run_apart
from skep.base.errors import Damaged


def raising(text: str) -> None:
    raise Damaged(text, hint="none")


async def test_what_it_returns_and_what_it_raises() -> None:
    assert await run_apart(partial(max, 3, 5)) == 5
    assert await run_apart(os.getpid) != os.getpid()
    with pytest.raises(Damaged, match="broken"):
        await run_apart(partial(raising, "broken"))
    assert not active_children()


async def test_it_ends_with_whoever_waits_for_it() -> None:
    waiting = asyncio.create_task(run_apart(signal.pause))
    while not active_children():
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not active_children()


async def test_who_is_ended_is_missed() -> None:
    waiting = asyncio.create_task(run_apart(signal.pause))
    while not (children := active_children()):
        await asyncio.sleep(0)
    for child in children:
        child.kill()
    with pytest.raises(Ended):
        await waiting
