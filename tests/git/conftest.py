"""A forge on loopback, and a git kind that may ask it."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.sources.git.source_type import GitKind
from tests.support.forge import Forge, Repo
from tests.support.forge.follower import Follow, Follower

SETTINGS = Settings(allow_networks=("127.0.0.0/8",), look_timeout=60.0, fetch_timeout=300.0, allow_local=True)


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[Forge]:
    with Forge(tmp_path / "forge") as forge:
        yield forge


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
async def kind(data: Path) -> AsyncIterator[GitKind]:
    kind = GitKind(SETTINGS, data, SystemClock(0))
    yield kind
    await kind.close()


@pytest.fixture
def follow(kind: GitKind) -> Follow:
    return lambda url: Follower(kind, url)


@pytest.fixture
def upstream() -> Callable[[Repo], dict[str, str]]:
    """What a mirror of the repository should hold."""

    def versions(repo: Repo) -> dict[str, str]:
        head = repo.git("symbolic-ref", "HEAD").decode().strip()
        return {**repo.refs(), "HEAD": head}

    return versions
