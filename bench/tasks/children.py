"""Commands in the runtime beside bare child processes: both start `true`, read two pipes, and wait for the end."""

import asyncio
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

from skep.clock import SystemClock
from skep.config import Settings
from skep.model.run import Command
from skep.runtime.service import Runtime

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


async def rates(folder: Path, rounds: int, total: int) -> dict[int, list[tuple[float, float]]]:
    """At once -> pairs of (ours, bare), measured in turns."""
    async with Runtime(folder, Settings(), SystemClock()) as runtime:

        async def ours() -> None:
            ended = await runtime.run(Command(f"t{next(_numbers)}", 1, "c", ("true",)), lambda stream, body: None)
            assert ended.ok, ended

        await ours()
        found: dict[int, list[tuple[float, float]]] = {1: [], 8: []}
        for _ in range(rounds):
            for at_once, pairs in found.items():
                pairs.append((await rate(ours, at_once, total), await rate(bare, at_once, total)))
        return found
