from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.tasks.house import Engine, MovableClock, coordinator
from tests.tasks.rules_house import RulesHouse, rules_house


@pytest.fixture
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short path: sockets want that."""
    return tmp_path_factory.mktemp("t")


@pytest.fixture
async def engine(place: str, data: Path) -> AsyncIterator[Engine]:
    async with coordinator(data, place, MovableClock()) as engine:
        yield engine


@pytest.fixture
async def house(place: str, tmp_path: Path) -> AsyncIterator[RulesHouse]:
    async with rules_house(tmp_path, place) as opened:
        yield opened
