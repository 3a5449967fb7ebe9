"""Commands in the runtime beside bare child processes: both start `true`, read two pipes, and wait for the end."""

import asyncio
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from pathlib import Path

from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.runtime.runtime import Runtime
from skep.tasks.model import Command

_numbers = count()


async def bare() -> None:
    child = await asyncio.create_subprocess_exec(
        "true", stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True
    )
    await child.communicate()


async def rate(work: Callable[[], Awaitable[object]], at_once: int, total: int) -> float:
    turns = iter(range(total))

    async def hand() -> None:
        for _ in turns:
            await work()

    began = time.perf_counter()
    await asyncio.gather(*(hand() for _ in range(at_once)))
    return total / (time.perf_counter() - began)


async def rates(folder: Path, rounds: int, total: int) -> dict[int, list[tuple[float, float, float]]]:
    """At once -> commands a second: isolated as by default, without isolation, bare; measured in turns."""
    open_to_all = Settings(task_isolation="none")
    async with (
        Runtime(folder / "isolated", Settings(), SystemClock()) as isolated,
        Runtime(folder / "open", open_to_all, SystemClock()) as without,
    ):
        sides = partial(_run, isolated), partial(_run, without), bare
        for side in sides:
            await side()
        found: dict[int, list[tuple[float, float, float]]] = {1: [], 8: []}
        for _ in range(rounds):
            for at_once, values in found.items():
                first, second, third = [await rate(side, at_once, total) for side in sides]
                values.append((first, second, third))
        return found


async def _run(runtime: Runtime) -> None:
    ended = await runtime.run(Command(f"t{next(_numbers)}", 1, "c", ("true",)), lambda stream, body: None)
    assert ended.ok, ended
