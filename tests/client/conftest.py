"""Producers and consumers against a whole running Skep."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from skep.client import Client
from skep.testing.nats import running_nats
from skep.testing.postgres import fresh_database
from tests.house.running import RunningSkep

_NUMBERS = count()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session", params=["sqlite", "postgres", "nats"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSkep]:
    """One server on each log, for tests that do not disturb each other; members of groups are missed quickly."""
    folder = tmp_path_factory.mktemp(f"client-{request.param}")
    with ExitStack() as stack:
        settings: dict[str, Any] = {"member_seconds": 2.0, "message_limit": 50_000}
        if request.param == "postgres":
            settings["database"] = stack.enter_context(own_database(request.getfixturevalue("postgres_url")))
        elif request.param == "nats":
            settings["log"] = stack.enter_context(running_nats(folder / "nats")).url
        yield stack.enter_context(RunningSkep(folder / "data", **settings))


@contextmanager
def own_database(server: str) -> Iterator[str]:
    with asyncio.Runner() as runner:
        database = fresh_database(server)
        yield runner.run(_entered(database))
        runner.run(_left(database))


async def _entered(database: AbstractAsyncContextManager[str]) -> str:
    return await database.__aenter__()


async def _left(database: AbstractAsyncContextManager[str]) -> None:
    await database.__aexit__(None, None, None)


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
