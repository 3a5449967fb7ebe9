from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.running import RunningSkep


@pytest.fixture
def skep(tmp_path: Path) -> Iterator[RunningSkep]:
    with RunningSkep(
        tmp_path / "data", task_commands=["*"], task_packages=["*"], task_lease=10.0, poll_min=1.0
    ) as running:
        yield running
