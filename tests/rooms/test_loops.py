"""What a loop may stumble over, and go on."""

import asyncio
import logging

import pytest

from skep.base import loops
from skep.base.errors import Conflict, Unavailable
from skep.base.loops import kept


class Stumbling:
    """Raises one after the other, then waits for ever."""

    def __init__(self, *errors: BaseException) -> None:
        self._errors = list(errors)
        self.over = asyncio.Event()

    async def run(self) -> None:
        if self._errors:
            raise self._errors.pop(0)
        self.over.set()
        await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_AGAIN_SECONDS", 0.0)


async def test_nothing_but_its_own_end_ends_a_loop(caplog: pytest.LogCaptureFixture) -> None:
    # the last one was not meant for it: something that it waited for was cancelled
    stumbling = Stumbling(Unavailable("away"), OSError(28, "no space"), KeyError("x"), asyncio.CancelledError())
    task = asyncio.create_task(kept(stumbling.run))
    await stumbling.over.wait()
    levels = [record.levelno for record in caplog.records]
    assert levels == [logging.WARNING, *(3 * [logging.ERROR])]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_is_final_is_raised() -> None:
    with pytest.raises(Conflict):
        await kept(Stumbling(Unavailable("away"), Conflict("replaced")).run, final=(Conflict,))


async def test_a_loop_that_returns_is_over() -> None:
    done: list[int] = []

    async def once() -> None:
        done.append(1)

    await kept(once)
    assert done == [1]
