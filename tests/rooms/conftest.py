"""The rooms of a serving process over each database, without link and worker."""

from pathlib import Path

import pytest

from skep.access.tokens import Access
from skep.config.settings import Settings
from skep.fleet.members import Fleet
from skep.sources.git.source_type import GitAddresses
from skep.sources.report_handler import Intake
from skep.sources.service import Sources
from skep.storage.database import Database
from skep.storage.topic_log import open_rows
from skep.topics.service import Topics
from tests.rooms.house import WORKER_TOKEN, House, MovedClock


@pytest.fixture
async def house(database: Database, tmp_path: Path) -> House:
    clock = MovedClock()
    log = await open_rows("db:", db=database)
    access = Access(database, clock, tmp_path, open_read=True)
    fleet = Fleet(database, clock, token=WORKER_TOKEN, beat_every=5.0)
    topics = Topics(database, log, clock, 1_000_000)
    sources = Sources(database, clock, fleet, {"git": GitAddresses(Settings())})
    for room in (access, fleet, topics, sources):
        await room.start()
    return House(database, clock, log, access, fleet, topics, sources, Intake(database, topics))
