from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from skep.processes.engines import find
from skep.storage.database import Database
from tests.support.nats import NatsServer, running_nats
from tests.support.postgres import fresh_database


@pytest.fixture(params=["sqlite", "memory", "postgres"])
async def db(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """Every implementation of the Database face."""
    if request.param != "postgres":
        opened = await find("db", request.param + ":")(request.param + ":", data=tmp_path, durability="full")
        yield opened
        await opened.close()
        return
    async with fresh_database(request.getfixturevalue("postgres_url")) as url:
        opened = await find("db", url)(url, data=tmp_path, durability="full")
        yield opened
        await opened.close()


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with running_nats(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
async def nats(nats_server: NatsServer) -> AsyncIterator[NatsServer]:
    """The server of this session, without the streams of other tests."""
    yield nats_server
    await nats_server.empty()
