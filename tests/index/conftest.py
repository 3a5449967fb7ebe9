"""A corpus that is hard to search, and an index of it."""

import functools
import itertools
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from skep.storage.code_index.base import Searcher
from skep.storage.code_index.model import Delta, Document, Fence, FileHit, Limits, Query, Tip
from skep.storage.code_index.trigram.builder import TrigramBuilder
from skep.storage.code_index.trigram.searcher import TrigramSearcher, open_trigram
from skep.storage.database import Database
from skep.storage.sqlite import open_sqlite

Files = Mapping[bytes, bytes]
VISIBLE = np.ones(64, bool)
EVERYTHING = Limits(lines=1_000_000, lines_per_file=1_000_000, seconds=60.0)


def make_delta(
    out: Path, files: Files, *, commit: str, base: str | None = None, gone: tuple[bytes, ...] = (), number: int = 1
) -> Delta:
    documents = [Document(path, f"{hash_of(content):040x}", content) for path, content in files.items()]
    shards = TrigramBuilder().build(number, documents, out, lambda _: None)
    return Delta(f"src_{number}", number, (Tip("main", commit),), (Tip("main", base),) if base else None, shards, gone)


def hash_of(content: bytes) -> int:
    return int.from_bytes(content[:16], "big")


def fence(number: int = 1, epoch: int = 1) -> Fence:
    return Fence(f"src_{number}", epoch, 1000.0)


async def find(searcher: Searcher, query: Query, limits: Limits = EVERYTHING) -> list[FileHit]:
    return [hit async for hit in searcher.search(query, VISIBLE, limits)]


async def places(searcher: Searcher, query: Query) -> list[tuple[str, int, int]]:
    return [(hit.path, line.number, line.column) for hit in await find(searcher, query) for line in hit.lines]


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    database = await open_sqlite("sqlite:", data=tmp_path, durability="full")
    yield database
    await database.close()


@pytest.fixture
async def searcher(tmp_path: Path, db: Database) -> AsyncIterator[TrigramSearcher]:
    opened = await open_trigram("file:", data=tmp_path, db=db)
    await opened.start()
    yield opened
    await opened.close()


Adopt = Callable[..., Awaitable[Delta]]


@pytest.fixture
def adopt(searcher: TrigramSearcher, tmp_path: Path) -> Adopt:
    """Build and adopt; commits are c1, c2, … unless named."""
    count = itertools.count(1)

    async def work(files: Files, *, number: int = 1, base: str | None = None, gone: tuple[bytes, ...] = ()) -> Delta:
        nth = next(count)
        delta = make_delta(tmp_path / f"built-{nth}", files, commit=f"c{nth}", base=base, gone=gone, number=number)
        assert await searcher.adopt(delta, fence(number))
        return delta

    return work


@pytest.fixture(params=["hyperscan", "re2"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Both ways of finding lines: the second is all there is where hyperscan has no wheel."""
    if request.param == "re2":
        monkeypatch.setattr("skep.storage.code_index.trigram.matchers.hyperscan", None)
    else:
        monkeypatch.setattr("skep.storage.code_index.trigram.matchers._WORTH", -1)
        monkeypatch.setattr("skep.storage.code_index.trigram.matchers._WORTH_READ", -1)
    yield request.param


@pytest.fixture(scope="session")
def ripgrep() -> Callable[..., list[tuple[str, int, int]]]:
    program = shutil.which("rg")
    assert program, "these tests compare with ripgrep: install the Debian package `ripgrep`"

    @functools.cache
    def run(folder: Path, *arguments: str) -> list[tuple[str, int, int]]:
        command = [program, "--no-config", "-uuu", "-a", "--encoding", "none", "--no-mmap", "--json", *arguments, "."]
        ran = subprocess.run(command, cwd=folder, capture_output=True, check=False)
        assert ran.returncode in (0, 1), ran.stderr
        events = map(msgspec.json.decode, ran.stdout.splitlines())
        return [_place(event["data"]) for event in events if event["type"] == "match"]

    return run


def _place(match: dict[str, Any]) -> tuple[str, int, int]:
    """Column 0: ripgrep names none for an empty match at the end of a file without a last newline."""
    column = match["submatches"][0]["start"] + 1 if match["submatches"] else 0
    return match["path"]["text"].removeprefix("./"), match["line_number"], column
