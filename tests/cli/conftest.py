import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.fake import FakeSkep, running


@pytest.fixture
def fake() -> Iterator[FakeSkep]:
    with running() as skep:
        yield skep


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting, token or server of the person who runs the tests."""
    for name in [name for name in os.environ if name.startswith("SKEP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def home(fake: FakeSkep, monkeypatch: pytest.MonkeyPatch) -> FakeSkep:
    """The fake server as the one the commands talk to."""
    monkeypatch.setenv("SKEP_URL", fake.url)
    return fake
