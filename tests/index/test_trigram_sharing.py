"""Documents with the same text share it, whatever sources they are of."""

import hashlib
from pathlib import Path

import pytest

from skep.search.query import parse
from skep.storage.code_index.model import Counted, Delta, Document, Limits, Tip
from skep.storage.code_index.trigram import builder
from skep.storage.code_index.trigram.builder import TrigramBuilder
from skep.storage.code_index.trigram.searcher import TrigramSearcher
from skep.storage.code_index.trigram.shard import Shard
from tests.index.conftest import VISIBLE, Adopt, Files, fence, find


def documents(files: Files) -> list[Document]:
    return [Document(path, hashlib.sha1(text, usedforsecurity=False).hexdigest(), text) for path, text in files.items()]


async def adopt_all(searcher: TrigramSearcher, folder: Path, number: int, files: Files) -> None:
    shards = TrigramBuilder().build(number, documents(files), folder / f"of-{number}", lambda _: None)
    assert await searcher.adopt(Delta(f"src_{number}", number, (Tip("main", "c1"),), None, shards, ()), fence(number))


async def lines(searcher: TrigramSearcher, query: str) -> set[tuple[int, str, int, str]]:
    hits = await find(searcher, parse(query))
    return {(hit.source, hit.path, line.number, line.text) for hit in hits for line in hit.lines}


async def test_the_same_text_under_several_names_is_there_once(searcher: TrigramSearcher, adopt: Adopt) -> None:
    text = b"first\napple and pear\nlast\n"
    await adopt({b"z": text, b"m": b"a fig\nbetween\n", b"a": text, b"empty": b"", b"none": b""})
    assert searcher.size().bytes == len(text) + len(b"a fig\nbetween\n")
    assert searcher.size().documents == 5
    assert await lines(searcher, "apple") == {(1, "a", 2, "apple and pear"), (1, "z", 2, "apple and pear")}
    assert await lines(searcher, "apple file:z") == {(1, "z", 2, "apple and pear")}
    assert await lines(searcher, "apple -file:z") == {(1, "a", 2, "apple and pear")}
    assert await lines(searcher, "/^[fl]/") == {
        (1, name, n, t) for name in "az" for n, t in ((1, "first"), (3, "last"))
    }


async def test_a_shared_text_is_read_once_and_counted_for_each(searcher: TrigramSearcher, adopt: Adopt) -> None:
    text, other = b"apple\n" * 3, b"apple and fig\nfig\n"
    await adopt({b"z": text, b"m": other, b"a": text, b"n": other, b"b": text})
    for query, count in (("apple", 11), ("fig", 4), ("/^apple$/", 9), ("apple or fig", 13)):
        hits = searcher.search(parse(query), VISIBLE, Limits(lines=1, count=1000, seconds=60.0))
        assert [hit async for hit in hits]
        assert hits.counted == Counted(2 if query == "fig" else 3 if "$" in query else 5, count, True)
        assert len(await lines(searcher, query)) == count


async def test_forks_share_after_a_merge_and_each_stays_what_it_is(searcher: TrigramSearcher, tmp_path: Path) -> None:
    common = {b"f%d" % n: b"common line %d\n" % n * 10 for n in range(20)}
    for number in range(1, 10):
        await adopt_all(searcher, tmp_path, number, common | {b"own": b"only of %d\n" % number})
    assert await searcher.merge_once()
    assert searcher.size().documents == 9 * 21
    assert searcher.size().bytes == sum(map(len, common.values())) + 9 * len(b"only of 1\n")
    assert await lines(searcher, '"only of 4"') == {(4, "own", 1, "only of 4")}
    assert {hit.source for hit in await find(searcher, parse('"common line 7"'))} == set(range(1, 10))
    await searcher.drop("src_1", 1)
    assert {hit.source for hit in await find(searcher, parse('"common line 7"'))} == set(range(2, 10))
    assert await searcher.check() == []


async def test_who_names_a_blob_of_another_does_not_see_its_text(tmp_path: Path) -> None:
    """The ids come from workers; only the same bytes are the same text."""
    secret, claimed = b"the secret\n", b"the secrex\n"
    blob = hashlib.sha1(secret, usedforsecurity=False).hexdigest()
    mixed = [(1, Document(b"private", blob, secret)), (2, Document(b"public", blob, claimed))]
    for nth, order in enumerate((mixed, mixed[::-1])):
        (info,) = TrigramBuilder().build_mixed(order, tmp_path / str(nth), lambda _: None)
        shard = Shard(Path(info.folder))
        assert {shard.path(n): shard.text(n) for n in range(2)} == {b"private": secret, b"public": claimed}


async def test_large_forks_meet_too(searcher: TrigramSearcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards as large as they get do not merge in tiers; those with much in common do, and then come to rest."""
    monkeypatch.setattr(builder, "MOST_BYTES", 100_000)
    monkeypatch.setattr(builder, "MOST_BYTES", 100_000)
    common = {b"f%04d" % n: b"%04d " % n * 24 + b"\n" for n in range(2500)}
    size = sum(map(len, common.values()))
    for number in (1, 2, 3):
        await adopt_all(
            searcher, tmp_path, number, common | {b"own%d" % n: b"own %d %d\n" % (number, n) for n in range(9)}
        )
    assert searcher.size().bytes > 3 * size
    merges = 0
    while await searcher.merge_once():
        merges += 1
    assert 0 < merges < 12
    assert searcher.size().bytes < 1.2 * size
    assert searcher.size().documents == 3 * 2509
    assert await lines(searcher, "/^own . 3$/") == {(n, "own3", 1, f"own {n} 3") for n in (1, 2, 3)}
    assert {(source, path) for source, path, _, _ in await lines(searcher, "1234")} == {(n, "f1234") for n in (1, 2, 3)}
