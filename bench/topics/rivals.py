"""What Skep is measured beside: nats-py on JetStream as it comes, and counting and inserting as the seed did."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import asyncpg
import nats
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig


async def at_once(workers: int, work: Callable[[], Coroutine[Any, Any, object]], total: int) -> float:
    """`work` done `total` times by so many at once; how many a second."""
    turns = iter(range(total))

    async def worker() -> None:
        for _ in turns:
            await work()

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(workers)))
    return total / (time.perf_counter() - began)


class Nats:
    """One connection, as a program would have it; the stream as JetStream makes it."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self) -> "Nats":
        self._client = await nats.connect(self._url)
        self._js: JetStreamContext = self._client.jetstream(publish_async_max_pending=4000)
        await self._js.add_stream(name="bench", subjects=["bench.>"])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._js.delete_stream("bench")
        await self._client.close()

    async def publish(self, body: bytes, *, producers: int, total: int) -> float:
        async def work() -> None:
            await self._js.publish("bench.one", body)

        return await at_once(producers, work, total)

    async def publish_batches(self, body: bytes, *, size: int, producers: int, total: int) -> float:
        """It has no batches: as many are under way at once, and all are waited for."""

        async def work() -> None:
            await asyncio.gather(*[await self._js.publish_async("bench.one", body) for _ in range(size)])

        return size * await at_once(producers, work, total // size)

    async def consume(self, *, size: int, total: int) -> float:
        """Without acknowledgements, which cost more."""
        config = ConsumerConfig(ack_policy=AckPolicy.NONE)
        reader = await self._js.pull_subscribe("bench.one", stream="bench", config=config)
        began, got = time.perf_counter(), 0
        while got < total:
            got += len(await reader.fetch(size, timeout=10))
        took = time.perf_counter() - began
        await reader.unsubscribe()
        return got / took


async def seed_publish(url: str, body: str, *, producers: int, total: int, stored: int, locked: bool) -> float:
    """A message's index is the count of those before it; the seed's program kept producers apart by a semaphore."""
    pool = await asyncpg.create_pool(url, min_size=10, max_size=10)
    try:
        await pool.execute(
            """DROP TABLE IF EXISTS queue;
               CREATE TABLE queue (id SERIAL PRIMARY KEY, topic INT, message TEXT, message_index INT);
               CREATE INDEX queue_topic ON queue (topic)"""
        )
        fill = "INSERT INTO queue (topic, message, message_index) SELECT 1, $1, n FROM generate_series(1, $2) n"
        await pool.execute(fill, body, stored)
        apart = asyncio.Semaphore(1 if locked else producers)

        async def work() -> None:
            async with apart, pool.acquire() as connection:
                before = await connection.fetchval("SELECT count(*) FROM queue WHERE topic = $1", 1)
                await connection.execute(
                    "INSERT INTO queue (topic, message, message_index) VALUES ($1, $2, $3)", 1, body, before
                )

        return await at_once(producers, work, total)
    finally:
        await pool.close()
