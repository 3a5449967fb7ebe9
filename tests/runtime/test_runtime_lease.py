"""A lease that ends while the worker stands still: the keeper, which does not, ends the commands."""

import asyncio
import time

from skep.runtime.runtime import Runtime
from tests.runtime.conftest import DEADLINE, Tag, ended, shell, until


async def test_command_whose_lease_ends_while_the_worker_stands_still_is_ended(runtime: Runtime, tag: Tag) -> None:
    running = asyncio.create_task(ended(runtime, shell("sleep 600 & wait", tag.word)))
    await until(tag.pids)
    await runtime.lease(time.monotonic() + 0.5)
    end = time.monotonic() + DEADLINE
    while tag.pids():  # no turn of the event loop: as in a process that is stopped
        assert time.monotonic() < end
        time.sleep(0.05)
    assert (await running).reason == "lease"


async def test_command_that_starts_after_its_lease_has_ended_is_ended(runtime: Runtime, tag: Tag) -> None:
    await runtime.lease(time.monotonic() - 1.0)
    assert (await ended(runtime, shell("sleep 600", tag.word))).reason == "lease"
    assert not tag.pids()


async def test_command_whose_lease_is_renewed_goes_on(runtime: Runtime, tag: Tag) -> None:
    running = asyncio.create_task(ended(runtime, shell("sleep 2", tag.word)))
    await until(tag.pids)
    await runtime.lease(time.monotonic() + 1.0)
    await runtime.lease(time.monotonic() + 600.0)
    assert (await running).ok
