"""The schedule of one worker with 10 thousand, 100 thousand and 1 million sources: memory, restart, cost of a look.

    PYTHONPATH=. python bench/git/schedule.py [--sizes 10000,100000,1000000]

Restart is opening the worker's file and having everything that is due soon in the queue. Beside it: reading the same
URLs from lists, 1,000 in each YAML file, with libyaml. Each size is measured in a process of its own.
"""

import argparse
import asyncio
import gc
import multiprocessing
import resource
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import uvloop
import yaml

from skep.base.ids import new_id
from skep.config.settings import Settings
from skep.sources.model import Failure, Held, Key
from skep.sources.polling import store as tables
from skep.sources.polling.poller import Poller
from skep.sources.polling.schedule import FIRST_OBSERVED
from skep.sources.polling.store import Store
from skep.sources.source_type import Ask, Look, Moved, Report, Same
from skep.storage.database import Tx, Value
from skep.storage.sqlite import open_sqlite

LOOKS = 40_000
CHUNK = 20_000
#: looks that are due at the same time
ROUND = 1_000
START = 1_700_000_000.0
#: one look after the other is due for so long
SPREAD = 50_000.0


class Hand:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.time = START

    def now(self) -> float:
        return self.time

    def random(self) -> float:
        return 0.5


class Still:
    """Upstreams that never change and answer at once."""

    async def look(self, source: Held, *, asked: bool = False) -> Look:
        return Same()

    async def fetch(self, source: Held, moved: Moved, report: Report) -> Mapping[str, str] | Failure:
        raise NotImplementedError

    async def versions(self, source: Held) -> Mapping[str, str]:
        return {}

    async def mend(self, source: Held) -> Failure | None:
        return None

    async def check(self, source: Held) -> Failure | None:
        return None

    async def remove(self, source: Held) -> None: ...

    async def close(self) -> None: ...

    def heavy(self, source: Held) -> bool:
        return False

    def more(self, source: Held) -> bool:
        return self.heavy(source)

    def changed(self, source: Held) -> bool:
        return self.heavy(source)

    def connect(self, ask: Ask) -> None: ...

    def unlock(self, keys: Sequence[Key]) -> None: ...


def url(n: int) -> str:
    return f"https://host{n % 50}.example.org/group{n // 1000}/repository{n}"


async def fill(folder: Path, size: int) -> None:
    db = await open_sqlite("sqlite:worker.db", data=folder, durability="delayed")
    await Store(db, Hand()).start()
    for first in range(0, size, CHUNK):
        held: list[dict[str, Value]] = []
        look: list[dict[str, Value]] = []
        for n in range(first, min(size, first + CHUNK)):
            source = new_id("src", START + n / 1000)
            spec = msgspec.msgpack.encode(Held(source, n, "git", url(n), 1))
            held.append({"source": source, "epoch": 1, "spec": spec, "told": b"\x80", "batches": 1})
            due = START + (n * 7919) % size / size * SPREAD
            look.append({"source": source, "now": due, "observed": FIRST_OBSERVED})

        async def work(tx: Tx, held: list[dict[str, Value]] = held, look: list[dict[str, Value]] = look) -> None:
            await tx.many(tables.HOLD, held)
            await tx.many(tables.ENTER, look)

        await db.write(work)

    async def looked(tx: Tx) -> None:
        """As if everybody had been looked at before."""
        await tx.rows(
            "UPDATE look SET last_looked = 1, wait = next_look - :start + 1000, shortest = 60, longest = 86400",
            start=START,
        )

    await db.write(looked)
    store = Store(db, Hand())
    store.keep(await store.cells())
    store.note((await store.next((-1.0, ""), 1))[0])
    await store.flush()
    await db.close()


async def measure(folder: Path, size: int, budget: float) -> None:
    settings = Settings(poll_budget=budget, host_rate=1e9, host_concurrency=64)
    before = _resident()
    start, cpu = time.perf_counter(), time.process_time()
    clock = Hand()
    db = await open_sqlite("sqlite:worker.db", data=folder, durability="delayed")
    store = Store(db, clock)
    await store.start()
    poller = Poller(store, {"git": Still()}, settings, clock)
    await poller.load()
    restart, restart_cpu = time.perf_counter() - start, time.process_time() - cpu
    gc.collect()
    memory = _resident() - before
    running = asyncio.create_task(poller.run())
    cpu, done = time.process_time(), 0
    while done < min(LOOKS, size // 2):
        clock.time += SPREAD / size * ROUND
        poller.kick()
        wanted = done + ROUND
        while done < wanted:
            await asyncio.sleep(0.01)
            done += len(poller.looked())
    each = (time.process_time() - cpu) / done
    later = _resident() - before
    running.cancel()
    await asyncio.wait([running])
    await db.close()
    print(
        f"{size:9,} sources, {'' if budget else 'no '}budget: restart {restart:5.2f} s ({restart_cpu:.2f} s CPU), "
        f"{memory / 1e6:6.1f} MB, after {done:,} looks {later / 1e6:6.1f} MB; a look {each * 1e6:5.1f} µs",
        flush=True,
    )


def lists(folder: Path, size: int) -> float:
    """Seconds to parse the lists."""
    (folder / "lists").mkdir()
    for first in range(0, size, 1000):
        text = "".join(f"- url: {url(n)}\n" for n in range(first, min(size, first + 1000)))
        (folder / "lists" / f"{first}.yaml").write_text(text)
    start = time.perf_counter()
    found = sum(len(yaml.load(path.read_bytes(), yaml.CSafeLoader)) for path in sorted((folder / "lists").iterdir()))
    assert found == size
    return time.perf_counter() - start


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _run(folder: Path, size: int, budget: float) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure(folder, size, budget))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="10000,100000,1000000")
    spawn = multiprocessing.get_context("spawn")
    for size in map(int, parser.parse_args().sizes.split(",")):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            asyncio.run(fill(folder, size))
            for budget in (0.0, 10 * size / SPREAD):
                own = Path(shutil.copytree(folder, folder.with_name(f"{folder.name}-{budget}")))
                child = spawn.Process(target=_run, args=(own, size, budget))
                child.start()
                child.join()
                shutil.rmtree(own)
            print(f"{size:9,} URLs from lists: {lists(folder, size):6.2f} s", flush=True)


if __name__ == "__main__":
    main()
