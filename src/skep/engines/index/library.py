"""A library: the folder that holds books, how they are written into it, taken in and merged."""

import asyncio
import logging
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from skep.disk import sync_file, sync_folders
from skep.engines.index.books import (
    COLUMNS,
    FORMAT,
    SUFFIX,
    Array,
    Book,
    Books,
    Entry,
    Header,
    definitions_at,
    keys_of,
    rows_of,
)
from skep.errors import Damaged
from skep.model.search import BookInfo

log = logging.getLogger(__name__)

_MOST_PER_TIER, _RATIO = 8, 4


def write_book(folder: Path, id: str, entries: Iterable[Entry], version: int) -> BookInfo:
    """Durable, and in `folder` under its name, on return. The first entry of a blob is taken."""
    given = list(entries)
    table = np.array([row for entry in given for row in entry.definitions], np.uint32).reshape(-1, len(COLUMNS))
    return _assemble(
        folder / f"{id}{SUFFIX}",
        np.array([entry.blob for entry in given], np.bytes_),
        np.array([len(entry.definitions) for entry in given], np.int64),
        dict(zip(COLUMNS, table.T, strict=True)),
        [entry.facts for entry in given],
        version,
    )


def _assemble(
    path: Path, blobs: Array, counts: Array, columns: dict[str, Array], facts: list[bytes], version: int
) -> BookInfo:
    keys = keys_of(blobs)
    order = np.argsort(keys, kind="stable")
    order = order[np.concatenate([[True], blobs[order][1:] != blobs[order][:-1]])[: len(order)]]
    rows = rows_of((np.cumsum(counts) - counts)[order], counts[order])
    columns = {name: columns[name][rows].astype(dtype) for name, dtype in COLUMNS.items()}
    sorted_facts = [facts[n] for n in order.tolist()]
    arrays: dict[str, Array] = {
        "keys": keys[order],
        "blobs": blobs[order],
        "starts": np.cumsum(np.concatenate([[0], counts[order]]), dtype=np.uint32),
        "facts_at": np.cumsum([0, *map(len, sorted_facts)], dtype=np.uint64),
        **columns,
        "by_name": np.argsort(columns["name"], kind="stable").astype(np.uint32),
        "facts": np.frombuffer(b"".join(sorted_facts), np.uint8),
    }
    _write(path, arrays, version)
    return BookInfo(path.name.removesuffix(SUFFIX), str(path), len(order))


def _write(path: Path, arrays: dict[str, Array], version: int) -> None:
    sections: dict[str, tuple[str, int, int]] = {}
    size = crc = 0
    bodies = []
    for name, array in arrays.items():
        sections[name] = (array.dtype.str, size, len(array))
        body = array.tobytes()
        bodies.append(body + bytes(-len(body) % 8))
        size += len(bodies[-1])
        crc = zlib.crc32(bodies[-1], crc)
    header = msgspec.json.encode(Header(FORMAT, version, sections, size, crc))
    aside = path.with_name(path.name + ".new")
    with aside.open("wb") as file:
        file.write(b"%08x\n%b\n" % (zlib.crc32(header), header))
        file.writelines(bodies)
        sync_file(file)
    aside.rename(path)
    sync_folders(path.parent)


class Library:
    """A folder of books: every whole one in it counts, so there is no list of them to keep."""

    def __init__(self, folder: Path, version: int | None = None) -> None:
        """Books of another `version` are of no use and go."""
        self.folder = folder
        self._version = version

    def open(self) -> Books:
        """Damaged books go: what was in them is analysed again. So does what a killed process left half written."""
        books = []
        for path in sorted(self.folder.glob(f"*{SUFFIX}"), reverse=True):
            try:
                book = Book(path)
            except Damaged as error:
                if path.exists():  # else it was merged into another a moment ago
                    log.warning("a book is removed", extra={"book": path.name, "reason": error.message})
                    path.unlink(missing_ok=True)
                continue
            if self._version is not None and book.version != self._version:
                path.unlink(missing_ok=True)
            else:
                books.append(book)
        return Books(books)

    def sweep(self) -> None:
        for path in self.folder.glob("*.new"):
            path.unlink(missing_ok=True)

    def take_in(self, info: BookInfo) -> Book:
        """Linked where that is possible, else copied. Doing it twice is harmless."""
        self.folder.mkdir(parents=True, exist_ok=True)
        inside = self.folder / Path(f"{info.id}{SUFFIX}").name
        if not inside.exists():
            aside = inside.with_name(inside.name + ".new")
            aside.unlink(missing_ok=True)
            try:
                os.link(info.path, aside)
            except OSError:
                shutil.copyfile(info.path, aside)
                with aside.open("rb") as file:
                    sync_file(file)
            Book(aside).verify()
            aside.rename(inside)
            sync_folders(self.folder)
        return Book(inside)


def pick(books: Sequence[Book]) -> list[Book]:
    """Those to merge next: more than a few of about the same size."""
    tiers: dict[int, list[Book]] = {}
    for book in books:
        tiers.setdefault(max(0, book.weight >> 14).bit_length() // (_RATIO.bit_length() - 1), []).append(book)
    return next((tiers[tier] for tier in sorted(tiers) if len(tiers[tier]) > _MOST_PER_TIER), [])


def merge(library: Library, chosen: Sequence[Book], live: Array | None = None) -> BookInfo:
    """One book instead of several, under the name of the newest; `live`: keys of the blobs that are still in an index,
    ascending; others go."""
    newest = max(chosen, key=lambda book: book.id)
    kept = [
        np.flatnonzero(np.ones(len(book.keys), bool) if live is None else _among(book.keys, live)) for book in chosen
    ]
    parts = [definitions_at(book, places, places) for book, places in zip(chosen, kept, strict=True)]
    info = _assemble(
        newest.path,
        np.concatenate([book.blobs[places] for book, places in zip(chosen, kept, strict=True)]),
        np.concatenate(
            [np.diff(book.starts.astype(np.int64))[places] for book, places in zip(chosen, kept, strict=True)]
        ),
        {name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS},
        [book.facts(place) for book, places in zip(chosen, kept, strict=True) for place in places.tolist()],
        newest.version,
    )
    for book in chosen:
        if book is not newest:
            book.path.unlink(missing_ok=True)
    return info


def _among(keys: Array, live: Array) -> NDArray[np.bool_]:
    if not len(live):
        return np.zeros(len(keys), bool)
    return np.asarray(live[np.minimum(np.searchsorted(live, keys), len(live) - 1)] == keys)


class Librarian:
    """Keeps the books of a searcher."""

    def __init__(self, folder: Path) -> None:
        self.library = Library(folder)
        #: what searches use that begin now
        self.books = Books()
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        await asyncio.to_thread(self.library.sweep)
        await self._open()

    async def _open(self) -> None:
        self.books = await asyncio.to_thread(self.library.open)

    async def annotate(self, info: BookInfo) -> bool:
        async with self._turn:
            try:
                await asyncio.to_thread(self.library.take_in, info)
            except (Damaged, OSError) as error:
                log.warning("a book cannot be adopted", extra={"book": info.id, "reason": str(error)})
                return False
            await self._open()
            return True

    def annotated(self, blobs: Sequence[str]) -> bool:
        return bool(self.books.has(np.array(blobs, np.bytes_)).all())

    async def merge_once(self, living: Callable[[], Iterable[Array]]) -> bool:
        """`living`: the ids of all blobs in the index, in pieces; what books say of others is forgotten."""
        async with self._turn:
            chosen = pick(self.books.books)
            if chosen:
                await asyncio.to_thread(lambda: merge(self.library, chosen, _keys(living())))
                await self._open()
            return bool(chosen)


def _keys(pieces: Iterable[Array]) -> Array:
    keys = [keys_of(blobs) for blobs in pieces]
    return np.unique(np.concatenate(keys)) if keys else np.zeros(0, np.uint64)
