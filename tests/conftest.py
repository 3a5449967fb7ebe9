"""What every area may want: a real PostgreSQL and OpenSearch, and an open database on each engine."""

from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from skep.processes.engines import find
from skep.storage.database import Database
from skep.tasks.task_types import KINDS, NoArguments, TaskKind
from tests import tiers
from tests.support.opensearch import NotInstalled, OpenSearchNode, running_opensearch
from tests.support.postgres import fresh_database, running_postgres

# how long an example, or making one up, takes is the machine's affair; the same examples every time, so that a run that
# fails was not just unlucky
settings.register_profile(
    "skep",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
# `make test-fast` tries fewer examples; `make test` tries all of them
settings.register_profile("fast", settings.get_profile("skep"), max_examples=20)
settings.load_profile("skep")
# kinds that workers of tests do in this process; `magic` is one that none does
KINDS.update({name: TaskKind(NoArguments, for_callers=True) for name in ("held", "bad", "magic")})

_watch = tiers.Watch()


def _is_fast(config: pytest.Config) -> bool:
    """As `make test-fast` has it."""
    return bool(config.option.markexpr == f"not {tiers.MARKER}")


def pytest_configure(config: pytest.Config) -> None:
    if _is_fast(config):
        settings.load_profile("fast")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tiers.mark(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _watch.on = _is_fast(item.config)
    try:
        return (yield)
    finally:
        _watch.on = False


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with running_postgres() as url:
        yield url


@pytest.fixture(scope="session")
def opensearch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenSearchNode]:
    try:
        with running_opensearch(tmp_path_factory.mktemp("opensearch")) as running:
            yield running
    except NotInstalled as error:
        pytest.skip(str(error))


@pytest.fixture(params=["sqlite", "postgres"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """The URL of an empty database, one of each engine."""
    if request.param == "sqlite":
        yield "sqlite:"
        return
    async with fresh_database(request.getfixturevalue("postgres_url")) as url:
        yield url


@pytest.fixture
async def database(place: str, tmp_path: Path) -> AsyncIterator[Database]:
    db = await find("db", place)(place, data=tmp_path, durability="full")
    yield db
    await db.close()
