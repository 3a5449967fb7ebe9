"""A door over a coordinator with its loops and one worker, whose tasks end when the test says so."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn

from skep.base.caller import SYSTEM
from skep.config.settings import Settings
from skep.fleet.api import Offer
from skep.interfaces.http.app import create_app
from skep.tasks.model import Chunk, Context, Run, Task, TaskSpec
from skep.tasks.worker import TaskFailed
from tests.tasks.house import Engine, coordinator, hand

from .conftest import Door

FACTS: dict[str, str | float] = {"os": "linux", "cpu": 2.0, "memory": 8e9, "memory_used": 2e9}
OFFER = Offer(("held", "bad"), {"own": 4}, labels=("<i>fast",), tools=("gcc", "git"), facts=FACTS)


class House:
    def __init__(self, engine: Engine, door: Door) -> None:
        self.engine = engine
        self.core = engine.core
        self.door = door
        #: set: tasks of kind `held` end
        self.go = asyncio.Event()
        self._started: dict[str, asyncio.Event] = {}

    async def held(self, run: Run) -> dict[str, int]:
        self._start(run.name).set()
        await self.go.wait()
        return {"pots": 3}

    async def bad(self, run: Run) -> None:
        raise TaskFailed("the <b>hive</b> is empty", 2)

    def _start(self, name: str) -> asyncio.Event:
        return self._started.setdefault(name, asyncio.Event())

    async def running(self, context: Context, name: str) -> Task:
        """The task of a context, once a worker does it and the coordinator knows."""
        await self._start(name).wait()
        while (task := (await self.engine.tasks(context))[name]).state != "RUNNING":
            await asyncio.sleep(0.01)
        return task

    async def write(self, task: Task, n: int, body: str | bytes, stream: Any = "stdout") -> None:
        raw = body.encode() if isinstance(body, str) else body
        await self.core.tasks.write([Chunk(task.id, task.context, task.attempt, n, stream, 1.0, raw)])

    async def held_task(self, name: str = "one") -> Task:
        return await self.running(await self.engine.submit(TaskSpec(name, kind="held")), name)


@asynccontextmanager
async def working(data: Path, database: str = "memory:", **settings: Any) -> AsyncIterator[House]:
    async with coordinator(data, database) as engine:
        app = create_app(engine.core, Settings(data=str(data), database=database, **settings))
        house = House(engine, Door(engine.core, app))
        async with hand(engine, offer=OFFER, held=house.held, bad=house.bad):
            while not await engine.core.workers.list(SYSTEM):
                await asyncio.sleep(0.01)
            yield house


@asynccontextmanager
async def served(house: House) -> AsyncIterator[str]:
    """The same door on a socket, for a browser."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(house.door.app, log_level="error", lifespan="off"))
        serving = asyncio.create_task(server.serve([listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = server.force_exit = True
            await serving
