"""Builds shards. Runs in a process of its own: it keeps a core busy and needs a few hundred megabytes."""

import errno
import os
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from skep.base.clock import Clock, SystemClock
from skep.base.errors import NoSpace
from skep.base.ids import new_id
from skep.base.io import sync_file, sync_folders
from skep.storage.code_index.model import Document, ShardInfo
from skep.storage.code_index.trigram.candidates import Part, unpack
from skep.storage.code_index.trigram.query_plan import KEYS, Distinct, text_keys
from skep.storage.code_index.trigram.shard import (
    FORMAT,
    MOST_BYTES,
    MOST_DOCUMENTS,
    MOST_PAIRS,
    MOST_TEXTS,
    Manifest,
    Mask,
    Section,
    Shard,
    bitmap_size,
    path_hash,
    seal,
)

#: bytes of the flags that bitmaps are made of at a time
_FLAGS = 1 << 22
_DOCUMENT_BITS = np.uint64(16)
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
        sync_folders(out)
        return tuple(done)


class ShardWriter:
    def __init__(self, out: Path, id: str) -> None:
        self._id = id
        self._folder = out / id
        self._folder.mkdir()
        self._content: BinaryIO = (self._folder / "content").open("w+b", buffering=1 << 20)
        self._crc = 0
        self._distinct = Distinct()
        #: the first text of each git blob, and the text of each document
        self._first: dict[str, int] = {}
        self._texts: list[int] = []
        #: the distinct keys of each text, and how many texts have each key
        self._keys: list[Array] = []
        self._counts = np.zeros(KEYS, np.uint32)
        self._pair_count = 0
        self._offsets = [0]
        self._sources: list[int] = []
        self._paths: list[bytes] = []
        self._blobs: list[str] = []
        self._languages: dict[str, int] = {}
        self._traits: list[tuple[int, int, int]] = []

    def has_room(self, size: int) -> bool:
        full = len(self._paths) >= MOST_DOCUMENTS or self._next >= MOST_TEXTS or self._pair_count >= MOST_PAIRS
        return not full and self._offsets[-1] + size < MOST_BYTES

    @property
    def _next(self) -> int:
        """The number of the next text."""
        return len(self._offsets) - 1

    def add(self, source: int, document: Document) -> None:
        content = document.content
        if content and not content.endswith(b"\n"):
            content += b"\n"
        text = self._first.setdefault(document.blob, self._next)
        if text == self._next or not self._is(text, content):
            text = self._next
            self._add_text(content)
        self._texts.append(text)
        self._sources.append(source)
        self._paths.append(document.path)
        self._blobs.append(document.blob)
        language = self._languages.setdefault(document.language, len(self._languages))
        self._traits.append((language, document.marks, document.branches))

    def _is(self, text: int, content: bytes) -> bool:
        """The id of a git blob is what somebody says; who shares a text shows it, so the bytes decide."""
        start, end = self._offsets[text : text + 2]
        if end - start != len(content):
            return False
        self._content.flush()
        return os.pread(self._content.fileno(), len(content), start) == content

    def _add_text(self, content: bytes) -> None:
        keys = self._distinct.keys(content)
        self._counts[keys] += 1
        self._keys.append(keys.astype(np.uint32))
        self._pair_count += len(keys)
        self._content.write(content)
        self._crc = zlib.crc32(content, self._crc)
        self._offsets.append(self._offsets[-1] + len(content))

    def finish(self) -> ShardInfo:
        """The folder is durable on return."""
        sync_file(self._content)
        arrays = _postings("", *self._grouped(), self._next)
        arrays |= _postings("path_", *_grouped_paths(self._paths), len(self._paths)) | self._documents()
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
        sync_folders(self._folder)
        self.close()
        return ShardInfo(self._id, str(self._folder), len(self._paths), self._offsets[-1])

    def close(self) -> None:
        self._content.close()

    def _grouped(self) -> tuple[Array, Array, Array]:
        """The distinct keys, how many texts have each, and these, key by key.

        Each is put where it belongs, which is several times faster than sorting pairs.
        """
        keys = np.flatnonzero(self._counts)
        places = np.cumsum(self._counts, dtype=np.uint32) - self._counts
        texts = np.empty(self._pair_count, np.uint16)
        for number, theirs in enumerate(self._keys):
            at = places[theirs]
            texts[at] = number
            at += 1
            places[theirs] = at
        self._keys.clear()
        return keys, self._counts[keys].astype(np.int64), texts

    def _documents(self) -> dict[str, Array]:
        hashes = np.array([path_hash(*pair) for pair in zip(self._sources, self._paths, strict=True)], np.uint64)
        order = np.argsort(hashes, kind="stable")
        sizes = np.array([0] + [len(path) + 1 for path in self._paths], np.uint32)
        return {
            "offsets": np.array(self._offsets, np.uint64),
            "texts": np.array(self._texts, np.uint16),
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


def _grouped_paths(paths: list[bytes]) -> tuple[Array, Array, Array]:
    """The same of paths: of all of them at once, because each is so short."""
    keys = text_keys(b"".join(path + b"\n" for path in paths))
    sizes = np.array([len(path) + 1 for path in paths])
    owners = np.repeat(np.arange(len(paths), dtype=np.uint32), sizes)[: len(keys)]
    inside = np.ones(len(owners), bool)
    ends = np.cumsum(sizes)[:-1]
    inside[ends - 1] = inside[ends - 2] = False
    pairs = np.unique(keys[inside].astype(np.uint64) << _DOCUMENT_BITS | owners[inside])
    distinct, counts = np.unique(pairs >> _DOCUMENT_BITS, return_counts=True)
    return distinct, counts, pairs.astype(np.uint16)


def _postings(of: str, keys: Array, counts: Array, documents: Array, size: int) -> dict[str, Array]:
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


# Merging: few large shards answer faster than many small ones, the dead go, and forks come to share their texts.

#: shards of about the same size that may stand beside each other
_MOST_PER_TIER = 8
_MOST_DEAD = 0.25
#: a tier's shards are up to this many times larger than those of the tier below
_RATIO = 4
#: what is merged makes one shard: it is no fuller than this; and so much larger than the largest of them, or too much
#: would be written too often
_FULL, _GROWTH = 0.95, 1.5
#: two large shards are merged when so much of one is in the other too
_MUCH = 0.25
#: fewer blobs in a sample say nothing
_FEW = 16


def pick(parts: Sequence[Part]) -> list[Part]:
    """The shards to merge next; none: all is well."""
    tiers: dict[int, list[Part]] = defaultdict(list)
    for part in parts:
        if part.dead_count > _MOST_DEAD * part.shard.documents:
            return [part]
        tiers[_tier(part)].append(part)
    for tier in sorted(tiers, reverse=True):
        if tier > 0 and len(tiers[tier]) > _MOST_PER_TIER:
            return tiers[tier]
    return _fitting([*tiers[0], *tiers[1]]) or _alike(tiers[0])


def _fullness(part: Part) -> float:
    """Of a shard with its living only, 1 at most."""
    shard = part.shard
    full = max(
        shard.bytes / MOST_BYTES,
        shard.texts / MOST_TEXTS,
        shard.documents / MOST_DOCUMENTS,
        shard.pairs / MOST_PAIRS,
    )
    return full * (1 - part.dead_count / shard.documents)


def _fitting(parts: Sequence[Part]) -> list[Part]:
    """Large ones that make one together, the smallest first."""
    chosen: list[Part] = []
    together = 0.0
    for part in sorted(parts, key=_fullness):
        if together + _fullness(part) > _FULL:
            break
        chosen.append(part)
        together += _fullness(part)
    return chosen if chosen and together >= _GROWTH * _fullness(chosen[-1]) else []


def _tier(part: Part) -> int:
    """0: as large as a shard gets, or nearly; the higher, the smaller."""
    share = max(_fullness(part), 1e-6)
    tier = 0
    while share * _RATIO <= 1:
        share *= _RATIO
        tier += 1
    return tier


def _alike(parts: Sequence[Part]) -> list[Part]:
    """The two that have most in common, if that is much: a fork and its origin, too large to meet in a tier.

    Merged, they have nothing in common any more, so it comes to an end.
    """
    samples = [np.unique(part.shard.sample[~part.dead[part.shard.sampled]]) for part in parts]
    owners = np.repeat(np.arange(len(parts)), [len(sample) for sample in samples])
    keys = np.concatenate([*samples, np.zeros(0, np.uint64)])
    order = keys.argsort(kind="stable")
    same = keys[order[1:]] == keys[order[:-1]]
    pairs, counts = np.unique(np.stack((owners[order[:-1]], owners[order[1:]]))[:, same], axis=1, return_counts=True)
    if not len(counts):
        return []
    best = int(counts.argmax())
    chosen = pairs[:, best].tolist()
    enough = max(_FEW, _MUCH * min(len(samples[nth]) for nth in chosen))
    return [parts[nth] for nth in chosen] if counts[best] >= enough else []


def merge(folders: Sequence[str], dead: Sequence[bytes], out: str) -> tuple[ShardInfo, ...]:
    """Write the living documents of these shards as new shards. Plain arguments: it runs in another process."""
    shards = [Shard(Path(folder)) for folder in folders]
    masks = [unpack(flags, shard.documents) for shard, flags in zip(shards, dead, strict=True)]
    return TrigramBuilder().build_mixed(_living(shards, masks), Path(out), lambda _: None)


def _living(shards: list[Shard], dead: list[Mask]) -> Iterator[tuple[int, Document]]:
    """By source and path, so that a source's files lie together; but a text that came before comes there again."""
    places = sorted(
        (int(shard.sources[document]), shard.path(document), nth, document)
        for nth, shard in enumerate(shards)
        for document in range(shard.documents)
        if not dead[nth][document]
    )
    first: dict[str, int] = {}
    for place, (_, _, nth, document) in enumerate(places):
        first.setdefault(shards[nth].blob(document), place)
    for source, _, nth, document in sorted(places, key=lambda one: first[shards[one[2]].blob(one[3])]):
        yield source, shards[nth].document(document)
