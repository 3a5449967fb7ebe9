"""A coordinator's rooms and several real workers, each with a folder of its own, in one process."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.processes.worker import Worker
from skep.sources.git.source_type import GitKind
from tests.tasks.house import TOKEN, Engine

SETTINGS = Settings(allow_networks=("127.0.0.0/8",), poll_min=0.2, poll_max=0.5)
#: nobody is taken for dead because the machine is busy; a test that wants somebody dead says how soon
OPEN: dict[str, Any] = {"allow_networks": ("127.0.0.0/8",), "beat_every": 1.0}


class Machine:
    """One worker with a folder of its own; `stop` is as if it had lost its power."""

    def __init__(self, engine: Engine, data: Path, **settings: Any) -> None:
        self._engine = engine
        self.data = data
        self._settings = msgspec.structs.replace(SETTINGS, data=str(data), name=data.name, **settings)
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        clock = SystemClock()
        kinds = {"git": GitKind(self._settings, self.data, clock)}
        worker = Worker(self._settings, self.data, self._engine.link, TOKEN, clock, kinds)
        self._running = asyncio.create_task(worker.run())

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):  # what it ended with before that is not hidden
                await self._running
            self._running = None

    @property
    def mirrors(self) -> set[str]:
        return {path.name.removesuffix(".git") for path in (self.data / "mirrors").glob("*/*/*.git")}


@asynccontextmanager
async def machines(engine: Engine, folder: Path, count: int) -> AsyncIterator[list[Machine]]:
    made = [
        Machine(engine, folder / f"machine-{n}", roles=("worker", "manager") if n == 0 else ("worker",))
        for n in range(count)
    ]
    async with AsyncExitStack() as stack:
        for one in made:
            stack.push_async_callback(one.stop)
        yield made


async def until(what: Callable[[], Any], seconds: float = 180.0) -> Any:
    async with asyncio.timeout(seconds):
        while not (found := await what()):
            await asyncio.sleep(0.05)
    return found


async def holders(engine: Engine) -> Counter[str | None]:
    return Counter(row["member"] for row in await engine.db.read("SELECT member FROM holding"))


async def told(engine: Engine, commits: list[str]) -> bool:
    rows = await engine.db.read("SELECT version FROM entry WHERE name = 'refs/heads/main'")
    return sorted(row["version"] for row in rows) == sorted(commits)
