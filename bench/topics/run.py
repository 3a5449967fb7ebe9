"""Topics beside what else there is, in one run, in turns; medians and ratios.

    PYTHONPATH=. python bench/topics/run.py [--rounds 3] [--messages 10000] [--only wire,redis,postgres,route,newest]

Skep is a real `skep up` as it comes (SQLite, FULL durability). Where it says so it is asked by its own library: one
AsyncProducer that all producers share, as those of nats-py share one client; else by a client that costs little.
nats-py is on Debian's nats-server with a stream as JetStream makes it, which answers before the message is on disk.
All on this machine's cores, shared by both ends. Redis keeps an append-only file, synced before each answer or once a
second. FastAPI is installed by name for the run.
"""

import argparse
import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec
import uvloop

from skep.base.clock import SystemClock
from skep.client import AsyncClient, AsyncProducer
from skep.client.topics import Outgoing
from skep.storage.sqlite import open_sqlite
from skep.storage.topic_log import open_rows
from skep.topics.api import Draft, Part
from tests.support.nats import running_nats
from tests.support.postgres import fresh_database, running_postgres

sys.path.append(str(Path(__file__).parents[2]))
from bench.topics.load import asked, flood, request
from bench.topics.rivals import Nats, at_once, seed_publish
from bench.topics.servers import Server, bare, fastapi, skep
from bench.topics.streams import Streams, running_redis

KILOBYTE = "x" * 1022  # and its quotes
BATCH = 100
MESSAGES = "/api/v1/topics/bench/messages"

Measure = Callable[[], Awaitable[float]]


async def in_turns(rounds: int, sides: Mapping[str, Measure]) -> dict[str, float]:
    """The median of each, none of them always in the warm place."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, measure in sides.items():
            found[name].append(await measure())
    return {name: statistics.median(values) for name, values in found.items()}


def row(what: str, ours: float, theirs: float, wanted: str = "") -> None:
    print(f"| {what} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.2f} | {wanted} |", flush=True)


def head(title: str, theirs: str) -> None:
    print(f"\n{title}\n\n| | Skep | {theirs} | ratio | wanted |\n|---|---|---|---|---|")


def one(server: Server) -> bytes:
    return request(server.url, server.token, "POST", MESSAGES, msgspec.json.encode({"body": KILOBYTE}))


def hundred(server: Server) -> bytes:
    body = msgspec.json.encode({"messages": [{"body": KILOBYTE}] * BATCH})
    return request(server.url, server.token, "POST", MESSAGES, body)


async def consume(server: Server, size: int, total: int) -> float:
    """One reader from the beginning on, every message decoded."""
    got = 0

    def turn(answer: bytes) -> bytes | None:
        nonlocal got
        if answer:
            got += len(msgspec.json.decode(answer)["messages"])
        path = f"{MESSAGES}?offset={got}&max={size}"
        return request(server.url, server.token, "GET", path) if got < total else None

    took = await asked(server.url, turn)
    return got / took


async def wire(folder: Path, rounds: int, total: int) -> None:
    head("Embedded, FULL durability, over the wire, messages of 1 KB, messages a second", "nats-py, JetStream")
    with skep(folder / "embedded") as server, running_nats(folder / "nats") as stream:
        server.post("/api/v1/topics", {"name": "bench"})
        async with Nats(stream.url) as theirs:
            await publishing(server, theirs, rounds, total)
            for size in (BATCH, 10 * BATCH):
                sides = {
                    "skep": partial(consume, server, size, 4 * total),
                    "nats": partial(theirs.consume, size=size, total=4 * total),
                }
                found = await in_turns(rounds, sides)
                row(f"consuming in batches of {size}", found["skep"], found["nats"], ">= 3")


async def publishing(server: Server, theirs: Nats, rounds: int, total: int) -> None:
    body = msgspec.json.encode(KILOBYTE)
    async with AsyncProducer(None, server.url, token=server.token) as producer:

        async def send() -> None:
            await producer.send("bench", KILOBYTE)

        for producers, wanted in ((256, ">= 1.5"), (16, ">= 0.7")):
            sides: dict[str, Measure] = {
                "shared": partial(at_once, producers, send, total),
                "nats": partial(theirs.publish, body, producers=producers, total=total),
                "own": partial(flood, server.url, one(server), producers=producers, total=total // 2),
            }
            found = await in_turns(rounds, sides)
            row(f"{producers} at once, send of one AsyncProducer", found["shared"], found["nats"], wanted)
            row(f"{producers} at once, a connection and requests each", found["own"], found["nats"])

    await batches(server, theirs, rounds, 4 * total)


async def batches(server: Server, theirs: Nats, rounds: int, total: int) -> None:
    async with AsyncClient(server.url, server.token) as client:

        async def publish() -> None:
            await client.topics.publish_batch("bench", [Outgoing(KILOBYTE) for _ in range(BATCH)])

        async def library() -> float:
            return BATCH * await at_once(4, publish, total // BATCH)

        async def bare_client() -> float:
            return BATCH * await flood(server.url, hundred(server), producers=4, total=total // BATCH)

        body = msgspec.json.encode(KILOBYTE)
        sides: dict[str, Measure] = {
            "library": library,
            "nats": partial(theirs.publish_batches, body, size=BATCH, producers=4, total=total),
            "bare": bare_client,
        }
        found = await in_turns(rounds, sides)
    row(f"4 producers, publish_batch of {BATCH}", found["library"], found["nats"], ">= 1.5")
    row(f"4 producers, batches of {BATCH} by a client that costs little", found["bare"], found["nats"])


async def redis(folder: Path, rounds: int, total: int) -> None:
    body = msgspec.json.encode(KILOBYTE)
    for sync in ("always", "everysec"):
        head(f"Redis Streams, appendfsync {sync}, messages of 1 KB, messages a second", "redis-py")
        with skep(folder / f"beside-{sync}") as server, running_redis(folder / f"redis-{sync}", sync) as port:
            server.post("/api/v1/topics", {"name": "bench"})
            producer = AsyncProducer(["bench"], server.url, token=server.token)
            async with Streams(port, connections=256) as theirs, producer:
                shared: dict[str, Measure] = {
                    "skep": partial(at_once, 256, partial(producer.send, "bench", KILOBYTE), total),
                    "own": partial(flood, server.url, one(server), producers=256, total=total),
                    "redis": partial(theirs.publish, body, producers=256, total=total),
                }
                found = await in_turns(rounds, shared)
                row("256 producers share a client", found["skep"], found["redis"])
                row("256 producers, each its own connection and requests", found["own"], found["redis"])
                batches: dict[str, Measure] = {
                    "skep": partial(flood, server.url, hundred(server), producers=4, total=4 * total // BATCH),
                    "redis": partial(theirs.publish_batches, body, size=BATCH, producers=4, total=4 * total),
                }
                found = await in_turns(rounds, batches)
                row(f"4 producers, batches of {BATCH}", BATCH * found["skep"], found["redis"])
                reading: dict[str, Measure] = {
                    "skep": partial(consume, server, BATCH, 4 * total),
                    "redis": partial(theirs.consume, size=BATCH, total=4 * total),
                }
                found = await in_turns(rounds, reading)
                row(f"consuming in batches of {BATCH}", found["skep"], found["redis"])


async def postgres(folder: Path, rounds: int, total: int) -> None:
    head("PostgreSQL, fsync on, 256 producers, messages of 1 KB, messages a second", "count and insert")
    with running_postgres(fsync=True) as url:
        async with fresh_database(url) as ours, fresh_database(url) as theirs:
            with skep(folder / "large", database=ours) as server:
                server.post("/api/v1/topics", {"name": "bench"})
                counting = partial(seed_publish, theirs, KILOBYTE, producers=256, total=total // 10, stored=total)
                found = await in_turns(
                    rounds,
                    {
                        "skep": partial(flood, server.url, one(server), producers=256, total=total),
                        "seed": partial(counting, locked=True),
                        "unlocked": partial(counting, locked=False),
                    },
                )
            row(f"as the seed did, {total} stored", found["skep"], found["seed"], ">= 10")
            row("without its semaphore (indexes repeat)", found["skep"], found["unlocked"])


async def route(folder: Path, rounds: int, total: int) -> None:
    async def per_cpu_second(server: Server) -> float:
        before = server.cpu()
        await flood(server.url, one(server), producers=32, total=total)
        return total / (server.cpu() - before)

    head("The publish route without storing, requests for each second of the server's CPU", "FastAPI")
    with bare(folder / "bare") as ours, fastapi(folder) as theirs:
        ours.post("/api/v1/topics", {"name": "bench"})
        found = await in_turns(rounds, {"skep": partial(per_cpu_second, ours), "fast": partial(per_cpu_second, theirs)})
    row("publish 1 KB", found["skep"], found["fast"], ">= 3")


async def newest(folder: Path) -> None:
    print("\nReading the newest message of a topic, microseconds (median of 500)\n")
    print("| messages | bounds and read |\n|---|---|")
    db = await open_sqlite("sqlite:", data=folder / "long", durability="full")
    log = await open_rows("db:", db=db)
    part, clock = Part("bench"), SystemClock()
    drafts = [Draft(b"x" * 100)] * 10_000
    for wanted in (10_000, 100_000, 1_000_000, 10_000_000):
        while (await log.bounds(part))[1] < wanted:
            await log.append(part, drafts)
        took = []
        for _ in range(500):
            began = time.perf_counter()
            _, end = await log.bounds(part)
            (message,) = await log.read(part, end - 1, 1)
            took.append(time.perf_counter() - began)
            assert message.offset == wanted - 1
            assert message.at <= clock.now()
        print(f"| {wanted:,} | {statistics.median(took) * 1e6:.0f} |", flush=True)
    await db.close()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--only", default="wire,redis,postgres,route,newest")
    given = parser.parse_args()
    only = given.only.split(",")
    folder = Path(tempfile.mkdtemp(prefix="bench-topics-"))
    try:
        for part in (wire, redis, postgres, route):
            if part.__name__ in only:
                await part(folder, given.rounds, given.messages)
        if "newest" in only:
            await newest(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
