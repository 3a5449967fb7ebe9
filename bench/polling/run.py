"""Polling unchanged repositories: Skep's look beside `git ls-remote` processes, per second of CPU of the client.

    PYTHONPATH=. python bench/polling/run.py [--count 100] [--rounds 5]

Skep's side is the worker's own poller: pick, look, reschedule, and the schedule written to its file. Both sides ask the
same server, in turns, in one run. The server is another process, so its work is not counted; the client's children are.
"""

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import uvloop

from skep.base.clock import SystemClock
from skep.base.ids import new_id
from skep.config.settings import Settings
from skep.rpc.messages import Hold, Order
from skep.sources.git.source_type import GitKind
from skep.sources.model import Held
from skep.sources.polling.poller import Poller
from skep.sources.polling.store import Store
from skep.storage.sqlite import open_sqlite

AT_ONCE = 8
#: processes of ls-remote a round; its rate does not depend on how many
LS_REMOTE = 20


class Cost(NamedTuple):
    polls: int
    cpu: float
    wall: float

    @property
    def per_cpu_second(self) -> float:
        return self.polls / self.cpu


def cpu() -> float:
    """Seconds this process and its ended children have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


class Ahead:
    """The system's clock, moved on by a day for each turn, so that everything is due again."""

    def __init__(self) -> None:
        self._real = SystemClock()
        self._days = 0

    def now(self) -> float:
        return self._real.now() + 86_400.0 * self._days

    def random(self) -> float:
        return self._real.random()

    def next_day(self) -> None:
        self._days += 1


async def settle(poller: Poller, store: Store, count: int) -> None:
    """Until `count` looks found nothing new and their schedule is written."""
    while count > 0:
        await asyncio.sleep(0.01)
        count -= len(poller.looked())
    await store.flush()


async def skep_round(poller: Poller, store: Store, clock: Ahead, count: int, repeat: int) -> Cost:
    before, start = cpu(), time.perf_counter()
    for _ in range(repeat):
        clock.next_day()
        poller.kick()
        await settle(poller, store, count)
    return Cost(count * repeat, cpu() - before, time.perf_counter() - start)


def git_round(helds: Sequence[Held], env: dict[str, str]) -> Cost:
    before, start = cpu(), time.perf_counter()
    for held in helds[:LS_REMOTE]:
        subprocess.run(["git", "ls-remote", held.url], env=env, check=True, stdout=subprocess.DEVNULL)
    return Cost(min(LS_REMOTE, len(helds)), cpu() - before, time.perf_counter() - start)


@contextmanager
def upstream(folder: Path, count: int, tls: bool) -> Iterator[str]:
    script = Path(__file__).with_name("upstream.py")
    command = [sys.executable, str(script), str(folder), str(count), *(["--tls"] if tls else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout and server.stdin
        try:
            yield server.stdout.readline().strip()
        finally:
            server.stdin.close()


async def measure(folder: Path, count: int, rounds: int, repeat: int, tls: bool) -> None:
    with upstream(folder, count, tls) as base:
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
        if tls:
            os.environ["SSL_CERT_FILE"] = env["GIT_SSL_CAINFO"] = str(folder / "forge.pem")
        clock = Ahead()
        settings = Settings(allow_networks=("127.0.0.0/8",), host_rate=1e6, host_concurrency=AT_ONCE)
        kind = GitKind(settings, folder, clock)
        db = await open_sqlite("sqlite:worker.db", data=folder, durability="full")
        store = Store(db, clock)
        await store.start()
        helds = [Held(new_id("src", time.time()), n, "git", f"{base}org/r{n}", 1) for n in range(count)]
        await store.obey([Order(n, Hold(held)) for n, held in enumerate(helds)])
        poller = Poller(store, {"git": kind}, settings, clock)
        await poller.load()
        running = asyncio.create_task(poller.run())
        while len(await store.outcomes(0, count)) < count:  # all are cloned
            await asyncio.sleep(0.1)
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(await skep_round(poller, store, clock, count, repeat))
            theirs.append(git_round(helds, env))
        running.cancel()
        await asyncio.wait([running])
        await kind.close()
        await db.close()
    report("TLS" if tls else "HTTP", ours, theirs)


def report(what: str, ours: Sequence[Cost], theirs: Sequence[Cost]) -> None:
    rates = [statistics.median(cost.per_cpu_second for cost in side) for side in (ours, theirs)]
    ratio = statistics.median(a.per_cpu_second / b.per_cpu_second for a, b in zip(ours, theirs, strict=True))
    print(
        f"{what:5} skep {rates[0]:8.0f} polls/CPU-s   git ls-remote {rates[1]:6.1f} polls/CPU-s   ratio {ratio:6.1f}x"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="repositories")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side")
    parser.add_argument("--repeat", type=int, default=3, help="looks at each repository in a turn")
    args = parser.parse_args()
    for tls in (False, True):
        loop = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        with tempfile.TemporaryDirectory() as folder, loop as runner:
            runner.run(measure(Path(folder), args.count, args.rounds, args.repeat, tls))


if __name__ == "__main__":
    main()
