from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.running import RunningSkep
from tests.support.forge import Forge


@pytest.fixture
def skep(tmp_path: Path) -> Iterator[RunningSkep]:
    """A fresh server for one test."""
    running = RunningSkep(tmp_path / "data")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def shared_skep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSkep]:
    """One server for the tests of a file that do not disturb each other."""
    running = RunningSkep(tmp_path_factory.mktemp("skep") / "data")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    with Forge(tmp_path_factory.mktemp("forge")) as running:
        yield running
