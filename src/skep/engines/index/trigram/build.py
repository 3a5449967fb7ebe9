"""Builds shards. Runs in a process of its own: it keeps a core busy and needs a few hundred megabytes."""

import errno
import os
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from skep.clock import Clock, SystemClock
from skep.engines.index.trigram.keys import KEYS, document_keys, text_keys
from skep.engines.index.trigram.postings import bitmap_size
from skep.engines.index.trigram.shard import (
    FORMAT,
    MOST_BYTES,
    MOST_DOCUMENTS,
    Manifest,
    Section,
    path_hash,
    seal,
)
from skep.errors import NoSpace
from skep.model.ids import new_id
from skep.model.search import Document, ShardInfo

#: (key, document) pairs of one shard: what bounds the memory of a build
_MOST_PAIRS = 32_000_000
#: bytes of the flags that bitmaps are made of at a time
_FLAGS = 1 << 22
_DOCUMENT_BITS = np.uint32(14)
Array = NDArray[Any]


class TrigramBuilder:
    """Documents of one source into shards."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    def build(
        self, number: int, documents: Iterable[Document], out: Path, progress: Callable[[int], None]
    ) -> tuple[ShardInfo, ...]:
        return self.build_mixed(((number, document) for document in documents), out, progress)

    def build_mixed(
        self, documents: Iterable[tuple[int, Document]], out: Path, progress: Callable[[int], None]
    ) -> tuple[ShardInfo, ...]:
        """Documents of several sources, each with its source's number."""
        out.mkdir(parents=True, exist_ok=True)
        done: list[ShardInfo] = []
        writer: ShardWriter | None = None
        try:
            for count, (number, document) in enumerate(documents, start=1):
                if writer is not None and not writer.has_room(len(document.content)):
                    done.append(writer.finish())
                    writer = None
                if writer is None:
                    writer = ShardWriter(out, new_id("shd", self._clock.now()))
                writer.add(number, document)
                progress(count)
            if writer is not None:
                done.append(writer.finish())
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise NoSpace(
                    f"no space left in {out} to build an index", hint="free some space; it is tried again"
                ) from None
            raise
        finally:
            if writer is not None:
                writer.close()
        sync_folder(out)
        return tuple(done)


class ShardWriter:
    def __init__(self, out: Path, id: str) -> None:
        self._id = id
        self._folder = out / id
        self._folder.mkdir()
        self._content: BinaryIO = (self._folder / "content").open("wb", buffering=1 << 20)
        self._crc = 0
        self._seen = np.zeros(KEYS, bool)
        self._pairs: list[Array] = []
        self._pair_count = 0
        self._offsets = [0]
        self._sources: list[int] = []
        self._paths: list[bytes] = []
        self._blobs: list[str] = []
        self._languages: dict[str, int] = {}
        self._traits: list[tuple[int, int, int]] = []

    def has_room(self, size: int) -> bool:
        full = len(self._paths) >= MOST_DOCUMENTS or self._pair_count >= _MOST_PAIRS
        return not full and self._offsets[-1] + size < MOST_BYTES

    def add(self, source: int, document: Document) -> None:
        content = document.content
        if content and not content.endswith(b"\n"):
            content += b"\n"
        pairs = document_keys(content, self._seen).astype(np.uint32)
        pairs <<= _DOCUMENT_BITS
        pairs |= np.uint32(len(self._paths))
        self._pairs.append(pairs)
        self._pair_count += len(pairs)
        self._content.write(content)
        self._crc = zlib.crc32(content, self._crc)
        self._offsets.append(self._offsets[-1] + len(content))
        self._sources.append(source)
        self._paths.append(document.path)
        self._blobs.append(document.blob)
        language = self._languages.setdefault(document.language, len(self._languages))
        self._traits.append((language, document.marks, document.branches))

    def finish(self) -> ShardInfo:
        """The folder is durable on return."""
        sync_file(self._content)
        pairs = np.concatenate(self._pairs)
        self._pairs.clear()
        pairs.sort()
        arrays = _postings("", pairs, len(self._paths))
        del pairs
        arrays |= _postings("path_", _path_pairs(self._paths), len(self._paths)) | self._documents()
        with (self._folder / "index").open("wb") as file:
            sections, size, crc = _write_arrays(file, arrays)
            sync_file(file)
        manifest = Manifest(
            FORMAT,
            self._id,
            len(self._paths),
            sorted(set(self._sources)),
            list(self._languages),
            size,
            crc,
            self._offsets[-1],
            self._crc,
            sections,
        )
        with (self._folder / "manifest").open("wb") as file:
            file.write(seal(manifest))
            sync_file(file)
        sync_folder(self._folder)
        self.close()
        return ShardInfo(self._id, str(self._folder), len(self._paths), self._offsets[-1])

    def close(self) -> None:
        self._content.close()

    def _documents(self) -> dict[str, Array]:
        hashes = np.array([path_hash(*pair) for pair in zip(self._sources, self._paths, strict=True)], np.uint64)
        order = np.argsort(hashes, kind="stable")
        sizes = np.array([0] + [len(path) + 1 for path in self._paths], np.uint32)
        return {
            "offsets": np.array(self._offsets, np.uint64),
            "sources": np.array(self._sources, np.uint32),
            "hashes": hashes[order],
            "order": order.astype(np.uint16),
            "path_at": np.cumsum(sizes, dtype=np.uint32),
            "blobs": np.array(self._blobs, np.bytes_),
            "languages": np.array([language for language, _, _ in self._traits], np.uint16),
            "marks": np.array([marks for _, marks, _ in self._traits], np.uint8),
            "branches": np.array([branches for _, _, branches in self._traits], np.uint64),
            "paths": np.frombuffer(b"".join(path + b"\n" for path in self._paths), np.uint8),
        }


def _path_pairs(paths: list[bytes]) -> Array:
    """Sorted and distinct; those of all paths at once, because each is so short."""
    keys = text_keys(b"".join(path + b"\n" for path in paths))
    sizes = np.array([len(path) + 1 for path in paths])
    owners = np.repeat(np.arange(len(paths), dtype=np.uint32), sizes)[: len(keys)]
    inside = np.ones(len(owners), bool)
    ends = np.cumsum(sizes)[:-1]
    inside[ends - 1] = inside[ends - 2] = False
    return np.unique(keys[inside].astype(np.uint32) << _DOCUMENT_BITS | owners[inside])


def _postings(of: str, pairs: Array, size: int) -> dict[str, Array]:
    documents = (pairs & np.uint32(MOST_DOCUMENTS - 1)).astype(np.uint16)
    pairs >>= _DOCUMENT_BITS
    firsts = np.concatenate([[0], np.flatnonzero(pairs[1:] != pairs[:-1]) + 1])[: len(pairs)]
    keys, counts = pairs[firsts], np.diff(firsts, append=len(pairs))
    units = bitmap_size(size) // 2
    sizes = np.minimum(counts, units)
    starts = np.cumsum(sizes) - sizes
    return {
        of + "keys": keys.astype(np.uint32),
        of + "counts": counts.astype(np.uint16),
        of + "starts": starts.astype(np.uint32),
        of + "postings": _lists_and_bitmaps(documents, counts, units),
    }


def _lists_and_bitmaps(documents: Array, counts: Array, units: int) -> Array:
    """The postings of all keys: as they are where a list is no longer than a bitmap, else as a bitmap."""
    dense = counts > units
    in_bits, as_bits = np.repeat(dense, counts), np.repeat(dense, np.minimum(counts, units))
    made = np.empty(len(as_bits), np.uint16)
    made[~as_bits] = documents[~in_bits]
    made[as_bits] = _bitmaps(documents[in_bits], counts[dense], units)
    return made


def _bitmaps(documents: Array, counts: Array, units: int) -> Array:
    """One after the other; so many at a time that their flags take a few megabytes."""
    ends = np.concatenate([[0], np.cumsum(counts)])
    step = max(1, _FLAGS // (16 * units))
    made: list[Array] = [np.empty(0, np.uint16)]
    for at in range(0, len(counts), step):
        some = counts[at : at + step]
        flags = np.zeros((len(some), 16 * units), bool)
        flags[np.repeat(np.arange(len(some)), some), documents[ends[at] : ends[at + len(some)]]] = True
        made.append(np.packbits(flags, axis=1, bitorder="little").view(np.uint16).ravel())
    return np.concatenate(made)


def _write_arrays(file: BinaryIO, arrays: dict[str, Array]) -> tuple[dict[str, Section], int, int]:
    sections: dict[str, Section] = {}
    at = crc = 0
    for name, array in arrays.items():
        sections[name] = Section(array.dtype.str, at, len(array))
        body = array.tobytes()
        body += bytes(-len(body) % 8)
        file.write(body)
        crc = zlib.crc32(body, crc)
        at += len(body)
    return sections, at, crc


def sync_file(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
