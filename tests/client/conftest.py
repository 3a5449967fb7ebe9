"""Producers and consumers against a whole running Skep."""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from skep.client import Client
from skep.testing.server import free_port
from tests.house.running import RunningSkep
from tests.support.nats import running_nats

_NUMBERS = count()


class Brokers:
    """One server on each log, started when it is wanted first. They stay: each file asks for all of them."""

    def __init__(self, stack: ExitStack, folders: pytest.TempPathFactory, database: str) -> None:
        self._stack = stack
        self._folders = folders
        self._database = database
        self._running: dict[str, RunningSkep] = {}

    def on(self, log: str) -> RunningSkep:
        if log not in self._running:
            folder = self._folders.mktemp(f"client-{log}")
            # (a worker is not missed because the machine held its breath, either)
            settings: dict[str, Any] = {"member_seconds": 15.0, "message_limit": 50_000, "beat_every": 10.0}
            if log == "postgres":
                settings["database"] = self._database  # of this one, others make their own
            elif log == "nats":
                nats = self._stack.enter_context(running_nats(folder / "nats"))
                settings["log"] = f"{nats.url}?patience=30"
            self._running[log] = self._stack.enter_context(RunningSkep(folder / "data", **settings))
        return self._running[log]


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory, postgres_url: str) -> Iterator[Brokers]:
    with ExitStack() as stack:
        yield Brokers(stack, tmp_path_factory, postgres_url)


@pytest.fixture(params=["sqlite", "postgres", "nats"])
def broker(request: pytest.FixtureRequest, brokers: Brokers) -> RunningSkep:
    """For tests that do not disturb each other; no member of a group is missed because the machine held its breath."""
    return brokers.on(request.param)


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[RunningSkep]:
    """A server that may be killed and comes back at the same address."""
    running = RunningSkep(tmp_path / "data", listen=f"127.0.0.1:{free_port()}")
    yield running
    running.stop()


@pytest.fixture
def client(broker: RunningSkep) -> Iterator[Client]:
    with Client(broker.url, broker.token) as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_NUMBERS)}"
