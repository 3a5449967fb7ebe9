"""Books: what analysis found out about git blobs. A book is an immutable file, a library the folder that holds them.

    first line   checksum of the header; then the header, JSON, in one line: format, counts, where each array lies
    keys         the first 8 bytes of each blob's id, ascending     blobs     the ids, as they are written
    starts       where the definitions of a blob begin              facts_at  where its facts begin
    at, size     of a definition's name in the blob                 line, kind
    facts        opaque here; who analyses knows what they mean

A book is written aside and renamed, so whoever sees one sees all of it. Losing one loses no more than time.
"""

import logging
import mmap
import os
import shutil
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from skep.errors import Damaged

log = logging.getLogger(__name__)

FORMAT = 1
#: kinds of definition; where one name has several, the first of these
KINDS = (
    *("method", "function", "class", "struct", "interface", "enum"),
    *("type", "constant", "field", "variable", "macro", "module"),
)
_SUFFIX = ".book"
_MOST_PER_TIER, _RATIO = 8, 4
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


class BookInfo(msgspec.Struct, frozen=True):
    """A book that was written and is not in the library of the aggregator yet."""

    id: str
    path: str
    blobs: int


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


def keys_of(blobs: Array) -> Array:
    """Of ids as text (`S40`, `S64`)."""
    if not len(blobs):
        return np.zeros(0, np.uint64)
    digits = _HEX[np.ascontiguousarray(blobs).view(np.uint8).reshape(len(blobs), -1)[:, :16]]
    return np.asarray(np.bitwise_or.reduce(digits.astype(np.uint64) << _SHIFTS, axis=1))


class _Header(msgspec.Struct, frozen=True):
    format: int
    #: of what the facts mean
    version: int
    sections: dict[str, tuple[str, int, int]]
    size: int
    crc: int


class Book:
    """An open book. Its file stays readable, even when removed, until nobody refers to it."""

    def __init__(self, path: Path) -> None:
        self.path, self.id = path, path.name.removesuffix(_SUFFIX)
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            first = self._map.find(b"\n")
            end = self._map.find(b"\n", first + 1)
            body = self._map[first + 1 : end]
            if first != 8 or self._map[:8] != b"%08x" % zlib.crc32(body):
                raise Damaged(f"the header of book {self.id} fails its checksum")
            self._header = msgspec.json.decode(body, type=_Header)
            self._base, self.version, self.weight = end + 1, self._header.version, len(self._map)
            if self._header.format != FORMAT or len(self._map) != self._base + self._header.size:
                raise Damaged(f"book {self.id} has another format or size than this Skep reads")
            self.keys, self.blobs, self.starts = (self._section(name) for name in ("keys", "blobs", "starts"))
            self.at, self.size = self._section("at"), self._section("size")
            self.line, self.kind = self._section("line"), self._section("kind")
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

    def facts(self, place: int) -> bytes:
        start, end = self._facts_at[place : place + 2].tolist()
        base = self._base + self._header.sections["facts"][1]
        return self._map[base + start : base + end]

    def entry(self, place: int) -> Entry:
        span = slice(*self.starts[place : place + 2].tolist())
        rows = zip(*(array[span].tolist() for array in (self.at, self.size, self.line, self.kind)), strict=True)
        return Entry(self.blobs[place].decode(), [Definition(*row) for row in rows], self.facts(place))


class Books:
    """Several books, asked as one. Never changed, only replaced."""

    def __init__(self, books: Iterable[Book] = ()) -> None:
        self.books = tuple(books)

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

    def of(self, blobs: Array | Sequence[str]) -> Found:
        """What these blobs define. A blob that was not analysed defines nothing."""
        asked = np.asarray(blobs, np.bytes_)
        parts = [_definitions(*one) for one in self.find(asked)]
        if not parts:
            return Found(*(np.zeros(0, np.int64) for _ in Found._fields))
        joined = Found(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
        order = np.argsort(joined.blob, kind="stable")
        return Found(*(array[order] for array in joined))


def _definitions(book: Book, asked: Array, places: Array) -> Found:
    first, last = book.starts[places].astype(np.int64), book.starts[places + 1].astype(np.int64)
    counts = last - first
    rows = np.arange(counts.sum()) + np.repeat(first - (np.cumsum(counts) - counts), counts)
    return Found(np.repeat(asked, counts), book.at[rows], book.size[rows], book.line[rows], book.kind[rows])


def write_book(folder: Path, id: str, entries: Iterable[Entry], version: int) -> BookInfo:
    """Durable, and in `folder` under its name, on return. The first entry of a blob is taken."""
    once = {entry.blob: entry for entry in entries}
    ids = np.array(list(once), np.bytes_)
    keys = keys_of(ids)
    order = np.argsort(keys, kind="stable")
    sorted_entries = [once[blob.decode()] for blob in ids[order].tolist()]
    rows = [row for entry in sorted_entries for row in entry.definitions]
    table = np.array(rows, np.uint32).reshape(-1, 4)
    facts = [entry.facts for entry in sorted_entries]
    arrays: dict[str, Array] = {
        "keys": keys[order],
        "blobs": ids[order],
        "starts": _starts([len(entry.definitions) for entry in sorted_entries], np.uint32),
        "facts_at": _starts([len(one) for one in facts], np.uint64),
        "at": np.ascontiguousarray(table[:, 0]),
        "size": table[:, 1].astype(np.uint16),
        "line": np.ascontiguousarray(table[:, 2]),
        "kind": table[:, 3].astype(np.uint8),
        "facts": np.frombuffer(b"".join(facts), np.uint8),
    }
    return BookInfo(id, str(_write(folder / f"{id}{_SUFFIX}", arrays, version)), len(once))


def _starts(sizes: list[int], dtype: type[np.unsignedinteger[Any]]) -> Array:
    return np.cumsum([0, *sizes], dtype=dtype)


def _write(path: Path, arrays: dict[str, Array], version: int) -> Path:
    sections: dict[str, tuple[str, int, int]] = {}
    size = crc = 0
    bodies = []
    for name, array in arrays.items():
        sections[name] = (array.dtype.str, size, len(array))
        body = array.tobytes()
        bodies.append(body + bytes(-len(body) % 8))
        size += len(bodies[-1])
        crc = zlib.crc32(bodies[-1], crc)
    header = msgspec.json.encode(_Header(FORMAT, version, sections, size, crc))
    aside = path.with_name(path.name + ".new")
    with aside.open("wb") as file:
        file.write(b"%08x\n%b\n" % (zlib.crc32(header), header))
        file.writelines(bodies)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)
    sync_folder(path.parent)
    return path


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Library:
    """A folder of books: every whole one in it counts, so there is no list of them to keep."""

    def __init__(self, folder: Path, version: int | None = None) -> None:
        """Books of another `version` are of no use and go."""
        self.folder = folder
        self._version = version

    def open(self) -> Books:
        """Damaged books go: what was in them is analysed again. So does what a killed process left half written."""
        self.folder.mkdir(parents=True, exist_ok=True)
        books = []
        for path in sorted(self.folder.glob(f"*{_SUFFIX}"), reverse=True):
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
        inside = self.folder / Path(f"{info.id}{_SUFFIX}").name
        if not inside.exists():
            aside = inside.with_name(inside.name + ".new")
            aside.unlink(missing_ok=True)
            try:
                os.link(info.path, aside)
            except OSError:
                shutil.copyfile(info.path, aside)
                with aside.open("rb") as file:
                    os.fsync(file.fileno())
            Book(aside).verify()
            aside.rename(inside)
            sync_folder(self.folder)
        return Book(inside)


def pick(books: Sequence[Book]) -> list[Book]:
    """Those to merge next: more than a few of about the same size."""
    tiers: dict[int, list[Book]] = {}
    for book in books:
        tiers.setdefault(max(0, book.weight >> 14).bit_length() // (_RATIO.bit_length() - 1), []).append(book)
    return next((tiers[tier] for tier in sorted(tiers) if len(tiers[tier]) > _MOST_PER_TIER), [])


def merge(library: Library, id: str, chosen: Sequence[Book], live: Array | None = None) -> BookInfo:
    """One book instead of several; `live`: keys of the blobs that are still in an index, ascending; others go."""

    def entries() -> Iterable[Entry]:
        for book in chosen:
            wanted = np.ones(len(book.keys), bool) if live is None else _among(book.keys, live)
            yield from (book.entry(place) for place in np.flatnonzero(wanted).tolist())

    info = write_book(library.folder, id, entries(), chosen[0].version)
    for book in chosen:
        book.path.unlink(missing_ok=True)
    return info


def _among(keys: Array, live: Array) -> NDArray[np.bool_]:
    if not len(live):
        return np.zeros(len(keys), bool)
    return np.asarray(live[np.minimum(np.searchsorted(live, keys), len(live) - 1)] == keys)
