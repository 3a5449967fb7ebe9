"""Books: what analysis found out about git blobs. A book is an immutable file, a library the folder that holds them.

    first line   checksum of the header; then the header, JSON, in one line: format, counts, where each array lies
    keys         the first 8 bytes of each blob's id, ascending     blobs     the ids, as they are written
    starts       where the definitions of a blob begin              facts_at  where its facts begin
    at, size     of a definition's name in the blob                 line, kind
    name         a number for the name                              by_name   the definitions in the order of that
    facts        opaque here; who analyses knows what they mean

A book is written aside and renamed, so whoever sees one sees all of it. Losing one loses no more than time.
"""

import mmap
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from skep.errors import Damaged

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
