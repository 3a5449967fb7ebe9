"""Processes that build indexes: started when needed, used again while there is work, ended when idle.

Not a pool of the standard library: a build that dies must fail alone, and a stop must end its git children too.
"""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from skep.base.errors import SkepError, Unavailable
from skep.indexing.build import LENGTH, Answer, Broke, Built, Counted, Work, frame, size_of, to_answer

# Work that keeps a core busy, in a process of its own that ends with it, or with whoever waits for it.

T = TypeVar("T")


class Ended(Exception):
    """Somebody ended the process."""


async def run_apart(work: Callable[[], T]) -> T:
    """`work`, what it returns and what it raises can be pickled."""
    context = get_context("spawn")
    hearing, telling = context.Pipe(duplex=False)
    child = context.Process(target=_do, args=(telling, work), daemon=True)
    child.start()
    telling.close()  # or it would not end with the child
    try:
        result, error = await asyncio.to_thread(hearing.recv)
    except EOFError:
        raise Ended("the process that did it was ended") from None
    finally:
        child.kill()
        await asyncio.to_thread(child.join)
        hearing.close()
    if error is not None:
        raise error
    done: T = result
    return done


def _do(telling: Connection, work: Callable[[], Any]) -> None:
    said: tuple[Any, Exception | None]
    try:
        said = work(), None
    except Exception as error:  # told to whoever waits
        said = None, error
    telling.send(said)


_IDLE_SECONDS = 10.0
#: whoever searches or fetches goes before
NICENESS = 5


class BuildFailed(SkepError):
    code = "build_failed"


class BuildersEnded(BuildFailed):
    """The process went away instead of answering."""


class Builders:
    def __init__(self, idle_seconds: float = _IDLE_SECONDS, niceness: int = NICENESS) -> None:
        self._idle_seconds = idle_seconds
        self._niceness = str(niceness)
        self._idle: list[tuple[Process, asyncio.TimerHandle]] = []
        self._ending: set[asyncio.Task[None]] = set()

    async def build(self, job: Work, report: Callable[[int, int], None]) -> Built:
        """As many at once as the caller asks for, each in a process of its own."""
        while True:
            used = bool(self._idle)
            child = await self._child()
            try:
                answer = await _ask(child, job, report)
                break
            except BuildersEnded:
                await _end(child, kill=True)
                if not used:  # one that was idle may have died before, and nobody noticed
                    raise
            except BaseException:
                await _end(child, kill=True)
                raise
        if isinstance(answer, Broke):
            await _end(child, kill=True)
            raise BuildFailed(answer.reason)
        self._rest(child)
        return answer

    async def close(self) -> None:
        while self._idle:
            child, timer = self._idle.pop()
            timer.cancel()
            self._end_soon(child)
        await asyncio.gather(*self._ending)

    async def _child(self) -> Process:
        while self._idle:
            child, timer = self._idle.pop()
            timer.cancel()
            if child.returncode is None:
                return child
        command = (sys.executable, "-m", "skep.indexing.build_index", self._niceness)
        return await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, start_new_session=True)

    def _rest(self, child: Process) -> None:
        timer = asyncio.get_running_loop().call_later(self._idle_seconds, self._retire, child)
        self._idle.append((child, timer))

    def _retire(self, child: Process) -> None:
        self._idle = [(other, timer) for other, timer in self._idle if other is not child]
        self._end_soon(child)

    def _end_soon(self, child: Process) -> None:
        task = asyncio.create_task(_end(child, kill=False))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


async def _ask(child: Process, job: Work, report: Callable[[int, int], None]) -> Built | Broke:
    assert child.stdin is not None
    try:
        child.stdin.write(frame(job))
        await child.stdin.drain()
        while isinstance(answer := await _answer(child), Counted):
            report(answer.done, answer.total)
        return answer
    except (asyncio.IncompleteReadError, ConnectionError):
        code = await child.wait()
        raise BuildersEnded(f"the process that built the index ended with {code}") from None


async def _answer(child: Process) -> Answer:
    if child.stdout is None:
        raise Unavailable("the process has no output")
    size = size_of(await child.stdout.readexactly(LENGTH))
    answer: Answer = to_answer(await child.stdout.readexactly(size))
    return answer


async def _end(child: Process, *, kill: bool) -> None:
    assert child.stdin is not None
    child.stdin.close()
    if kill:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    await child.wait()
