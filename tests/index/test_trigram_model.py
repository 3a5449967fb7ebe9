"""Whatever order things happen in, searches say what a dictionary of files would say: before a change or after it."""

import asyncio
import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.storage.code_index.model import Limits, Term
from skep.storage.code_index.trigram.searcher import TrigramSearcher, open_trigram
from skep.storage.sqlite import open_memory
from tests.index.conftest import VISIBLE, fence, make_delta

WORDS = ("apple", "pear", "fig")
Files = dict[bytes, bytes]
Places = set[tuple[int, str, int]]

contents = st.lists(st.sampled_from(WORDS), max_size=4).map(lambda words: "".join(f"{w}\n" for w in words).encode())
trees = st.dictionaries(st.sampled_from([b"a", b"b/fig", b"c", b"d"]), contents, max_size=4)
steps: st.SearchStrategy[tuple[str, int, Files]] = st.one_of(
    st.tuples(st.just("whole"), st.integers(1, 3), trees),
    st.tuples(st.just("change"), st.integers(1, 3), trees),
    st.tuples(st.just("drop"), st.integers(1, 3), st.just({})),
    st.tuples(st.just("merge"), st.just(0), st.just({})),
    st.tuples(st.just("restart"), st.just(0), st.just({})),
)


class Model:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sources: dict[int, Files] = {}
        self.commits: dict[int, str] = {}
        self.count = itertools.count(1)

    def places(self, word: str) -> Places:
        return {
            (number, path.decode(), nth)
            for number, files in self.sources.items()
            for path, content in files.items()
            for nth, line in enumerate(content.decode().splitlines(), start=1)
            if word in line
        }

    async def step(self, searcher: TrigramSearcher, kind: str, number: int, files: Files) -> None:
        if kind == "merge":
            await searcher.merge_once()
        elif kind == "drop":
            await searcher.drop(f"src_{number}", number)
            self.sources.pop(number, None)
            self.commits.pop(number, None)
        else:
            base = self.commits.get(number) if kind == "change" else None
            nth = next(self.count)
            gone = tuple({*files, b"a"}) if base else ()
            delta = make_delta(self.folder / f"b{nth}", files, commit=f"c{nth}", base=base, gone=gone, number=number)
            assert await searcher.adopt(delta, fence(number))
            kept = {path: text for path, text in self.sources.get(number, {}).items() if base and path not in gone}
            self.sources[number] = kept | files
            self.commits[number] = f"c{nth}"


async def found(searcher: TrigramSearcher, word: str, rank: bool) -> Places:
    hits = searcher.search(Term("content", word, False, True), VISIBLE, Limits(lines=10_000, rank=rank, seconds=60.0))
    places = {(hit.source, hit.path, line.number) async for hit in hits for line in hit.lines}
    assert hits.counted.exact
    assert hits.counted.lines == len(places)
    return places


async def run(folder: Path, asked: list[tuple[str, int, Files]]) -> None:
    db = await open_memory("memory:", data=folder, durability="full")
    searcher = await open_trigram("file:", data=folder, db=db)
    await searcher.start()
    model = Model(folder)
    for nth, (kind, number, files) in enumerate(asked):
        word = WORDS[nth % 3]
        before = model.places(word)
        if kind == "restart":
            await searcher.close()
            searcher = await open_trigram("file:", data=folder, db=db)
            await searcher.start()
        else:
            looking = asyncio.create_task(found(searcher, word, rank=False))
            await model.step(searcher, kind, number, files)
            assert await looking in (before, model.places(word))
        for one in WORDS:
            assert await found(searcher, one, rank=bool(nth % 2)) == model.places(one)
    assert await searcher.check() == []
    await searcher.close()
    await db.close()


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.lists(steps, min_size=3, max_size=14))
def test_like_a_dictionary_of_files(
    tmp_path_factory: pytest.TempPathFactory, asked: list[tuple[str, int, Files]]
) -> None:
    asyncio.run(run(tmp_path_factory.mktemp("index"), asked))
