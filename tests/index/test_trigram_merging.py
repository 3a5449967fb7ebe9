"""Few large shards: those that make one together are merged, and what is large is not written again for little."""

from pathlib import Path

import pytest

from skep.storage.code_index.trigram import builder
from skep.storage.code_index.trigram.searcher import TrigramSearcher
from tests.index.test_trigram_sharing import adopt_all, lines

FULL = 100_000


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "MOST_BYTES", FULL)
    monkeypatch.setattr(builder, "MOST_BYTES", FULL)


async def fill(searcher: TrigramSearcher, folder: Path, number: int, size: int) -> None:
    """A source that makes one shard of about this size."""
    texts = {b"f%03d" % n: b"%06d " % (number * 1000 + n) * 142 + b"\n" for n in range(size // 1000)}
    await adopt_all(searcher, folder, number, texts)


async def test_shards_that_make_one_together_become_one(searcher: TrigramSearcher, tmp_path: Path) -> None:
    for number in range(1, 7):
        await fill(searcher, tmp_path, number, 26_000)
    assert searcher.size().shards == 6
    merges = 0
    while await searcher.merge_once():
        merges += 1
    assert (merges, searcher.size().shards) == (2, 2)
    assert searcher.size().documents == 6 * 26
    for number in range(1, 7):
        assert {(source, path) for source, path, _, _ in await lines(searcher, f"{number * 1000 + 7:06}")} == {
            (number, "f007")
        }


async def test_a_large_shard_is_not_written_again_for_a_small_one(searcher: TrigramSearcher, tmp_path: Path) -> None:
    await fill(searcher, tmp_path, 1, 60_000)
    await fill(searcher, tmp_path, 2, 10_000)
    assert not await searcher.merge_once()
    await fill(searcher, tmp_path, 3, 24_000)  # the small ones are worth it now
    assert await searcher.merge_once()
    assert searcher.size().shards == 1
    assert not await searcher.merge_once()
