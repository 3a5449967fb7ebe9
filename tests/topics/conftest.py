import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from skep.processes.engines import find
from skep.storage.database import Database
from tests.support.nats import NatsServer, running_nats
from tests.support.postgres import fresh_database
from tests.topics.room import Room, room_on


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with running_nats(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres", "nats"])
async def room(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Room]:
    """On rows of each database, and on JetStream beside SQLite."""
    if request.param == "postgres":
        async with fresh_database(request.getfixturevalue("postgres_url")) as url:
            async for opened in _opened(url, "db:", tmp_path):
                yield opened
        return
    server = request.getfixturevalue("nats_server") if request.param == "nats" else None
    async for opened in _opened("sqlite:", server.url if server else "db:", tmp_path):
        yield opened
    if server:
        await server.empty()


@pytest.fixture
async def rows_room(database: Database, tmp_path: Path) -> Room:
    """Where the log is the database: messages can be given a time."""
    return await room_on(database, await find("log", "db:")("db:", db=database), tmp_path)


async def _opened(db_url: str, log_url: str, data: Path) -> AsyncIterator[Room]:
    db = await find("db", db_url)(db_url, data=data, durability="full")
    # a server that is there may take its time
    log = await find("log", log_url)(log_url, db=db, **({"patience": 30.0} if log_url != "db:" else {}))
    yield await room_on(db, log, data)
    await log.close()
    await db.close()


@pytest.fixture
def memory_room(tmp_path: Path) -> Iterator[tuple[asyncio.Runner, Room]]:
    """For hypothesis, which runs many examples in one test and knows no event loop."""

    async def open_room() -> Room:
        db = await find("db", "memory:")("memory:", data=tmp_path, durability="full")
        return await room_on(db, await find("log", "db:")("db:", db=db), tmp_path)

    with asyncio.Runner() as runner:
        room = runner.run(open_room())
        yield runner, room
        runner.run(room.db.close())
