from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.forge import Forge


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[Forge]:
    with Forge(tmp_path / "forge") as running:
        yield running
