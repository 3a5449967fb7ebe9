from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.engines.db.base import Database
from skep.engines.open import find
from skep.testing.postgres import fresh_database


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
