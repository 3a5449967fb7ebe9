import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from skep.base.clock import SystemClock
from skep.rpc.client import LinkClient
from skep.rpc.server import LinkServer
from tests.link.ends import MemoryDesk, MemoryOutpost

Attach = Callable[[MemoryOutpost], LinkClient]


@pytest.fixture
def target(tmp_path: Path) -> str:
    return f"unix:{tmp_path / 'run' / 'link.sock'}"


@pytest.fixture
async def desk() -> MemoryDesk:
    return MemoryDesk()


@pytest.fixture
async def server(desk: MemoryDesk, target: str) -> AsyncIterator[LinkServer]:
    server = LinkServer(desk, beat_every=0.1)
    await server.start(target)
    yield server
    await server.stop()


@pytest.fixture
async def attach(target: str) -> AsyncIterator[Attach]:
    """Runs clients until the end of the test."""
    tasks: list[asyncio.Task[None]] = []

    def start(outpost: MemoryOutpost) -> LinkClient:
        client = LinkClient(outpost, target, SystemClock())
        client.task = asyncio.create_task(client.run())  # type: ignore[attr-defined]
        tasks.append(client.task)  # type: ignore[attr-defined]
        return client

    yield start
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task
