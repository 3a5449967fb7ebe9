"""Tasks beside procrastinate, in one run, in turns; medians and ratios.

    PYTHONPATH=. python bench/tasks/run.py [--rounds 3] [--tasks 400] [--only rates,idle,waiting,children]

Tasks of a built-in kind that do nothing, durable (fsync on), over the link to a worker in another process;
procrastinate on Debian's PostgreSQL with psycopg in C, its worker in another process too. One at a time: the worker has
one place, and asks for the next task when it has done one.
"""

import argparse
import asyncio
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import uvloop

from skep.base.caller import SYSTEM
from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.processes.build import Rooms, open_rooms
from skep.rpc.server import LinkServer
from skep.tasks.model import Context, ContextSpec, TaskSpec
from tests.support.postgres import fresh_database, running_postgres

sys.path.append(str(Path(__file__).parents[2]))
from bench.tasks import children
from bench.tasks.rival import Rival

TOKEN = "bench"
NOOP = TaskSpec(kind="noop")
clock = SystemClock()


@asynccontextmanager
async def engine(data: Path, database: str) -> AsyncIterator["Engine"]:
    settings = Settings(data=str(data), database=database)
    async with open_rooms(settings, clock, TOKEN) as rooms:
        server = LinkServer(rooms.desk, beat_every=settings.beat_every)
        link = await server.start(f"unix:{data}/link.sock")
        loops = [asyncio.create_task(loop()) for loop in rooms.loops]
        try:
            yield Engine(rooms, link)
        finally:
            await server.stop()
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)


class Engine:
    def __init__(self, rooms: Rooms, link: str) -> None:
        self._core = rooms.core
        self._link = link

    @asynccontextmanager
    async def worker(self, slots: int) -> AsyncIterator[None]:
        command = [sys.executable, str(Path(__file__).with_name("hand.py")), self._link, TOKEN, str(slots)]
        process = subprocess.Popen(command)
        try:
            await self.ended(await self.submit(NOOP))
            yield
        finally:
            process.kill()
            process.wait()

    async def submit(self, *tasks: TaskSpec) -> Context:
        return await self._core.contexts.submit(SYSTEM, ContextSpec("bench", tasks))

    async def ended(self, context: Context) -> Context:
        ended = await self._core.contexts.wait(SYSTEM, context.id, 600.0)
        assert ended.state == "FINISHED", ended
        return ended

    async def cancel(self, context: Context) -> None:
        await self._core.contexts.cancel(SYSTEM, context.id)
        await self._core.contexts.wait(SYSTEM, context.id, 600.0)

    async def rate(self, slots: int, tasks: int) -> float:
        """Tasks a second, from the moment they are stored to the end of the last."""
        async with self.worker(slots):
            return await self.rate_now(tasks)

    async def rate_now(self, tasks: int) -> float:
        context = await self.submit(*[NOOP] * tasks)
        began = clock.now()
        await self.ended(context)
        return tasks / (clock.now() - began)

    async def latencies(self, count: int) -> list[float]:
        """Seconds from the call of submit to the beginning of the task; nothing else is under way."""
        found = []
        async with self.worker(1):
            for _ in range(count):
                began = clock.now()
                context = await self.ended(await self.submit(NOOP))
                (task,) = (await self._core.contexts.show(SYSTEM, context.id)).tasks
                moves = (await self._core.tasks.show(SYSTEM, task.id)).moves
                found.append(next(move.at for move in moves if move.state == "RUNNING") - began)
                await asyncio.sleep(0.02)
        return found


async def rates(ours: Engine, large: Engine, rival: Rival, rounds: int, tasks: int) -> None:
    sides: dict[str, Callable[[], Awaitable[float]]] = {
        "one": partial(ours.rate, 1, tasks),
        "theirs": partial(rival.rate, 1, tasks),
        "one large": partial(large.rate, 1, tasks),
        "many": partial(ours.rate, 256, 10 * tasks),
        "theirs 64": partial(rival.rate, 64, tasks),
        "many large": partial(large.rate, 256, 10 * tasks),
    }
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, measure in sides.items():
            found[name].append(await measure())
    middle = {name: statistics.median(values) for name, values in found.items()}
    print("\nTasks a second\n\n| | Skep | procrastinate | ratio | wanted |\n|---|---|---|---|---|")
    for what, one, other, wanted in (
        ("one at a time, SQLite", "one", "theirs", ">= 4"),
        ("one at a time, PostgreSQL", "one large", "theirs", ">= 2"),
        ("256 at a time, SQLite", "many", "theirs", ">= 15"),
        ("256 at a time, PostgreSQL", "many large", "theirs", ""),
        ("256 at a time, PostgreSQL; theirs 64 at a time", "many large", "theirs 64", ""),
    ):
        ratio = statistics.median(a / b for a, b in zip(found[one], found[other], strict=True))
        print(f"| {what} | {middle[one]:,.0f} | {middle[other]:,.0f} | {ratio:.2f} | {wanted} |", flush=True)


async def idle(ours: Engine, large: Engine, rival: Rival, rounds: int) -> None:
    found: dict[str, list[float]] = {"ours": [], "large": [], "theirs": []}
    for _ in range(rounds):
        found["ours"] += await ours.latencies(30)
        found["large"] += await large.latencies(30)
        found["theirs"] += await rival.latencies(30)
    middle = {name: 1000 * statistics.median(values) for name, values in found.items()}
    print("\nFrom the call of submit to the beginning of the task, idle, milliseconds (median)\n")
    print("| | Skep | procrastinate | wanted |\n|---|---|---|---|")
    print(f"| SQLite | {middle['ours']:.1f} | {middle['theirs']:.1f} | <= 5 |")
    print(f"| PostgreSQL | {middle['large']:.1f} | {middle['theirs']:.1f} | no worse |", flush=True)


async def waiting(folder: Path, tasks: int) -> None:
    """Two classes wait, one of them long: what is placed looks at both each time."""
    print(
        "\nTasks a second, one at a time, while others wait\n\n| waiting | tasks a second | stored in |\n|---|---|---|"
    )
    async with engine(folder, "sqlite:") as ours, ours.worker(1):
        there = 0
        for wanted in (1000, 100_000):
            began = clock.now()
            context = await ours.submit(*[TaskSpec(kind="evaluate")] * (wanted - there))
            stored, there = clock.now() - began, wanted
            await ours.rate_now(tasks)
            rate = statistics.median([await ours.rate_now(tasks) for _ in range(3)])
            print(f"| {wanted:,} | {rate:,.0f} | {stored:.1f} s |", flush=True)
        began = clock.now()
        await ours.cancel(context)
        print(f"\nThe larger context was cancelled in {clock.now() - began:.1f} s", flush=True)


async def commands(folder: Path, rounds: int, total: int) -> None:
    print("\nCommands a second in the runtime, and bare child processes\n")
    print("| at once | isolated | not isolated | bare | ratio | cost of isolation |\n|---|---|---|---|---|---|")
    for at_once, values in (await children.rates(folder, rounds, total)).items():
        ours, without, bare = (statistics.median(side) for side in zip(*values, strict=True))
        cost = 1000 * (1 / ours - 1 / without)
        print(
            f"| {at_once} | {ours:,.0f} | {without:,.0f} | {bare:,.0f} | {ours / bare:.2f} | {cost:.1f} ms |",
            flush=True,
        )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--only", default="rates,idle,waiting,children")
    given = parser.parse_args()
    only = given.only.split(",")
    folder = Path(tempfile.mkdtemp(prefix="bench-tasks-"))
    try:
        with running_postgres(fsync=True) as url:
            async with (
                fresh_database(url) as one,
                fresh_database(url) as other,
                engine(folder / "small", "sqlite:") as ours,
                engine(folder / "large", one) as large,
                Rival(other).opened() as rival,
            ):
                if "rates" in only:
                    await rates(ours, large, rival, given.rounds, given.tasks)
                if "idle" in only:
                    await idle(ours, large, rival, given.rounds)
        if "waiting" in only:
            await waiting(folder / "waiting", given.tasks)
        if "children" in only:
            await commands(folder / "children", given.rounds, given.tasks)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
