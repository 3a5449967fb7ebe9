from collections.abc import AsyncIterator
from contextlib import nullcontext

import pytest

from tests.support.postgres import fresh_database
from tests.tasks.house import Engine, MovableClock, coordinator


@pytest.fixture(params=["sqlite", "postgres"])
async def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    """A coordinator on each database."""
    lite = request.param == "sqlite"
    place = nullcontext("sqlite:") if lite else fresh_database(request.getfixturevalue("postgres_url"))
    async with (
        place as url,
        coordinator(tmp_path_factory.mktemp("r"), url, MovableClock(), allow_networks=("127.0.0.0/8",)) as engine,
    ):
        yield engine
