"""A list of many URLs: import into the catalogue, reading it again unchanged, and handing it to a worker as orders.

    PYTHONPATH=. python bench/git/lists.py [--counts 10000 100000 1000000]

The list is a git repository with files of 1,000 URLs. Each size runs in a process of its own, on SQLite on disk; times
are seconds of its CPU.
"""

import argparse
import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from skep.base.caller import SYSTEM
from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.fleet.assignments import confirm, pending
from skep.processes.build import open_rooms
from skep.sources.lists.apply import Apply
from skep.sources.lists.follow import Follower
from tests.support.forge.repository import Repo

PER_FILE = 1_000


def write_list(folder: Path, count: int) -> tuple[Repo, str]:
    repo = Repo.init(folder)
    files: dict[str | bytes, bytes | str | None] = {
        f"{n // 100:02}/{n:04}.yaml": "".join(
            f"- url: https://github.com/org{(i := n * PER_FILE + k) % 5000}/repo{i}\n  team: t{i % 20}\n"
            for k in range(PER_FILE)
        ).encode()
        for n in range(count // PER_FILE)
    }
    return repo, repo.commit({**files, "DEFAULTS": b"imported: true\n"})


async def run(count: int, folder: Path) -> None:
    _, commit = write_list(folder / "list.git", count)
    clock = SystemClock()
    settings = Settings(data=str(folder / "data"))
    (folder / "data").mkdir()
    async with open_rooms(settings, clock, "w" * 64) as rooms:
        listed = await rooms.core.lists.add(SYSTEM, "https://example.org/lists")
        db: Any = rooms.core.lists._db
        fleet: Any = rooms.core.sources._fleet
        await fleet.join("w1", "w" * 64, 1, "worker", _offer())

        async def tell(tx: Any) -> None:
            await tx.rows("UPDATE source SET default_branch = 'main' WHERE id = :id", id=listed.source)
            await tx.rows(
                "INSERT INTO entry (source, name, seq, version) VALUES (:id, 'refs/heads/main', 1, :commit)",
                id=listed.source,
                commit=commit,
            )

        await db.write(tell)
        sources = rooms.core.sources
        follower = Follower(
            *(db, clock, rooms.core.topics, sources, Apply(db, clock, fleet, sources.catalogue)),
            *(lambda _: folder / "list.git", None, 3_600.0, 60.0),  # type: ignore[arg-type]  # no forge is asked
        )
        before = _rss()
        imported = await _timed(follower.step())

        async def forget(tx: Any) -> None:
            await tx.rows("UPDATE list SET version = ''")

        await db.write(forget)
        again = await _timed(follower.step())
        ordered = await _timed(_hand_out(rooms.desk, db))
        size = (folder / "data" / "skep.db").stat().st_size
        print(
            f"{count:>9,} | import {imported:7.1f} s of CPU ({count / imported:7,.0f}/s) | again {again:6.2f} s | "
            f"orders {ordered:7.1f} s ({count / ordered:7,.0f}/s) | memory {before:.0f} -> {_peak():.0f} MB | "
            f"database {size / 1e6:,.0f} MB"
        )


def _offer() -> Any:
    from skep.fleet.api import Offer

    return Offer(mirror=True)


async def _hand_out(desk: Any, db: Any) -> None:
    while orders := await desk.orders("w1"):
        await confirm(db, "w1", [order.order for order in orders], 1.0)
    assert not await pending(db, "w1", 1)


async def _timed(work: Any) -> float:
    """Seconds of CPU of this process: what git does beside it is little, and others use the machine too."""
    began = time.process_time()
    await work
    return time.process_time() - began


def _rss() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--counts", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--one", type=int)
    args = parser.parse_args()
    if not args.one:
        for count in args.counts:
            subprocess.run([sys.executable, __file__, "--one", str(count)], check=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(args.one, Path(folder)))


if __name__ == "__main__":
    main()
