"""The room of spaces over each database."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.access.tokens import Access
from skep.spaces.service import Spaces
from skep.storage.database import Database
from tests.rooms.house import MovedClock


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
async def spaces(database: Database, clock: MovedClock, tmp_path: Path) -> AsyncIterator[Spaces]:
    await Access(database, clock, tmp_path, open_read=True).start()
    room = Spaces(database, clock)
    await room.start()
    yield room
    await room.close()
