"""What the embedded engine does, an index on a server does too: the same tests, on a real OpenSearch node."""

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from skep.engines.db.base import Database
from skep.engines.db.sqlite import open_memory
from skep.engines.index.opensearch import OpenSearchSearcher
from skep.engines.open import find as find_engine
from skep.testing.opensearch import NotInstalled, OpenSearchNode, running_opensearch
from tests.index import test_ripgrep_equality, test_trigram_adopt, test_trigram_search
from tests.index.conftest import fence, make_delta

#: of shards in a folder, or without a searcher
NOT_HERE = {
    "test_everything_anew",
    "test_a_delta_cannot_smuggle",
    "test_a_full_disk_is_told",
    "test_merging_keeps_every_answer",
    "test_what_dies_during_a_merge_is_dead_after_it",
    "test_a_large_merge_runs_in_another_process",
    "test_a_restart_changes_nothing",
    "test_damage_is_set_aside_and_told",
}
for module in (test_trigram_search, test_trigram_adopt, test_ripgrep_equality):
    shared = {name: test for name, test in vars(module).items() if name.startswith("test_") and name not in NOT_HERE}
    assert not shared.keys() & globals().keys()
    globals().update(shared)

hard_folder = test_ripgrep_equality.hard_folder
_prefixes = (f"test{n}" for n in itertools.count())


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenSearchNode]:
    try:
        with running_opensearch(tmp_path_factory.mktemp("opensearch")) as running:
            yield running
    except NotInstalled as error:
        pytest.skip(str(error))


@pytest.fixture
def url(node: OpenSearchNode) -> str:
    """An index that nothing else uses."""
    return f"opensearch://{node.address}/{next(_prefixes)}"


async def opened(url: str, db: Database) -> OpenSearchSearcher:
    searcher: OpenSearchSearcher = await find_engine("index", url)(url, data=Path(), db=db)
    await searcher.start()
    return searcher


@pytest.fixture
async def searcher(url: str, db: Database) -> AsyncIterator[OpenSearchSearcher]:
    searcher = await opened(url, db)
    yield searcher
    await searcher.close()


@pytest.fixture
async def hard_index(tmp_path: Path, url: str) -> AsyncIterator[OpenSearchSearcher]:
    db = await open_memory("memory:", data=tmp_path, durability="full")
    searcher = await opened(url, db)
    assert await searcher.adopt(
        make_delta(tmp_path / "built", test_ripgrep_equality.hard_files(1), commit="c1"), fence()
    )
    yield searcher
    await searcher.close()
    await db.close()
