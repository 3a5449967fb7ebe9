"""Producers and consumers against a whole running Skep."""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from skep.client import Client
from skep.testing.nats import running_nats
from skep.testing.server import free_port
from tests.house.running import RunningSkep

_NUMBERS = count()


@pytest.fixture(scope="session", params=["sqlite", "postgres", "nats"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSkep]:
    """One server on each log, for tests that do not disturb each other; members of groups are missed quickly."""
    folder = tmp_path_factory.mktemp(f"client-{request.param}")
    with ExitStack() as stack:
        settings: dict[str, Any] = {"member_seconds": 2.0, "message_limit": 50_000}
        if request.param == "postgres":
            settings["database"] = request.getfixturevalue("postgres_url")  # of this one, others make their own
        elif request.param == "nats":
            settings["log"] = stack.enter_context(running_nats(folder / "nats")).url
        yield stack.enter_context(RunningSkep(folder / "data", **settings))


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
