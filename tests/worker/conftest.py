import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop

from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.processes.worker import Worker
from skep.rpc.server import LinkServer
from skep.sources.git.source_type import GitKind
from tests.support.forge import Forge
from tests.worker.desk import RecordingDesk

SETTINGS = Settings(
    roles=("worker",),
    allow_networks=("127.0.0.0/8",),
    allow_local=True,
    poll_min=0.05,
    poll_max=0.2,
    beat_every=0.2,
    index_processes=1,
)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """As the role runs it."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def forge(tmp_path: Path) -> AsyncIterator[Forge]:
    async with Forge(tmp_path / "forge") as forge:
        yield forge


@pytest.fixture
async def desk() -> RecordingDesk:
    return RecordingDesk()


@pytest.fixture
async def server(desk: RecordingDesk) -> LinkServer:
    return LinkServer(desk, beat_every=0.2)


@pytest.fixture
async def link(server: LinkServer, tmp_path: Path) -> AsyncIterator[str]:
    yield await server.start(f"unix:{tmp_path / 'run' / 'link'}")
    await server.stop()


class Running:
    """A worker that can be stopped and started again on the same data."""

    def __init__(self, data: Path, link: str) -> None:
        self.data = data
        self._link = link
        self._task: asyncio.Task[None] | None = None

    def start(self, settings: Settings = SETTINGS) -> None:
        clock = SystemClock()
        kinds = {"git": GitKind(settings, self.data, clock)}
        self._task = asyncio.create_task(Worker(settings, self.data, self._link, "token", clock, kinds).run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None


@pytest.fixture
async def worker(tmp_path: Path, link: str) -> AsyncIterator[Running]:
    running = Running(tmp_path / "data", link)
    running.start()
    yield running
    await running.stop()
