from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.house.running import RunningSkep
from tests.support.postgres import fresh_database
from tests.tasks.house import Engine, MovableClock, coordinator


@pytest.fixture
def skep(tmp_path: Path) -> Iterator[RunningSkep]:
    allowed: dict[str, Any] = {"task_commands": ["*"], "task_packages": ["*"], "task_variables": ["PYTHONPATH"]}
    with RunningSkep(tmp_path / "data", task_network=True, task_lease=10.0, poll_min=1.0, **allowed) as running:
        yield running


@pytest.fixture(params=["sqlite", "postgres"])
async def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Engine]:
    folder = tmp_path_factory.mktemp("b")
    if request.param == "sqlite":
        async with coordinator(folder, "sqlite:", MovableClock()) as one:
            yield one
        return
    async with (
        fresh_database(request.getfixturevalue("postgres_url")) as url,
        coordinator(folder, url, MovableClock()) as one,
    ):
        yield one
