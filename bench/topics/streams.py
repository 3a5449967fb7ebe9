"""Redis Streams, asked as a Python program asks it: redis-py, a connection for each that waits."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from redis.asyncio import BlockingConnectionPool, Redis

from bench.topics.rivals import at_once

#: when the append-only file is synced: before each answer, or once a second
Sync = Literal["always", "everysec"]
_STREAM = "bench"


@contextmanager
def running_redis(folder: Path, sync: Sync) -> Iterator[int]:
    """Debian's redis-server with its own folder on a free loopback port, which is given."""
    binary = shutil.which("redis-server")
    if binary is None:
        raise RuntimeError("this needs a Redis server: apt-get install redis-server")
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    options = {"port": str(port), "bind": "127.0.0.1", "dir": str(folder), "save": "", "appendonly": "yes"}
    command = [binary, *(word for name, value in options.items() for word in (f"--{name}", value))]
    log = folder / "redis.log"
    with log.open("wb") as out:
        process = subprocess.Popen([*command, "--appendfsync", sync], stdout=out, stderr=out)
    try:
        until = time.monotonic() + 30
        while "Ready to accept connections" not in log.read_text():
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"redis-server did not start: {log.read_text()}")
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(30)


class Streams:
    def __init__(self, port: int, connections: int) -> None:
        pool = BlockingConnectionPool(host="127.0.0.1", port=port, max_connections=connections, timeout=60)
        self._redis = Redis.from_pool(pool)

    async def __aenter__(self) -> "Streams":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._redis.aclose()

    async def publish(self, body: bytes, *, producers: int, total: int) -> float:
        async def work() -> None:
            await self._redis.xadd(_STREAM, {"body": body})

        return await at_once(producers, work, total)

    async def publish_batches(self, body: bytes, *, size: int, producers: int, total: int) -> float:
        async def work() -> None:
            batch = self._redis.pipeline(transaction=True)
            for _ in range(size):
                batch.xadd(_STREAM, {"body": body})
            await batch.execute()

        return size * await at_once(producers, work, total // size)

    async def consume(self, *, size: int, total: int) -> float:
        began, got, last = time.perf_counter(), 0, "0"
        while got < total:
            answer: Any = await self._redis.xread({_STREAM: last}, count=size)
            ((_, found),) = answer
            got, last = got + len(found), found[-1][0]
        return got / (time.perf_counter() - began)
