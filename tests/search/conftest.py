"""The rooms of a serving process, with sources whose files go straight into the index: no worker, no git."""

import hashlib
import itertools
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from skep.base.caller import SYSTEM, Caller, Visibility
from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.indexing.updates import Adoption
from skep.interfaces.core import Core
from skep.languages.blob_facts import analyse
from skep.languages.languages import classify
from skep.processes.build import Rooms, open_rooms
from skep.search.api import SearchAnswer
from skep.storage.code_index.analysis_files import Entry, write_book
from skep.storage.code_index.model import Delta, Document, Fence, Limits, Tip
from skep.storage.code_index.trigram.builder import TrigramBuilder

READER = Caller("reader", frozenset({"read"}))
Files = Mapping[str, str]


class Library:
    def __init__(self, rooms: Rooms, folder: Path) -> None:
        self.rooms = rooms
        self._folder = folder
        self._count = itertools.count(1)
        self.ids: dict[str, tuple[str, int]] = {}

    @property
    def core(self) -> Core:
        return self.rooms.core

    @property
    def adoption(self) -> Adoption:
        return self.rooms.adoption

    async def add(self, name: str, files: Files, visibility: Visibility = "public", tips: Sequence[Tip] = ()) -> str:
        """A source with its first index, of these branches; returns its id."""
        url = f"https://example.org/{name}"
        source = (await self.core.sources.add(SYSTEM, url, visibility=visibility)).source
        self.ids[name] = source.id, source.number
        await self.core.search.catalogue.refresh(self.core.search._db)
        await self.change(name, files, whole=True, tips=tips)
        return source.id

    def delta(
        self, name: str, files: Files, gone: tuple[str, ...] = (), *, whole: bool = False, tips: Sequence[Tip] = ()
    ) -> Delta:
        """What changes `files` (and removes `gone`), built and not adopted yet."""
        id, number = self.ids[name]
        nth = next(self._count)
        documents = [document(path, text) for path, text in files.items()]
        shards = TrigramBuilder().build(
            number, documents, self._folder / f"built-{time.monotonic_ns()}", lambda _: None
        )
        standing = self.rooms.searcher.standing(number)
        paths = tuple(path.encode() for path in (*files, *gone))
        tips = tuple(tips) or (Tip("main", f"{nth:040x}"),)
        return Delta(id, number, tips, None if whole or not standing else standing.tips, shards, paths)

    async def change(
        self, name: str, files: Files, gone: tuple[str, ...] = (), *, whole: bool = False, tips: Sequence[Tip] = ()
    ) -> bool:
        delta = self.delta(name, files, gone, whole=whole, tips=tips)
        return await self.adoption.adopt(Fence(delta.source, 1, 1000.0 + next(self._count)), delta, 0.0)

    async def analyse(self, files: Files) -> None:
        """What a worker does when they are searchable: find out what they define."""
        documents = [document(path, text) for path, text in files.items()]
        entries = [Entry(one.blob, analyse(one.path, one.content)[1], b"") for one in documents]
        assert await self.rooms.searcher.annotate(write_book(self._folder, f"bok_{next(self._count)}", entries, 1))

    async def search(
        self, text: str, limits: Limits | None = None, *, caller: Caller = READER, page: str = ""
    ) -> SearchAnswer:
        return await self.core.search.search(caller, text, limits or Limits(seconds=600.0), page=page, with_facets=True)

    async def paths(self, text: str, *, caller: Caller = READER) -> list[str]:
        return [hit.path for hit in (await self.search(text, caller=caller)).hits]


def document(path: str, text: str) -> Document:
    content = text.encode()
    blob = hashlib.sha1(b"blob %d\0%b" % (len(content), content), usedforsecurity=False).hexdigest()
    return Document(path.encode(), blob, content, *classify(path.encode(), content))


class OpenLibrary(Protocol):
    def __call__(self, database: str = "sqlite:", **settings: Any) -> AbstractAsyncContextManager[Library]: ...


@pytest.fixture
def open_library(tmp_path: Path) -> OpenLibrary:
    @asynccontextmanager
    async def opened(database: str = "sqlite:", **given: Any) -> AsyncIterator[Library]:
        settings = Settings(data=str(tmp_path), database=database, allow_networks=("127.0.0.0/8",), **given)
        async with open_rooms(settings, SystemClock(), "w" * 64) as rooms:
            yield Library(rooms, tmp_path)

    return opened


@pytest.fixture
async def library(open_library: OpenLibrary) -> AsyncIterator[Library]:
    async with open_library() as opened:
        yield opened
