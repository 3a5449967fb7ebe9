"""Nothing has changed: one pass over all repositories by Skep, by grokmirror's pull and by `git fetch` of each.

    PYTHONPATH=. python bench/git/run.py [--count 2000] [--rounds 3] [--grokmirror FOLDER_OF_ITS_PROGRAMS]

All ask the same server, in turns, in one run. grokmirror compares a manifest that its upstream has to publish: `-n` is
a pass over it, without is the question whether the manifest is a new one. Skep follows the same manifest: "manifest" is
the question whether it is a new one, "manifest read" a pass over one that says nothing new. Without it, Skep and git
ask each repository. Seconds are of the wall and of the CPU of the client and its children; the server is another
process.
"""

import argparse
import asyncio
import gzip
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import uvloop

from skep.base.caller import SYSTEM
from skep.base.clock import SystemClock
from skep.base.ids import new_id
from skep.config.settings import Settings
from skep.processes.build import open_rooms
from skep.rpc.messages import Hold, Order
from skep.sources.git.mirror import folder_of
from skep.sources.git.source_type import GitKind
from skep.sources.lists.follow import Follower
from skep.sources.model import Held
from skep.sources.polling.poller import Poller
from skep.sources.polling.store import Store
from skep.storage.database import Tx
from skep.storage.sqlite import open_sqlite

AT_ONCE = 8
#: `git fetch` processes a round; the pass over all is so many times longer
SAMPLE = 100


class Cost(NamedTuple):
    wall: float
    cpu: float


def cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


async def cost_of(work: Callable[[], Awaitable[None]], share: float = 1.0) -> Cost:
    before, start = cpu(), time.perf_counter()
    await work()
    return Cost((time.perf_counter() - start) / share, (cpu() - before) / share)


class Ahead:
    """The system's clock, moved on by a month for each pass, so that everything is due again."""

    def __init__(self) -> None:
        self._real = SystemClock()
        self._months = 0

    def now(self) -> float:
        return self._real.now() + 30 * 86_400.0 * self._months

    def random(self) -> float:
        return self._real.random()

    def move(self) -> None:
        self._months += 1


class Skep:
    """The worker's own poller, with a mirror of each repository."""

    def __init__(self, folder: Path, base: str, count: int) -> None:
        self._folder = folder
        self._clock = Ahead()
        self._helds = [Held(new_id("src", time.time()), n, "git", f"{base}org/r{n}.git", 1) for n in range(count)]

    async def start(self, repos: Path) -> None:
        settings = Settings(allow_networks=("127.0.0.0/8",), host_rate=1e6, host_concurrency=AT_ONCE)
        self._kind = GitKind(settings, self._folder, self._clock)
        self._db = await open_sqlite("sqlite:worker.db", data=self._folder, durability="full")
        self._store = Store(self._db, self._clock)
        await self._store.start()
        for n, held in enumerate(self._helds):
            shutil.copytree(repos / f"org/r{n}.git", folder_of(self._folder, held.source))
        await self._store.obey([Order(n, Hold(held)) for n, held in enumerate(self._helds)])
        self._poller = Poller(self._store, {"git": self._kind}, settings, self._clock)
        await self._poller.load()
        self._running = asyncio.create_task(self._poller.run())
        while len(await self._store.outcomes(0, len(self._helds))) < len(self._helds):
            await asyncio.sleep(0.1)

    async def look_at_all(self) -> None:
        self._clock.move()
        self._poller.kick()
        left = len(self._helds)
        while left > 0:
            await asyncio.sleep(0.01)
            left -= len(self._poller.looked())
        await self._store.flush()

    async def stop(self) -> None:
        self._running.cancel()
        await asyncio.wait([self._running])
        await self._kind.close()
        await self._db.close()


class Following:
    """The coordinator's own follower of a manifest, its catalogue on disk."""

    def __init__(self, folder: Path, base: str, files: str) -> None:
        self._settings = Settings(data=str(folder), allow_networks=("127.0.0.0/8",))
        self._folder = folder
        self._url = f"manifest:{files}manifest.js.gz#{base.rstrip('/')}"

    async def start(self, count: int) -> None:
        self._folder.mkdir()
        self._clock = Ahead()
        self._open = AsyncExitStack()
        rooms = await self._open.enter_async_context(open_rooms(self._settings, self._clock, "w" * 64))
        lists = rooms.core.lists
        await lists.add(SYSTEM, self._url)
        loop = next(loop for loop in rooms.loops if isinstance(getattr(loop, "__self__", None), Follower))
        self._step: Callable[[], Awaitable[None]] = loop.__self__.step  # type: ignore[attr-defined]
        self._db = lists._db
        await self._step()
        (listed,) = await lists.list(SYSTEM)
        if (listed.state, listed.entries) != ("current", count):
            raise SystemExit(f"the manifest could not be followed: {listed}")

    async def ask(self) -> None:
        self._clock.move()
        await self._step()

    async def read(self) -> None:
        async def forget(tx: Tx) -> None:
            await tx.rows("UPDATE list_file SET stamp = 'another'")

        await self._db.write(forget)
        await self.ask()

    async def stop(self) -> None:
        await self._open.aclose()


class Grok:
    def __init__(self, programs: Path, folder: Path, base: str, files: str) -> None:
        self._pull = [str(programs / "grok-pull"), "-c", str(folder / "grok.conf")]
        self._programs = programs
        self._folder = folder
        top = folder / "grok"
        top.mkdir()
        (folder / "grok.conf").write_text(
            f"[core]\ntoplevel = {top}\nmanifest = {top}/manifest.js.gz\nlog = {folder}/grok.log\n"
            f"[remote]\nsite = {base.rstrip('/')}\nmanifest = {files}manifest.js.gz\n[pull]\npull_threads = {AT_ONCE}\n"
        )

    async def start(self, count: int) -> None:
        """Its first pull brings everything."""
        manifest = ["-m", str(self._folder / "manifest.js.gz"), "-t", str(self._folder / "repos")]
        await run([str(self._programs / "grok-manifest"), *manifest])
        pulling = await asyncio.create_subprocess_exec(*self._pull, stdout=subprocess.DEVNULL)
        while self._have() < count:  # it need not end by itself then
            await asyncio.sleep(1)
        await asyncio.sleep(2)
        if pulling.returncode is None:
            pulling.terminate()
        await pulling.wait()

    def _have(self) -> int:
        try:
            with gzip.open(self._folder / "grok/manifest.js.gz") as file:
                return len(json.load(file))
        except (OSError, EOFError, ValueError):
            return 0

    async def pull(self) -> None:
        await run([*self._pull, "-n"])

    async def ask(self) -> None:
        await run(self._pull)


async def run(command: Sequence[str]) -> None:
    child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if await child.wait():
        raise SystemExit(f"{command[0]} ended with {child.returncode}")


async def fetch_some(mirrors: Sequence[Path], base: str) -> None:
    """`git fetch` by so many at once, as grokmirror would."""
    turns = iter(enumerate(mirrors))
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}

    async def hand() -> None:
        for n, mirror in turns:
            spec = ["fetch", "-q", "--prune", f"{base}org/r{n}.git", "+refs/heads/*:refs/heads/*"]
            child = await asyncio.create_subprocess_exec("git", "-C", str(mirror), *spec, env=env)
            await child.wait()

    await asyncio.gather(*(hand() for _ in range(AT_ONCE)))


@contextmanager
def upstream(folder: Path, count: int) -> Iterator[tuple[str, str]]:
    script = Path(__file__).with_name("upstream.py")
    command = [sys.executable, str(script), str(folder), str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout and server.stdin
        try:
            base, files = server.stdout.readline().split()
            yield base, files
        finally:
            server.stdin.close()


def programs_of(given: str, folder: Path) -> Path:
    """Where grokmirror is, or is put: it is a program of its own, with an environment of its own."""
    found = given or shutil.which("grok-pull")
    if found:
        return Path(found) if given else Path(found).parent
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    subprocess.run([str(folder / "venv/bin/pip"), "install", "-q", "grokmirror"], check=True)
    return folder / "venv/bin"


async def measure(folder: Path, count: int, rounds: int, grokmirror: str) -> dict[str, list[Cost]]:
    with upstream(folder, count) as (base, files):
        grok = Grok(programs_of(grokmirror, folder), folder, base, files)
        await grok.start(count)
        skep = Skep(folder / "skep", base, count)
        await skep.start(folder / "repos")
        sample = [folder / f"grok/org/r{n}.git" for n in range(min(SAMPLE, count))]
        following = Following(folder / "following", base, files)
        await following.start(count)
        passes = {
            "Skep, manifest": following.ask,
            "Skep, manifest read": following.read,
            "Skep, one look each": skep.look_at_all,
            "grok-pull": grok.ask,
            "grok-pull -n": grok.pull,
            "git fetch": lambda: fetch_some(sample, base),
        }
        costs: dict[str, list[Cost]] = {name: [] for name in passes}
        for _ in range(rounds):
            for name, one in passes.items():
                costs[name].append(await cost_of(one, len(sample) / count if name == "git fetch" else 1.0))
        await skep.stop()
        await following.stop()
    return costs


def report(count: int, costs: dict[str, list[Cost]]) -> None:
    rounds = len(costs["git fetch"])
    print(f"a pass over {count:,} repositories that have not changed; medians of {rounds}; ratios to Skep's three ways")
    ours = [name for name in costs if name.startswith("Skep")]
    for name, theirs in costs.items():
        wall, used = (statistics.median(cost[n] for cost in theirs) for n in (0, 1))
        ratios = [
            "/".join(
                f"{statistics.median(b[n] / a[n] for a, b in zip(costs[o], theirs, strict=True)):.1f}" for o in ours
            )
            for n in (0, 1)
        ]
        print(f"{name:20} {wall:9.3f} s  {ratios[0]:>18}   CPU {used:9.3f} s  {ratios[1]:>18}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2_000, help="repositories")
    parser.add_argument("--rounds", type=int, default=3, help="passes of each")
    parser.add_argument("--grokmirror", default="", help="folder of grok-pull; it is installed aside if not given")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report(args.count, uvloop.run(measure(Path(folder).resolve(), args.count, args.rounds, args.grokmirror)))


if __name__ == "__main__":
    main()
