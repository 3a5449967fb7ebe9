"""A coordinator with a thousand members and more and more sources: restart, orders, plan, heartbeats, memory.

python -m bench.fleet.coordinator [--workers 1000] [--sources 10000 100000 1000000] [--postgres]

Each size in a process of its own, the members' streams in another one.
"""

import argparse
import asyncio
import contextlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from bench.fleet.crowd import member
from skep.base.clock import SystemClock
from skep.base.loops import kept
from skep.config.settings import Settings
from skep.fleet import assignments
from skep.fleet.api import Offer
from skep.mirrors.replication import Moves
from skep.processes.build import Rooms, open_rooms
from skep.rpc.messages import PROTOCOL, Hello
from skep.rpc.server import LinkServer
from skep.sources.catalogue import INSERT_SOURCE
from skep.storage.database import Database, Tx, Value
from tests.support.postgres import running_postgres

_PAGE = 10_000
#: seconds between the beats of a member, and for which they are counted
_BEAT_EVERY, _COUNTED = 5.0, 15.0
_ORDERS = 9


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


async def measure(data: Path, database: str, sources: int, workers: int) -> None:
    settings = Settings(data=str(data), database=database, workers_expected=workers)
    hellos = [Hello(PROTOCOL, member(n), "t", 1, offer=Offer(mirror=True)) for n in range(workers)]
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
        async with crowd(rooms, data, workers) as attached:
            await _calm()
            cpu = time.process_time()
            await asyncio.sleep(_COUNTED)
            rate = workers * _COUNTED / _BEAT_EVERY / (time.process_time() - cpu)
            to = [hello.member for hello in hellos[-_ORDERS:]]
            order = statistics.median([await _ordered(rooms.core.fleet._db, member) for member in to])
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    began_to = f"{opened:.2f} s ({restart:.2f} s of CPU) | {first:.2f} s ({ordered} orders)"
    wire = f"{attached} s | {order * 1000:.0f} ms | {rate:,.0f}"
    print(f"| {sources:,} | {began_to} | {planned:.2f} s | {wire} | {memory} MB |")


@contextlib.asynccontextmanager
async def crowd(rooms: Rooms, data: Path, workers: int) -> AsyncIterator[str]:
    """Everybody attached, to a coordinator that does its other work too; how many seconds that took. What was ordered
    before is done."""
    await rooms.core.fleet._db.write(lambda tx: tx.rows("DELETE FROM ordered"))
    server = LinkServer(rooms.desk, beat_every=_BEAT_EVERY)
    rooms.tunnels.attach(server)
    target = await server.start(f"unix:{data}/link.sock")
    loops = [asyncio.create_task(kept(loop)) for loop in rooms.loops]
    command = [sys.executable, "-m", "bench.fleet.crowd", str(workers), "t", target]
    child = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin and child.stdout
    try:
        yield (await child.stdout.readline()).decode().strip()
    finally:
        child.stdin.close()
        await child.wait()
        await server.stop()
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)


async def _calm() -> None:
    """Until plans and whatever else followed the attaching are over: less than half of a core is used."""
    cpu = -_BEAT_EVERY
    while (now := time.process_time()) - cpu > _BEAT_EVERY / 2:
        cpu = now
        await asyncio.sleep(_BEAT_EVERY)


async def _ordered(db: Database, to: str) -> float:
    """Seconds until an order is confirmed."""
    (row,) = await db.read("SELECT source FROM holding WHERE member = :to LIMIT 1", to=to)
    began = time.perf_counter()
    await db.write(lambda tx: assignments.order_many(tx, to, "hold", [row["source"]]))
    while await db.read("SELECT n FROM ordered WHERE member = :to", to=to):
        await asyncio.sleep(0.001)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1_000)
    parser.add_argument("--sources", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--postgres", action="store_true", help="a PostgreSQL of its own instead of SQLite")
    args = parser.parse_args()
    if len(args.sources) == 1:
        own = running_postgres(fsync=True) if args.postgres else contextlib.nullcontext("sqlite:")
        with own as database, tempfile.TemporaryDirectory() as folder:
            asyncio.run(measure(Path(folder), database, args.sources[0], args.workers))
        return
    print(
        "| sources | restart | to the first orders | a plan | all attached | an order | beats a CPU-second | memory |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for count in args.sources:
        again = ["--workers", str(args.workers), "--sources", str(count), *(["--postgres"] if args.postgres else [])]
        subprocess.run([sys.executable, "-m", "bench.fleet.coordinator", *again], check=True)


if __name__ == "__main__":
    main()
