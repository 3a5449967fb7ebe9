"""Spaces over the link beside a Redis list, in one run, in turns; medians and ratios.

    PYTHONPATH=. python bench/spaces/run.py [--rounds 5] [--clients 64] [--cycles 6400]

Each client puts a tuple, takes one and acknowledges it, one after the other: on disk before each is answered. Redis is
Debian's, with `appendfsync always`; its clients (redis-py for asyncio, a connection each) push and then pop, blocking.
A list has no acknowledgement: what a Redis client pops and does not finish is lost. All on this machine's cores.
"""

import argparse
import asyncio
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import redis.asyncio
import uvloop

from skep.base.clock import SystemClock
from skep.rpc.client import Peer
from skep.spaces.api import Acknowledge, Get, Got, Put, Typed

TOKEN = "b" * 64
TEMPLATE = ("job", Typed("int"))
Cycle = Callable[[int], Awaitable[None]]


@contextmanager
def process(command: list[str], ready: str) -> Iterator[None]:
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin and child.stdout
    try:
        while ready not in (line := child.stdout.readline()):
            if not line:
                raise SystemExit(f"{command[0]} did not start")
        yield
    finally:
        child.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.5)
        child.terminate()
        child.wait()
        child.stdout.close()


@contextmanager
def skep(folder: Path) -> Iterator[str]:
    socket = str(folder / "link.sock")
    script = str(Path(__file__).with_name("server.py"))
    with process([sys.executable, script, str(folder / "data"), socket, TOKEN], "ready"):
        yield f"unix:{socket}"


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    socket = str(folder / "redis.sock")
    options = {"port": "0", "unixsocket": socket, "dir": str(folder), "appendonly": "yes", "appendfsync": "always"}
    flags = [part for name, value in (options | {"save": ""}).items() for part in (f"--{name}", value)]
    with process(["redis-server", *flags], "eady to accept connections"):
        yield socket


@asynccontextmanager
async def peers(target: str, count: int) -> AsyncIterator[list[Peer]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                Peer(target, TOKEN, ("manager",), SystemClock(), member=f"man_{count}_{n}").running()
            )
            for n in range(count)
        ]


def over_the_link(attached: list[Peer]) -> Cycle:
    async def cycle(client: int) -> None:
        peer = attached[client % len(attached)]
        await peer.ask(Put("bench", ("job", client)))
        got = await peer.ask(Get("bench", TEMPLATE, f"{client}", wait=60.0))
        assert isinstance(got, Got)
        await peer.ask(Acknowledge("bench", got.taken.seq, got.taken.ticket))

    return cycle


def over_redis(connections: list[redis.asyncio.Redis]) -> Cycle:
    async def cycle(client: int) -> None:
        one = connections[client]
        await one.lpush("bench", f"job {client}")
        await one.brpop(["bench"], 60)

    return cycle


async def rate(cycle: Cycle, clients: int, cycles: int) -> float:
    async def one(client: int) -> None:
        for _ in range(cycles // clients):
            await cycle(client)

    began = time.perf_counter()
    await asyncio.gather(*(one(client) for client in range(clients)))
    return cycles / (time.perf_counter() - began)


async def main() -> None:
    parser = argparse.ArgumentParser()
    for name, value in (("rounds", 5), ("clients", 64), ("cycles", 6400)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name).resolve()
        with skep(folder) as target, redis_server(folder) as socket:
            connections = [redis.asyncio.Redis(unix_socket_path=socket) for _ in range(args.clients)]
            async with peers(target, 1) as one, peers(target, args.clients) as many:
                sides = {
                    "redis": over_redis(connections),
                    "clients that share a link": over_the_link(one),
                    "clients, each with its own link": over_the_link(many),
                }
                found: dict[str, list[float]] = {name: [] for name in sides}
                for number in range(args.rounds + 1):
                    for side, cycle in sides.items():
                        per_second = await rate(cycle, args.clients, args.cycles if number else args.clients)
                        found[side] += [per_second] if number else []
            for connection in connections:
                await connection.aclose()
    rival = statistics.median(found.pop("redis"))
    print("| put, get and acknowledge, per second | Skep | Redis list | ratio | wanted |\n|---|---|---|---|---|")
    for side, values in found.items():
        ours = statistics.median(values)
        wanted = "1.0" if "share" in side else ""
        print(f"| {args.clients} {side} | {ours:,.0f} | {rival:,.0f} | {ours / rival:.2f} | {wanted} |")


if __name__ == "__main__":
    uvloop.run(main())
