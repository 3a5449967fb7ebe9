"""A shard: an immutable folder of at most 16,384 documents, their text and their trigrams.

    manifest   first line: checksum of the rest; then JSON: format, id, counts, where each array lies, checksums
    index      the arrays, one after the other, mapped into memory
    content    the documents, each ending with a newline

    keys       the distinct trigram keys, ascending           counts     documents of each key
    starts     where a key's postings start, in 2-byte units  postings   numbers of documents, or one bit per document
    offsets    where a document's text starts in content      sources    number of the document's source
    hashes     of (source, path), ascending                   order      the document of each hash
    path_at    where a document's path starts in paths        blobs      ids of the git blobs, padded with NUL
    paths      each with a newline after it                   languages  which of the manifest's languages it is in
    marks      test, vendored, generated: bits                branches   bit n: the n-th tip of its source has it
    path_keys, path_counts, path_starts, path_postings: the same for the trigrams of the paths

A key's postings are bits when that is smaller; which it is follows from its count.
"""

import hashlib
import mmap
import os
import re
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from skep.engines.index.trigram.postings import Postings
from skep.errors import Damaged
from skep.model.search import Document

FORMAT = 3
MOST_DOCUMENTS = 1 << 14
MOST_BYTES = 128_000_000
_POSTINGS = ("keys", "counts", "starts", "postings")
_ID = re.compile(r"shd_[0-9A-Z]{26}")


class Section(msgspec.Struct, frozen=True):
    dtype: str
    start: int
    count: int


class Manifest(msgspec.Struct, frozen=True):
    format: int
    id: str
    documents: int
    #: the distinct source numbers
    sources: list[int]
    #: the distinct languages; the empty one is "not known"
    languages: list[str]
    index_size: int
    index_crc: int
    content_size: int
    content_crc: int
    sections: dict[str, Section]


def is_shard_id(name: str) -> bool:
    return _ID.fullmatch(name) is not None


def path_hash(source: int, path: bytes) -> int:
    digest = hashlib.blake2b(path, digest_size=8, salt=source.to_bytes(8, "little")).digest()
    return int.from_bytes(digest, "little")


def seal(manifest: Manifest) -> bytes:
    body = msgspec.json.encode(manifest)
    return b"%08x\n" % zlib.crc32(body) + body


def _unseal(folder: Path) -> Manifest:
    crc, _, body = (folder / "manifest").read_bytes().partition(b"\n")
    if crc != b"%08x" % zlib.crc32(body):
        raise Damaged(f"the manifest of shard {folder.name} fails its checksum")
    manifest = msgspec.json.decode(body, type=Manifest)
    if manifest.format != FORMAT:
        raise Damaged(f"shard {folder.name} has format {manifest.format}; this Skep reads format {FORMAT}")
    return manifest


class Shard:
    """An open shard. Its files stay open, even when removed from disk, until nobody refers to it."""

    def __init__(self, folder: Path) -> None:
        self._file = -1
        try:
            self.manifest = _unseal(folder)
            self._index = _map(folder / "index", self.manifest.index_size)
            #: the texts of all documents
            self.content = _map(folder / "content", self.manifest.content_size)
            self._file = os.open(folder / "content", os.O_RDONLY | os.O_CLOEXEC)
            self._open_sections()
        except (OSError, ValueError, KeyError, msgspec.MsgspecError) as error:
            raise Damaged(f"shard {folder.name} cannot be opened: {error}") from error
        self.id = self.manifest.id
        self.documents = self.manifest.documents
        self.bytes = self.manifest.content_size
        #: the distinct source numbers, ascending
        self.numbers = np.array(self.manifest.sources, np.uint32)

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)

    def _open_sections(self) -> None:
        self.content_postings = self._postings("")
        self.path_postings = self._postings("path_")
        self.offsets = self._section("offsets").view(np.int64)
        self.sources = self._section("sources")
        self._hashes = self._section("hashes")
        self._order = self._section("order")
        self._path_at = self._section("path_at")
        self.blobs = self._section("blobs")
        self.languages = self._section("languages")
        self.marks = self._section("marks")
        self.branches = self._section("branches")
        paths = self.manifest.sections["paths"]
        self._paths_start = paths.start
        _rises_to(self.offsets, self.manifest.content_size)
        _rises_to(self._path_at, paths.count)

    def _postings(self, of: str) -> Postings:
        keys, counts, starts, documents = (self._section(of + name) for name in _POSTINGS)
        return Postings(keys, counts, starts, documents, self.manifest.documents)

    def _section(self, name: str) -> NDArray[Any]:
        section = self.manifest.sections[name]
        return np.frombuffer(self._index, section.dtype, section.count, section.start)

    def has(self, source: int) -> bool:
        place = int(np.searchsorted(self.numbers, source))
        return place < len(self.numbers) and bool(self.numbers[place] == source)

    def text(self, document: int) -> bytes:
        return self.content[int(self.offsets[document]) : int(self.offsets[document + 1])]

    def look(self) -> None:
        """Damaged when a file has become shorter: touching what is mapped but not there ends the process."""
        sizes = _size(self._index), _size(self.content)
        if sizes != (self.manifest.index_size, self.manifest.content_size):
            raise Damaged(f"the files of shard {self.id} have another size than its manifest says")

    def path(self, document: int) -> bytes:
        start, end = int(self._path_at[document]), int(self._path_at[document + 1]) - 1
        return self._index[self._paths_start + start : self._paths_start + end]

    def blob(self, document: int) -> str:
        return bytes(self.blobs[document]).decode()

    def language(self, document: int) -> str:
        return self.manifest.languages[int(self.languages[document])]

    def document(self, document: int) -> Document:
        return Document(
            self.path(document),
            self.blob(document),
            self.text(document),
            self.language(document),
            int(self.marks[document]),
            int(self.branches[document]),
        )

    def hashed(self, hashes: NDArray[np.uint64]) -> list[int]:
        """The documents whose (source, path) has one of these hashes."""
        return list(map(int, self._order[np.isin(self._hashes, hashes)]))

    def find(self, source: int, path: bytes) -> list[int]:
        """The documents of this path of this source."""
        found = self.hashed(np.array([path_hash(source, path)], np.uint64))
        return [document for document in found if self.sources[document] == source and self.path(document) == path]

    def verify(self) -> None:
        """Read everything and compare checksums; raises Damaged."""
        self.look()
        if zlib.crc32(self._index) != self.manifest.index_crc:
            raise Damaged(f"the index of shard {self.id} fails its checksum")
        crc = at = 0
        while chunk := os.pread(self._file, 1 << 20, at):
            crc = zlib.crc32(chunk, crc)
            at += len(chunk)
        if crc != self.manifest.content_crc:
            raise Damaged(f"the content of shard {self.id} fails its checksum")


def _rises_to(places: NDArray[Any], end: int) -> None:
    if places[0] != 0 or places[-1] != end or (places[1:] < places[:-1]).any():
        raise ValueError("places are out of order")


def _size(mapped: mmap.mmap | bytes) -> int:
    """Of the file, now."""
    return mapped.size() if isinstance(mapped, mmap.mmap) else len(mapped)


def _map(path: Path, size: int) -> mmap.mmap | bytes:
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size != size:
            raise Damaged(f"{path.name} of shard {path.parent.name} has another size than its manifest says")
        return b"" if not size else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
