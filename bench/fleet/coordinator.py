"""A coordinator with a thousand members and more and more sources: restart, orders, plan, heartbeats, memory.

python -m bench.fleet.coordinator [--workers 1000] [--sources 10000 100000 1000000]

Members are rows and calls of the desk, without the wire; SQLite; each size in a process of its own.
"""

import argparse
import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from skep.clock import SystemClock
from skep.config import Settings
from skep.engines.db.base import Database, Tx, Value
from skep.fleet.moves import Moves
from skep.link.messages import PROTOCOL, Beat, Hello
from skep.model.member import Offer
from skep.roles.build import open_rooms
from skep.sources.tables import INSERT_SOURCE

_PAGE, _BEATS = 10_000, 5


async def fill(db: Database, count: int) -> None:
    same: dict[str, Value] = {"kind": "git", "visibility": "public", "labels": "[]", "settings": "{}"}
    same |= {"size": 0, "now": 0.0, "by_list": 0}
    for first in range(0, count, _PAGE):
        names = {n: f"host.example/r{n}" for n in range(first, min(count, first + _PAGE))}
        rows = [
            {"id": f"src_{n:026d}", "number": n + 1, "name": name, "url": name, **same} for n, name in names.items()
        ]

        async def work(tx: Tx, rows: list[dict[str, Value]] = rows) -> None:
            await tx.many(INSERT_SOURCE, rows)
            await tx.many("INSERT INTO holding (source, member, pins) VALUES (:id, NULL, '[]')", rows)

        await db.write(work)


async def measure(data: Path, sources: int, workers: int) -> None:
    settings = Settings(data=str(data), workers_expected=workers)
    hellos = [Hello(PROTOCOL, f"wrk_{n:026d}", "t", 1, offer=Offer(mirror=True)) for n in range(workers)]
    async with open_rooms(settings, SystemClock(), "t") as rooms:
        await fill(rooms.core.fleet._db, sources)
        for hello in hellos:
            await rooms.desk.hello(hello, local=True)
        # a process that runs has read what was added
        (records,) = (loop.__self__ for loop in rooms.loops if "ReportRecords" in str(loop))  # type: ignore[attr-defined]
        await records.refresh()
    began, before = time.perf_counter(), time.process_time()
    async with open_rooms(settings, SystemClock(), "t") as rooms:
        opened, restart = time.perf_counter() - began, time.process_time() - before
        await rooms.desk.hello(hellos[0], local=True)
        ordered = len(await rooms.desk.orders(hellos[0].member))
        first = time.perf_counter() - began
        moves = Moves(rooms.core.fleet._db, SystemClock(), rooms.core.fleet, rooms.core.sources.raise_epoch)
        began = time.perf_counter()
        await moves.plan()
        planned = time.perf_counter() - began
        cpu = time.process_time()
        for _ in range(_BEATS):
            await asyncio.gather(*(rooms.desk.beat(hello.member, hello.boot, Beat("idle")) for hello in hellos))
        rate = _BEATS * workers / (time.process_time() - cpu)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    began_to = f"{opened:.2f} s ({restart:.2f} s of CPU) | {first:.2f} s ({ordered} orders)"
    print(f"| {sources:,} | {began_to} | {planned:.2f} s | {rate:,.0f} | {memory} MB |")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1_000)
    parser.add_argument("--sources", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    args = parser.parse_args()
    if len(args.sources) == 1:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(measure(Path(folder), args.sources[0], args.workers))
        return
    print("| sources | restart | to the first orders | a plan | beats a CPU-second | memory, at most |")
    print("|---|---|---|---|---|---|")
    for count in args.sources:
        again = [
            sys.executable,
            "-m",
            "bench.fleet.coordinator",
            "--workers",
            str(args.workers),
            "--sources",
            str(count),
        ]
        subprocess.run(again, check=True)


if __name__ == "__main__":
    main()
