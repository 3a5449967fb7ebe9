"""One curve among few results and among many, on each database, in turns; medians and ratios.

    PYTHONPATH=. python bench/results/run.py [--rounds 20] [--commits 1000] [--few 10] [--many 1000]

Each commit is a task that records one result for each curve, so a curve has as many points as there are commits. What
is measured is `results.points`: the whole curve, decoded. Recording is timed on the way.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from skep.base.caller import SYSTEM
from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.interfaces.core import Core
from skep.processes.build import open_rooms
from skep.results.api import Draft, Series
from skep.tasks.model import ContextSpec, TaskSpec
from tests.support.postgres import fresh_database, running_postgres


@asynccontextmanager
async def filled(data: Path, url: str, commits: int, curves: int) -> AsyncIterator[Core]:
    async with open_rooms(Settings(data=str(data), database=url), SystemClock(), "b" * 64) as rooms:
        core, began = rooms.core, time.perf_counter()
        tasks = tuple(
            TaskSpec(argv=("x",), properties={"skep.benchmark": "b", "skep.made_at": str(n)}) for n in range(commits)
        )
        context = await core.contexts.submit(SYSTEM, ContextSpec("bench", tasks))
        ids = [task.id for task in (await core.contexts.show(SYSTEM, context.id, limit=commits)).tasks]
        for id in ids:
            drafts = [Draft("time", 1.0 + n, "s", (1.0, 2.0, 3.0), group=f"test_{n}") for n in range(curves)]
            await core.results.record(SYSTEM, id, None, drafts, first=0)
        took = time.perf_counter() - began
        print(f"  {commits * curves:>9,} results recorded in {took:.0f} s, {commits * curves / took:,.0f} a second")
        yield core


async def curve(core: Core, commits: int, n: int) -> float:
    began = time.perf_counter()
    found = await core.results.points(SYSTEM, Series("b", group=f"test_{n}", metric="time"))
    took = time.perf_counter() - began
    assert len(found) == commits, len(found)
    return took


async def compare(name: str, urls: tuple[str, str], asked: argparse.Namespace) -> None:
    print(name)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        async with (
            filled(Path(one), urls[0], asked.commits, asked.few) as few,
            filled(Path(two), urls[1], asked.commits, asked.many) as many,
        ):
            pairs = [
                (await curve(few, asked.commits, n % asked.few), await curve(many, asked.commits, n * 7 % asked.many))
                for n in range(asked.rounds)
            ]
    small, large = (statistics.median(times) * 1000 for times in zip(*pairs, strict=True))
    ratio = statistics.median(late / early for early, late in pairs)
    print(
        f"  a curve of {asked.commits:,}: {small:.1f} ms among few, {large:.1f} ms among many: {ratio:.2f}x (wanted 3x)"
    )


async def main(asked: argparse.Namespace) -> None:
    await compare("SQLite", ("sqlite:", "sqlite:"), asked)
    with running_postgres() as server:
        async with fresh_database(server) as one, fresh_database(server) as two:
            await compare("PostgreSQL", (one, two), asked)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for option, default in (("rounds", 20), ("commits", 1000), ("few", 10), ("many", 1000)):
        parser.add_argument(f"--{option}", type=int, default=default)
    asyncio.run(main(parser.parse_args()))
