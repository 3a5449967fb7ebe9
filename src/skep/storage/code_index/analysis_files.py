"""Books: what analysis found out about git blobs. A book is an immutable file, a library the folder that holds them.

    first line   checksum of the header; then the header, JSON, in one line: format, counts, where each array lies
    keys         the first 8 bytes of each blob's id, ascending     blobs     the ids, as they are written
    starts       where the definitions of a blob begin              facts_at  where its facts begin
    at, size     of a definition's name in the blob                 line, kind
    name         a number for the name                              by_name   the definitions in the order of that
    facts        opaque here; who analyses knows what they mean

A book is written aside and renamed, so whoever sees one sees all of it. Losing one loses no more than time.
"""

import asyncio
import logging
import mmap
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from skep.base.errors import Damaged
from skep.base.io import sync_file, sync_folders
from skep.storage.code_index.model import BookInfo

FORMAT = 2
#: kinds of definition; where one name has several, the first of these
KINDS = (
    *("method", "function", "class", "struct", "interface", "enum"),
    *("type", "constant", "field", "variable", "macro", "module"),
)
COLUMNS = {"at": np.uint32, "size": np.uint16, "line": np.uint32, "kind": np.uint8, "name": np.uint32}
SUFFIX = ".book"
#: blobs of one book that are named as defining a name: of one that more define, none is what somebody looks for
_MOST_DEFINING = 1000
_HEX = np.full(256, 255, np.uint8)
_HEX[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
_SHIFTS = np.arange(60, -4, -4, dtype=np.uint64)

Array = NDArray[Any]


class Definition(NamedTuple):
    #: where the name is in the file, in bytes
    at: int
    size: int
    #: 1-based
    line: int
    #: of KINDS
    kind: int
    #: see `name_number`
    name: int


def name_number(name: bytes) -> int:
    """A few names share one, and a name in capitals has that of the small letters."""
    return zlib.crc32(name.lower())


class Entry(NamedTuple):
    blob: str
    definitions: Sequence[Definition]
    facts: bytes


class Found(NamedTuple):
    """Definitions of several blobs: arrays of the same length, by blob, then by place."""

    #: which of the blobs that were asked for
    blob: Array
    at: Array
    size: Array
    line: Array
    kind: Array
    name: Array


def keys_of(blobs: Array) -> Array:
    """Of ids as text (`S40`, `S64`)."""
    if not len(blobs):
        return np.zeros(0, np.uint64)
    digits = _HEX[np.ascontiguousarray(blobs).view(np.uint8).reshape(len(blobs), -1)[:, :16]]
    return np.asarray(np.bitwise_or.reduce(digits.astype(np.uint64) << _SHIFTS, axis=1))


class Header(msgspec.Struct, frozen=True):
    format: int
    #: of what the facts mean
    version: int
    sections: dict[str, tuple[str, int, int]]
    size: int
    crc: int


class Book:
    """An open book. Its file stays readable, even when removed, until nobody refers to it."""

    def __init__(self, path: Path) -> None:
        self.path, self.id = path, path.name.removesuffix(SUFFIX)
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            first = self._map.find(b"\n")
            end = self._map.find(b"\n", first + 1)
            body = self._map[first + 1 : end]
            if first != 8 or self._map[:8] != b"%08x" % zlib.crc32(body):
                raise Damaged(f"the header of book {self.id} fails its checksum")
            self._header = msgspec.json.decode(body, type=Header)
            self._base, self.version, self.weight = end + 1, self._header.version, len(self._map)
            if self._header.format != FORMAT or len(self._map) != self._base + self._header.size:
                raise Damaged(f"book {self.id} has another format or size than this Skep reads")
            self.keys, self.blobs, self.starts = (self._section(name) for name in ("keys", "blobs", "starts"))
            self.at, self.size = self._section("at"), self._section("size")
            self.line, self.kind, self.name = (self._section(name) for name in ("line", "kind", "name"))
            self._by_name = self._section("by_name")
            self._facts_at = self._section("facts_at")
        except (OSError, ValueError, KeyError, msgspec.MsgspecError) as error:
            raise Damaged(f"book {self.id} cannot be opened: {error}") from error

    def _section(self, name: str) -> Array:
        dtype, start, count = self._header.sections[name]
        return np.frombuffer(self._map, dtype, count, self._base + start)

    def verify(self) -> None:
        if zlib.crc32(memoryview(self._map)[self._base :]) != self._header.crc:
            raise Damaged(f"book {self.id} fails its checksum")

    def find(self, keys: Array, blobs: Array) -> Array:
        """The place of each blob in this book; -1: it is not here."""
        if not len(self.keys):
            return np.full(len(keys), -1)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where((self.keys[place] == keys) & (self.blobs[place] == blobs), place, -1)

    def defining(self, name: int) -> Array:
        """Ids of blobs that define a name of this number."""
        ends = [np.searchsorted(self.name, np.uint32(name), side, self._by_name) for side in ("left", "right")]
        rows = self._by_name[ends[0] : min(ends[1], ends[0] + _MOST_DEFINING)]
        return self.blobs[np.searchsorted(self.starts, rows, "right") - 1]

    def facts(self, place: int) -> bytes:
        start, end = self._facts_at[place : place + 2].tolist()
        base = self._base + self._header.sections["facts"][1]
        return self._map[base + start : base + end]

    def entry(self, place: int) -> Entry:
        span = slice(*self.starts[place : place + 2].tolist())
        rows = zip(*(getattr(self, name)[span].tolist() for name in COLUMNS), strict=True)
        return Entry(self.blobs[place].decode(), [Definition(*row) for row in rows], self.facts(place))


class Books:
    """Several books, asked as one. Never changed, only replaced."""

    def __init__(self, books: Iterable[Book] = ()) -> None:
        self.books = tuple(books)

    def beside(self, paths: Iterable[Path]) -> "Books":
        """Together with those, where these do not know a blob. Damaged when one cannot be opened."""
        return Books((*self.books, *map(Book, paths)))

    def find(self, blobs: Array) -> list[tuple[Book, Array, Array]]:
        """For each book: which of the blobs it answers for, and where they are in it."""
        keys, left, found = keys_of(blobs), np.arange(len(blobs)), []
        for book in self.books:
            place = book.find(keys[left], blobs[left])
            here = place >= 0
            if here.any():
                found.append((book, left[here], place[here]))
                left = left[~here]
        return found

    def has(self, blobs: Array) -> NDArray[np.bool_]:
        known = np.zeros(len(blobs), bool)
        for _, asked, _ in self.find(blobs):
            known[asked] = True
        return known

    def defining(self, names: Iterable[int]) -> Array:
        """Ids of blobs that define a name of one of these numbers."""
        found = [book.defining(name) for name in names for book in self.books]
        return np.unique(np.concatenate(found)) if found else np.zeros(0, np.bytes_)

    def of(self, blobs: Array | Sequence[str]) -> Found:
        """What these blobs define. A blob that was not analysed defines nothing."""
        asked = np.asarray(blobs, np.bytes_)
        parts = [definitions_at(*one) for one in self.find(asked)]
        if not parts:
            return Found(*(np.zeros(0, np.int64) for _ in Found._fields))
        joined = Found(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
        order = np.argsort(joined.blob, kind="stable")
        return Found(*(array[order] for array in joined))


def definitions_at(book: Book, asked: Array, places: Array) -> Found:
    first = book.starts[places].astype(np.int64)
    counts = book.starts[places + 1].astype(np.int64) - first
    rows = rows_of(first, counts)
    return Found(np.repeat(asked, counts), *(getattr(book, name)[rows] for name in COLUMNS))


def rows_of(first: Array, counts: Array) -> Array:
    """The numbers of runs of rows, one after the other."""
    return np.asarray(np.arange(int(counts.sum())) + np.repeat(first - (np.cumsum(counts) - counts), counts))


# A library: the folder that holds books, how they are written into it, taken in and merged.

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
