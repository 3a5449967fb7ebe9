"""The room of DataONE over each database."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from skep.dataone.formats import Formats
from skep.dataone.store import Store
from skep.dataone.testing import MemberNode
from skep.fleet.members import Fleet
from skep.processes.engines import find
from skep.sources.service import Sources
from skep.storage.blobs import FolderBlobs
from skep.storage.database import Database
from skep.storage.topic_log import open_rows
from skep.topics.service import Topics
from tests.dataone.cn_house import Served, served
from tests.dataone.farm import CN, Farm
from tests.dataone.library import Library, library_of
from tests.rooms.house import MovedClock


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
async def topics(database: Database, clock: MovedClock) -> Topics:
    found = Topics(database, await open_rows("db:", db=database), clock, 1_000_000)
    await found.start()
    return found


@pytest.fixture
async def store(database: Database, clock: MovedClock, topics: Topics, tmp_path: Path) -> Store:
    sources = Sources(database, clock, Fleet(database, clock, token="t", beat_every=5.0), {})
    found = Store(database, clock, FolderBlobs(tmp_path / "blobs"), topics, Formats(), CN)
    for room in (sources, found):
        await room.start()
    return found


@pytest.fixture
async def farm(database: Database, tmp_path: Path) -> AsyncIterator[Farm]:
    found = await Farm(database, tmp_path).start()
    yield found
    await found.close()


@pytest.fixture
async def library(store: Store, tmp_path: Path) -> AsyncIterator[Library]:
    async with library_of(store, tmp_path) as found:
        yield found


@pytest.fixture
async def cn(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "cn") as running:
        yield running


@pytest.fixture
def node() -> Iterator[MemberNode]:
    with MemberNode() as running:
        yield running


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[Database]:
    db = await find("db", "sqlite:")("sqlite:", data=tmp_path, durability="full")
    yield db
    await db.close()
