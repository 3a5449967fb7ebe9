"""Producers and consumers against a whole running Skep."""

import socket
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from skep.client import Client
from tests.house.running import RunningSkep

_NUMBERS = count()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSkep]:
    """One server for tests that do not disturb each other; members of groups are missed quickly."""
    running = RunningSkep(tmp_path_factory.mktemp("client-skep") / "data", member_seconds=2.0, message_limit=50_000)
    yield running
    running.stop()


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
