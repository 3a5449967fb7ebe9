from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.tasks.rules_house import RulesHouse, chosen_database, rules_house


@pytest.fixture(params=["sqlite", "postgres"])
async def rules_database(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    async with chosen_database(request) as url:
        yield url


@pytest.fixture
async def house(rules_database: str, tmp_path: Path) -> AsyncIterator[RulesHouse]:
    async with rules_house(tmp_path, rules_database) as opened:
        yield opened
