"""A mirror of 200 MB through a tunnel, against the same `git fetch` from a local folder; memory behind a reader that
stalls; heartbeats beside bulk bytes on a link of 10 MB/s.

    PYTHONPATH=. python bench/fleet/tunnel.py [--megabytes 200] [--rounds 5]

The giver is another process. Both ways and the direct fetch take turns. The link of 10 MB/s is a network namespace
shaped by `tc` and needs root; without, that part is left out.
"""

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path

import uvloop

from skep.base.io import BLOCK, Stream
from skep.rpc import tunnel
from skep.rpc.server import listen
from skep.rpc.tunnel import Meeting, dial
from skep.sources.git.ls_refs import selection
from skep.sources.git.mirror import Mirror, Policy, Upstream, fetch_environment
from skep.sources.git.mirror_copy import Bounds, fetch_through, nothing_told
from skep.sources.git.process import give
from skep.sources.model import Failure

LARGEST = 1 << 40
SECONDS = 3_600.0
GIVER, TAKER = "wrk_giver", "wrk_taker"
BEAT = b"beat"
BEAT_EVERY = 0.1
SHAPED_SECONDS = 15.0


def history(folder: Path, size: int) -> None:
    """Commits of files made of real lines of Python, each line with words of its own, so that it packs as code does."""
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", folder], check=True)
    sources = sorted(Path(os.__file__).parent.glob("*.py"))
    lines = [line for path in sources for line in path.read_bytes().splitlines() if len(line) > 10]
    dice = random.Random(7)
    child = subprocess.Popen(["git", "-C", folder, "fast-import", "--quiet"], stdin=subprocess.PIPE)
    assert child.stdin
    commit = 0
    while commit % 50 or sum(pack.stat().st_size for pack in (folder / "objects/pack").glob("*")) < size:
        child.stdin.write(b"commit refs/heads/main\ncommitter n <n@x> %d +0000\ndata 1\nm\n" % (1_600_000_000 + commit))
        for _ in range(5):
            text = b"\n".join(b"%s  # %x" % (dice.choice(lines), dice.getrandbits(64)) for _ in range(500))
            path = b"pkg%d/mod%d.py" % (dice.randrange(50), dice.randrange(100))
            child.stdin.write(b"M 100644 inline %s\ndata %d\n%s\n" % (path, len(text), text))
        commit += 1
    child.stdin.close()
    child.wait()
    subprocess.run(["git", "-C", folder, "pack-refs", "--all"], check=True)


# the giver's process


async def giver(what: str, address: str) -> None:
    """Tickets come as lines; a folder is given by git, `noise` is bytes for ever, `beats` is what beats beside it."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks = set()
    while line := (await reader.readline()).decode().split():
        tasks.add(asyncio.create_task(_give(line[1] if line[1:] else what, address, line[0])))
    for task in tasks:
        task.cancel()


async def _give(what: str, address: str, ticket: str) -> None:
    async with dial(address, ticket, GIVER) as stream:
        if what == "beats":
            while True:
                await stream.write(BEAT)
                await asyncio.sleep(BEAT_EVERY)
        if what != "noise":
            await give(Path(what), stream)
        noise = os.urandom(BLOCK)
        while what == "noise":
            await stream.write(noise)


class Giver:
    def __init__(self, what: str, address: str, *before: str) -> None:
        args = [*before, sys.executable, __file__, "--give", what, "--address", address]
        self._child = subprocess.Popen(args, stdin=subprocess.PIPE, text=True)

    async def ask(self, ticket: str, what: str = "") -> None:
        assert self._child.stdin
        self._child.stdin.write(f"{ticket} {what}\n")
        self._child.stdin.flush()

    @property
    def memory(self) -> float:
        return memory(self._child.pid)

    def stop(self) -> None:
        self._child.kill()
        self._child.wait()


def memory(pid: int) -> float:
    """Megabytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


@asynccontextmanager
async def meeting_point(host: str = "127.0.0.1") -> AsyncIterator[tuple[Meeting, str]]:
    meeting = Meeting()
    server, address = await listen({tunnel.METHOD: meeting.carry}, f"{host}:0")
    try:
        yield meeting, address
    finally:
        await server.stop(0)


# speed


async def speed(repository: Path, scratch: Path, rounds: int) -> None:
    async with meeting_point() as (meeting, address):
        there = Giver(str(repository), address)

        @asynccontextmanager
        async def relayed() -> AsyncIterator[Stream]:
            ticket = meeting.issue(GIVER, TAKER)
            await there.ask(ticket.give)
            async with dial(address, ticket.take, TAKER) as stream:
                yield stream

        ways: dict[str, Callable[[Path], Awaitable[None]]] = {
            "direct": lambda into: direct(repository, into),
            "tunnel": lambda into: through(into, lambda: meeting.opened(GIVER, there.ask)),
            "relayed": lambda into: through(into, relayed),
        }
        took: dict[str, list[float]] = {name: [] for name in ways}
        for n in range(rounds):
            for name, way in ways.items():
                start = time.perf_counter()
                await way(scratch / f"{name}-{n}.git")
                took[name].append(time.perf_counter() - start)
                subprocess.run(["rm", "-r", scratch / f"{name}-{n}.git"], check=True)
        there.stop()
    size = sum(pack.stat().st_size for pack in (repository / "objects/pack").glob("*.pack"))
    medians = {name: statistics.median(times) for name, times in took.items()}
    print(f"a mirror of {size / 1e6:.0f} MB, medians of {rounds} rounds")
    for name, median in medians.items():
        print(f"  {name:8} {median:6.2f} s   {medians['direct'] / median:.2f}x of direct")


async def direct(repository: Path, into: Path) -> None:
    env = fetch_environment("file", (), {})
    found = subprocess.run(["git", "-C", repository, "rev-parse", "main"], check=True, capture_output=True, text=True)
    announced = {"refs/heads/main": found.stdout.strip(), "HEAD": "refs/heads/main"}
    policy = Policy(selection(("refs/*",)), "follow", "", keep=0, largest=LARGEST, huge=LARGEST, seconds=SECONDS)
    mirror = Mirror(into)
    await mirror.create("file", announced)
    url = f"file://{repository}"
    checked(await mirror.fetch(Upstream("file", url, env, announced), policy, lambda _: None, 1.0))


async def through(into: Path, opened: Callable[[], AbstractAsyncContextManager[Stream]]) -> None:
    checked(await fetch_through(into, "tunnel", opened, nothing_told, Bounds(SECONDS, LARGEST), lambda _: None, 1.0))


def checked(found: object) -> None:
    if isinstance(found, Failure):
        raise SystemExit(found.message)


# memory


async def stalled() -> None:
    async with meeting_point() as (meeting, address):
        there = Giver("noise", address)
        async with meeting.opened(GIVER, there.ask) as stream:
            await stream.read()
            here = memory(os.getpid()), there.memory
            await asyncio.sleep(5)
            grown = memory(os.getpid()) - here[0], there.memory - here[1]
        there.stop()
    print(f"a reader that stalls for 5 s: the taker grows by {grown[0]:.1f} MB, the giver by {grown[1]:.1f} MB")


# beats


@contextmanager
def shaped() -> Iterator[tuple[str, list[str]]]:
    """An address of this machine, and what runs a program at the other end of 10 MB/s."""
    name = f"skep-{os.getpid()}"
    commands = [
        f"ip netns add {name}",
        "ip link add skep-a type veth peer name skep-b",
        f"ip link set skep-b netns {name}",
        "ip addr add 10.199.7.1/24 dev skep-a",
        "ip link set skep-a up",
        f"ip -n {name} addr add 10.199.7.2/24 dev skep-b",
        f"ip -n {name} link set skep-b up",
        f"ip netns exec {name} tc qdisc add dev skep-b root tbf rate 80mbit burst 64kb latency 50ms",
    ]
    try:
        for command in commands:
            subprocess.run(command.split(), check=True)
        yield "10.199.7.1", ["ip", "netns", "exec", name]
    finally:
        subprocess.run(["ip", "link", "del", "skep-a"], check=False)
        subprocess.run(["ip", "netns", "del", name], check=False)


async def beats() -> None:
    """Each on a connection of its own, as the link and its tunnels are."""
    with shaped() as (host, before):
        async with meeting_point(host) as (meeting, address):
            there = Giver("noise", address, *before)
            async with meeting.opened(GIVER, lambda half: there.ask(half, "beats")) as stream:
                alone = await gaps(stream)
                async with meeting.opened(GIVER, there.ask) as bulk:
                    counting = asyncio.create_task(count(bulk))
                    await asyncio.sleep(1)
                    beside = await gaps(stream)
                    counting.cancel()
                    rate = (await counting) / (SHAPED_SECONDS + 1) / 1e6
            there.stop()
    print(f"beats over 10 MB/s, beside bulk bytes of {rate:.1f} MB/s: what comes later than it should")
    for name, late in (("alone", alone), ("beside", beside)):
        print(f"  {name:8} median {statistics.median(late) * 1e3:.1f} ms, at most {max(late) * 1e3:.1f} ms")


async def gaps(stream: Stream) -> list[float]:
    late, before, end = [], 0.0, time.perf_counter() + SHAPED_SECONDS
    while (now := time.perf_counter()) < end:
        await stream.read()
        now, last = time.perf_counter(), before
        before = now
        if last:
            late.append(max(0.0, now - last - BEAT_EVERY))
    return late


async def count(stream: Stream) -> int:
    total = 0
    try:
        while data := await stream.read():
            total += len(data)
    except asyncio.CancelledError:
        pass
    return total


async def main(megabytes: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        repository = Path(scratch) / "repository.git"
        history(repository, megabytes * 1_000_000)
        await speed(repository, Path(scratch), rounds)
    await stalled()
    if os.geteuid() == 0:
        await beats()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--give", default="")
    parser.add_argument("--address", default="")
    given = parser.parse_args()
    uvloop.run(giver(given.give, given.address) if given.give else main(given.megabytes, given.rounds))
