"""A coordinator's task engine over a database, with a real link, and workers that attach to it."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from skep.clock import Clock, SystemClock
from skep.config import Settings
from skep.link.client import LinkClient
from skep.link.messages import PROTOCOL, Beat, Hello, Order, Outcome, Refused
from skep.link.server import LinkServer
from skep.model.caller import SYSTEM
from skep.model.credential import Key
from skep.model.member import Offer
from skep.model.task import Context, ContextSpec, Run, Task, TaskHold, TaskSpec
from skep.roles.build import Rooms, open_rooms
from skep.worker.doer import Doer, Doing

TOKEN = "secret"


class Engine:
    """One coordinator."""

    def __init__(self, rooms: Rooms, link: str) -> None:
        self.rooms = rooms
        self.core = rooms.core
        self.link = link

    async def submit(self, *tasks: TaskSpec, **more: Any) -> Context:
        return await self.core.contexts.submit(SYSTEM, ContextSpec("trial", tasks, **more))

    async def ended(self, context: Context, timeout: float = 30.0) -> Context:
        context = await self.core.contexts.wait(SYSTEM, context.id, timeout)
        assert context.state != "RUNNING", await self.core.contexts.show(SYSTEM, context.id)
        return context

    async def tasks(self, context: Context) -> dict[str, Task]:
        view = await self.core.contexts.show(SYSTEM, context.id)
        return {task.name: task for task in view.tasks}


@asynccontextmanager
async def coordinator(data: Path, database: str, clock: Clock | None = None, **settings: Any) -> AsyncIterator[Engine]:
    chosen = Settings(data=str(data), database=database, **settings)
    async with open_rooms(chosen, clock or SystemClock(), TOKEN) as rooms, AsyncExitStack() as stack:
        server = LinkServer(rooms.desk, beat_every=chosen.beat_every)
        link = await server.start(f"unix:{data}/link.sock")
        stack.push_async_callback(server.stop)
        loops = [asyncio.create_task(loop()) for loop in rooms.loops]
        try:
            yield Engine(rooms, link)
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)


class Hand:
    """A worker that only does tasks, of the kinds it is given."""

    def __init__(self, link: str, member: str, kinds: Mapping[str, Doing], offer: Offer, boot: int = 1) -> None:
        self.member = member
        self.offer = offer
        self.boot = boot
        self.refusal = ""
        clock = SystemClock()
        self.client = LinkClient(self, link, clock)
        self.doer = Doer(kinds, self.client.ask, lambda: self.offer, lambda run: self.refusal, clock)

    def hello(self) -> Hello:
        return Hello(PROTOCOL, self.member, TOKEN, self.boot, offer=self.offer, running=self.doer.running)

    def beat(self) -> Beat:
        return Beat("idle")

    async def obey(self, orders: Sequence[Order]) -> None: ...

    def begin(self, runs: Sequence[Run]) -> None:
        self.doer.begin(runs)

    def unlock(self, keys: Sequence[Key]) -> None: ...

    def interest(self, sources: Sequence[str]) -> None: ...

    def stop(self, tasks: Sequence[TaskHold]) -> None:
        self.doer.stop(tasks)

    async def outcomes(self, after: int, limit: int) -> list[Outcome]:
        return []

    async def settle(self, acked: Sequence[int], refused: Sequence[Refused]) -> None: ...


@asynccontextmanager
async def hand(
    engine: Engine, member: str = "wrk_1", slots: int = 4, offer: Offer | None = None, **kinds: Doing
) -> AsyncIterator[Hand]:
    offer = offer or Offer(("command", *kinds), {"own": slots, "command": slots}, facts={"os": "linux", "cpu": 2.0})
    one = Hand(engine.link, member, {"command": noop, **kinds}, offer)
    parts = [asyncio.create_task(one.client.run()), asyncio.create_task(one.doer.run())]
    try:
        yield one
    finally:
        for part in parts:
            part.cancel()
        await asyncio.gather(*parts, return_exceptions=True)


async def noop(run: Run) -> None: ...
