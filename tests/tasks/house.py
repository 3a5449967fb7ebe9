"""A coordinator's task engine over a database, with a real link, and workers that attach to it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from skep.base.caller import SYSTEM
from skep.base.clock import Clock, SystemClock
from skep.base.loops import kept
from skep.config.settings import Settings
from skep.fleet.api import Offer
from skep.processes.build import Rooms, open_rooms
from skep.rpc.client import LinkClient
from skep.rpc.connect import Dial
from skep.rpc.messages import PROTOCOL, Beat, Hello, Open, Order, Outcome, Refused
from skep.rpc.server import LinkServer
from skep.sources.model import Key
from skep.storage.database import Database, Row, Tx, Value
from skep.tasks.dispatcher import Dispatcher
from skep.tasks.model import (
    Context,
    ContextSpec,
    ContextState,
    Move,
    Need,
    Renew,
    Run,
    Task,
    TaskHold,
    TaskSpec,
    TaskState,
)
from skep.tasks.transitions import ENDED, WORK, context_channel
from skep.tasks.worker import Doer, Doing, TaskFailed

TOKEN = "secret"


class MovableClock(SystemClock):
    """The machine's time, and as much later as a test wants it to be."""

    ahead = 0.0
    #: when it stands still
    stopped: float | None = None

    def now(self) -> float:
        return (super().now() if self.stopped is None else self.stopped) + self.ahead


class Engine:
    """One coordinator."""

    def __init__(
        self, rooms: Rooms, server: LinkServer, link: str, clock: Clock, stop: Callable[[], Awaitable[None]]
    ) -> None:
        self.server = server
        self._stopping = stop
        self.rooms = rooms
        self.core = rooms.core
        self.db: Database = rooms.core.contexts._db
        self.link = link
        self.clock = clock

    @property
    def dispatcher(self) -> Dispatcher:
        owners = (getattr(loop, "__self__", None) for loop in self.rooms.loops)
        return next(one for one in owners if isinstance(one, Dispatcher))

    @property
    def owned(self) -> frozenset[int]:
        return self.dispatcher._owners.owned

    async def stop_serving(self) -> None:
        """Its loops and its link end; what is stored stays."""
        await self._stopping()

    async def cut(self, worker: "Hand") -> None:
        """Its stream ends and none comes again before `mend`; what it runs goes on."""
        worker.client._dial = Dial(("unix:/nowhere",))
        if session := self.server._sessions.get(worker.member):
            await session.end(Refused(None, "stopping", "cut"))

    def mend(self, worker: "Hand") -> None:
        worker.client._dial = Dial((self.link,))

    async def submit(self, *tasks: TaskSpec, **more: Any) -> Context:
        """As the server itself: of internal kinds, too."""
        return await self.core.contexts.submit(SYSTEM, ContextSpec("trial", tasks, **more), internal=True)

    async def ended(self, context: Context, timeout: float = 60.0) -> Context:
        context = await self.core.contexts.wait(SYSTEM, context.id, timeout)
        assert context.state != "RUNNING", await self.core.contexts.show(SYSTEM, context.id)
        return context

    async def tasks(self, context: Context) -> dict[str, Task]:
        view = await self.core.contexts.show(SYSTEM, context.id)
        return {task.name: task for task in view.tasks}

    async def states(self, context: Context) -> dict[str, str]:
        return {name: task.state for name, task in (await self.tasks(context)).items()}

    async def become(self, context: Context, **states: str) -> dict[str, Task]:
        """Returns once each of these tasks is in that state."""
        async with asyncio.timeout(60), self.db.listen(context_channel(context.id)) as bell:
            while True:
                tasks = await self.tasks(context)
                if all(tasks[name].state == state for name, state in states.items()):
                    return tasks
                await bell.wait(0.02)

    async def moves(self, context: Context, name: str) -> list[Move]:
        return (await self.core.tasks.show(SYSTEM, (await self.tasks(context))[name].id)).moves

    async def ring(self) -> None:
        await self.sql()

    async def sql(self, statement: str = "SELECT 1", **params: Value) -> list[Row]:
        """By hand, past every rule; the dispatcher is woken."""

        async def work(tx: Tx) -> list[Row]:
            tx.ring(WORK)
            return await tx.rows(statement, **params)

        return await self.db.write(work)

    async def pass_time(self, seconds: float, *living: "Hand") -> None:
        """Later by the clock; who still lives says so, again and again."""
        assert isinstance(self.clock, MovableClock)
        step = 10.0
        while seconds > 0:
            self.clock.ahead += min(step, seconds)
            seconds -= step
            for one in living:
                await one.client.ask(Renew(one.offer, one.doer.running))
        await self.ring()


@asynccontextmanager
async def coordinator(data: Path, database: str, clock: Clock | None = None, **settings: Any) -> AsyncIterator[Engine]:
    chosen = Settings(data=str(data), database=database, **settings)
    clock = clock or SystemClock()
    async with open_rooms(chosen, clock, TOKEN) as rooms:
        server = LinkServer(rooms.desk, beat_every=chosen.beat_every)
        rooms.tunnels.attach(server)
        link = await server.start(f"unix:{data}/link.sock")
        loops = [asyncio.create_task(kept(loop)) for loop in rooms.loops]

        async def stop() -> None:
            await server.stop()
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)

        try:
            yield Engine(rooms, server, link, clock, stop)
        finally:
            await stop()


class Hand:
    """A worker that only does tasks, of the kinds it is given."""

    def __init__(self, link: str, member: str, kinds: Mapping[str, Doing], offer: Offer, boot: int = 1) -> None:
        self.member = member
        self.offer = offer
        self.boot = boot
        self.refusal = ""
        self.part = (0.0, 1.0)
        clock = SystemClock()
        self.client = LinkClient(self, link, clock)
        self.doer = Doer(kinds, self.client.ask, lambda: self.offer, lambda run: self.refusal, clock)

    def dial(self) -> None:
        self._dialling = asyncio.create_task(self.client.run())

    async def end(self) -> None:
        self._dialling.cancel()
        await asyncio.gather(self._dialling, return_exceptions=True)

    def hello(self) -> Hello:
        return Hello(PROTOCOL, self.member, TOKEN, self.boot, offer=self.offer, running=self.doer.running)

    def beat(self) -> Beat:
        return Beat("idle")

    async def obey(self, orders: Sequence[Order]) -> None: ...

    def begin(self, runs: Sequence[Run]) -> None:
        self.doer.begin(runs)

    def unlock(self, keys: Sequence[Key]) -> None: ...

    def interest(self, sources: Sequence[str]) -> None: ...

    def open(self, asked: Open) -> None: ...

    def set_clock(self, now: float, said: float) -> None: ...

    def share(self, start: float, end: float) -> None:
        self.part = (start, end)

    def stop(self, tasks: Sequence[TaskHold]) -> None:
        self.doer.stop(tasks)

    async def outcomes(self, after: int, limit: int) -> list[Outcome]:
        return []

    async def settle(self, acked: Sequence[int], refused: Sequence[Refused]) -> None: ...


@asynccontextmanager
async def hand(
    engine: Engine, member: str = "wrk_1", slots: int = 4, offer: Offer | None = None, boot: int = 1, **kinds: Doing
) -> AsyncIterator[Hand]:
    """Attached and known when this is entered."""
    offer = offer or Offer(
        ("command", *kinds), {"own": slots, "command": slots}, facts={"os": "linux", "cpu": 2.0}, labels=(member,)
    )
    one = Hand(engine.link, member, {"command": noop, **kinds}, offer, boot)
    one.dial()
    doing = asyncio.create_task(one.doer.run())
    try:
        await one.client.ask(Renew(offer, ()))
        yield one
    finally:
        doing.cancel()
        await asyncio.gather(doing, return_exceptions=True)
        await one.end()


async def noop(run: Run) -> None: ...


def command(name: str, *needs: str | Need, **more: Any) -> TaskSpec:
    wanted = tuple(need if isinstance(need, Need) else Need(need) for need in needs)
    return TaskSpec(name, argv=("true",), needs=wanted, **more)


class Effects:
    """What tasks did, in order; each waits at its gate, and may be told to fail."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str, str]] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.failing: dict[str, int] = {}
        self.shut = False

    def gate(self, name: str) -> asyncio.Event:
        if name not in self.gates:
            self.gates[name] = asyncio.Event()
        return self.gates[name]

    def on(self, worker: str) -> Doing:
        async def do(run: Run) -> Any:
            self.log.append((run.name, worker, "begin"))
            try:
                if self.shut:
                    await self.gate(run.name).wait()
            finally:
                self.log.append((run.name, worker, "end"))
            if self.failing.get(run.name, 0) > 0:
                self.failing[run.name] -= 1
                raise TaskFailed("it was told to fail", 3)
            return {"by": worker, "attempt": run.attempt}

        return do

    def begun(self, what: str = "begin") -> list[str]:
        return [name for name, _, did in self.log if did == what]

    def check(self) -> None:
        """None ran twice at once."""
        running: set[str] = set()
        for name, _, did in self.log:
            assert (name in running) == (did == "end"), self.log
            running ^= {name}


def context_state(states: Collection[TaskState]) -> ContextState:
    """FAILED only when all have ended: until then others may still do something."""
    if any(state not in ENDED for state in states):
        return "RUNNING"
    return "FINISHED" if set(states) <= {"FINISHED"} else "FAILED"
