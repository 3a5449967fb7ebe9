"""A shard: an immutable folder of documents, their texts and their trigrams. Documents with the same text share it."""

import errno
import hashlib
import mmap
import os
import re
import shutil
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from skep.base.errors import Damaged
from skep.base.io import sync_file, sync_folders
from skep.base.lazy import lazy_property
from skep.storage.code_index.analysis_files import keys_of, rows_of
from skep.storage.code_index.model import Document, ShardInfo
from skep.storage.code_index.ranking import EXAMPLE, PROSE, PROSES, is_example
from skep.storage.code_index.trigram.query_plan import All, Grams, Pair, Plan, Some, plan
from skep.storage.code_index.trigram.regex import literal

# What lies in a shard's folder.
#
#     manifest   first line: checksum of the rest; then JSON: format, id, counts, where each array lies, checksums
#     index      the arrays, one after the other, mapped into memory
#     content    the texts, each ending with a newline
#
#     keys       the distinct trigram keys, ascending           counts     texts of each key
#     starts     where a key's postings start, in 2-byte units  postings   numbers of texts, or one bit per text
#     offsets    where a text starts in content                 texts      the document's text
#     sources    number of the document's source
#     hashes     of (source, path), ascending                   order      the document of each hash
#     path_at    where a document's path starts in paths        blobs      ids of the git blobs, padded with NUL
#     paths      each with a newline after it                   languages  which of the manifest's languages it is in
#     marks      test, vendored, generated: bits                branches   bit n: the n-th tip of its source has it
#     path_keys, path_counts, path_starts, path_postings: the same for the trigrams of the paths, by document
#
# A key's postings are bits when that is smaller; which it is follows from its count.

FORMAT = 4
_ID = re.compile(r"shd_[0-9A-Z]{26}")


class OtherFormat(Damaged):
    """Another Skep made the shard. Nothing is wrong with it, and nothing can be done with it here."""


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


def seal(manifest: Manifest) -> bytes:
    body = msgspec.json.encode(manifest)
    return b"%08x\n" % zlib.crc32(body) + body


def unseal(folder: Path) -> Manifest:
    crc, _, body = (folder / "manifest").read_bytes().partition(b"\n")
    if crc != b"%08x" % zlib.crc32(body):
        raise Damaged(f"the manifest of shard {folder.name} fails its checksum")
    manifest = msgspec.json.decode(body, type=Manifest)
    if manifest.format != FORMAT:
        raise OtherFormat(f"shard {folder.name} has format {manifest.format}; this Skep reads format {FORMAT}")
    return manifest


# Which texts, or paths, hold a trigram, and from that which can match: a plan over the postings.

Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: further keys hardly narrow what this many left over
_MOST_KEYS = 24
#: reading so few documents costs no more than asking for another key
_FEW = 3


def bitmap_size(texts: int) -> int:
    """Bytes of one bit for each, even, so that lists and bitmaps share an array of 2-byte units."""
    return (texts + 15) // 16 * 2


@dataclass(frozen=True, eq=False, slots=True)
class Postings:
    """The distinct keys, ascending; how many texts have each; where its texts start; the texts, by their numbers."""

    keys: NDArray[Any]
    counts: NDArray[Any]
    starts: NDArray[Any]
    texts: NDArray[Any]
    #: texts of the shard
    size: int

    def mask(self, plan: Plan) -> Mask:
        """One flag for each text."""
        match plan:
            case Grams(keys):
                return self._with_all(keys)
            case Pair(first):
                return self._with_any(*np.searchsorted(self.keys, (first, first + 64)).tolist())
            case All(parts):
                mask = self.mask(parts[0])
                for part in parts[1:]:
                    if not mask.any():
                        break
                    mask &= self.mask(part)
                return mask
            case Some(parts):
                mask = np.zeros(self.size, bool)
                for part in parts:
                    mask |= self.mask(part)
                return mask

    def _with_any(self, first: int, last: int) -> Mask:
        places = np.arange(first, last)
        mask = np.zeros(self.size, bool)
        dense = self.counts[places] > self._units
        for place in places[~dense].tolist():
            mask[self._listed(place)] = True
        return mask | self._flags(np.bitwise_or, places[dense]) if dense.any() else mask

    def _with_all(self, keys: NDArray[np.uint32]) -> Mask:
        """The texts that have every key: those of the rarest listed ones, out of which come those with all bits."""
        places = self.keys.searchsorted(keys)
        if places[-1] >= len(self.keys) or not (self.keys[places] == keys).all():
            return np.zeros(self.size, bool)
        counts = self.counts[places]
        order = counts.argsort()[:_MOST_KEYS]
        split = int(counts[order].searchsorted(self._units, "right"))
        rare, dense = places[order[:split]].tolist(), places[order[split:]]
        if not rare:
            return self._flags(np.bitwise_and, dense)
        ids = self._listed(rare[0])
        for place in rare[1:]:
            if len(ids) <= _FEW:
                break
            ids = np.intersect1d(ids, self._listed(place), assume_unique=True)
        mask = np.zeros(self.size, bool)
        mask[ids] = True
        return mask & self._flags(np.bitwise_and, dense) if len(ids) > _FEW and len(dense) else mask

    @property
    def _units(self) -> int:
        return bitmap_size(self.size) // 2

    def _listed(self, place: int) -> NDArray[Any]:
        start = int(self.starts[place])
        return self.texts[start : start + int(self.counts[place])]

    def _flags(self, joined: np.ufunc, places: NDArray[Any]) -> Mask:
        """Of keys whose texts are bits."""
        rows = self.texts[self.starts[places][:, None] + np.arange(self._units, dtype=np.uint32)]
        flags = joined.reduce(rows).view(np.uint8)
        return np.unpackbits(flags, count=self.size, bitorder="little").view(bool)


#: the bitmaps of texts stay short; documents can be numbered and counted in two bytes
MOST_TEXTS, MOST_DOCUMENTS = 1 << 14, (1 << 16) - 1
MOST_BYTES = 256_000_000
#: (key, text) pairs: what bounds the memory of a build
MOST_PAIRS = 32_000_000
_POSTINGS = ("keys", "counts", "starts", "postings")
#: of git blobs: the beginnings of their ids
Keys = NDArray[np.uint64]
#: one blob of so many is part of the sample
_SAMPLE = np.uint64(32)
#: what the path of an example holds
_EXAMPLES = [part for word in ("ample", "demo") if (part := plan(literal(word, ignore_case=False)))]


def path_hash(source: int, path: bytes) -> int:
    digest = hashlib.blake2b(path, digest_size=8, salt=source.to_bytes(8, "little")).digest()
    return int.from_bytes(digest, "little")


class Shard:
    """An open shard. Its files stay open, even when removed from disk, until nobody refers to it."""

    def __init__(self, folder: Path) -> None:
        self._file = -1
        try:
            self.manifest = unseal(folder)
            self._index = _map(folder / "index", self.manifest.index_size)
            #: all texts
            self.content = _map(folder / "content", self.manifest.content_size)
            self._file = os.open(folder / "content", os.O_RDONLY | os.O_CLOEXEC)
            self._open_sections()
        except (OSError, ValueError, KeyError, msgspec.MsgspecError) as error:
            raise Damaged(f"shard {folder.name} cannot be opened: {error}") from error
        self.id = self.manifest.id
        self.documents = self.manifest.documents
        #: of the texts, each counted once
        self.bytes = self.manifest.content_size
        #: the distinct source numbers, ascending
        self.numbers = np.array(self.manifest.sources, np.uint32)

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)

    def _open_sections(self) -> None:
        self._offsets = self._section("offsets").view(np.int64)
        self._texts = self._section("texts")
        self.texts = len(self._offsets) - 1
        self.content_postings = self._postings("", self.texts)
        self.path_postings = self._postings("path_", self.manifest.documents)
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
        _rises_to(self._offsets, self.manifest.content_size)
        _rises_to(self._path_at, paths.count)
        if int(self._texts.max(initial=0)) >= max(1, self.texts):
            raise ValueError("a document has a text that is not there")

    def _postings(self, of: str, size: int) -> Postings:
        keys, counts, starts, numbers = (self._section(of + name) for name in _POSTINGS)
        return Postings(keys, counts, starts, numbers, size)

    def _section(self, name: str) -> NDArray[Any]:
        section = self.manifest.sections[name]
        return np.frombuffer(self._index, section.dtype, section.count, section.start)

    def has(self, source: int) -> bool:
        place = int(np.searchsorted(self.numbers, source))
        return place < len(self.numbers) and bool(self.numbers[place] == source)

    def text(self, document: int) -> bytes:
        start, end = self.span(document)
        return self.content[start:end]

    def span(self, document: int) -> tuple[int, int]:
        """Where its text lies in the content."""
        text = int(self._texts[document])
        return int(self._offsets[text]), int(self._offsets[text + 1])

    def spans(self, documents: Ids) -> tuple[Ids, Ids]:
        """Where their texts begin and end."""
        texts = self._texts[documents] if self._shares else documents
        return self._offsets[:-1][texts], self._offsets[1:][texts]

    def distinct(self, documents: Ids) -> Ids:
        """One for each text, in the order of the texts."""
        return documents[np.unique(self._texts[documents], return_index=True)[1]] if self._shares else documents

    def runs(self, documents: Ids) -> list[tuple[int, int]]:
        """Where to read their texts, from here to there: neighbours in one go."""
        starts, ends = self.spans(documents)
        breaks = np.flatnonzero(starts[1:] != ends[:-1])
        firsts, lasts = [int(starts[0]), *starts[breaks + 1].tolist()], [*ends[breaks].tolist(), int(ends[-1])]
        if min(firsts) < 0 or max(lasts) > self.bytes:
            raise Damaged(f"a document of shard {self.id} lies outside its content")
        return list(zip(firsts, lasts, strict=True))

    def having(self, texts: Mask) -> Mask:
        """The documents that have one of these texts."""
        return texts[self._texts] if self._shares else texts

    @property
    def _shares(self) -> bool:
        """If none is shared, a document and its text have the same number."""
        return self.texts < self.documents

    def look(self) -> None:
        """Damaged when a file has become shorter: touching what is mapped but not there ends the process. Or when the
        last line does not end: who looks for its end would begin from the first again."""
        sizes = _size(self._index), _size(self.content)
        if sizes != (self.manifest.index_size, self.manifest.content_size):
            raise Damaged(f"the files of shard {self.id} have another size than its manifest says")
        if self.bytes and self.content[-1] != ord("\n"):
            raise Damaged(f"the last line of shard {self.id} does not end")

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

    def holding(self, keys: Keys) -> Ids:
        """The documents whose git blobs have one of these keys."""
        known, order = self._by_blob
        first = np.searchsorted(known, keys)
        return order[rows_of(first, np.searchsorted(known, keys, "right") - first)]

    @lazy_property
    def _by_blob(self) -> tuple[Keys, Ids]:
        keys = keys_of(self.blobs)
        order = keys.argsort(kind="stable")
        return keys[order], order

    @lazy_property
    def traits(self) -> NDArray[np.uint8]:
        """The marks of each document, and those that follow from its language and path."""
        prose = [nth for nth, name in enumerate(self.manifest.languages) if name in PROSES]
        examples = np.logical_or.reduce([self.path_postings.mask(part) for part in _EXAMPLES])
        for document in np.flatnonzero(examples).tolist():
            examples[document] = is_example(self.path(document))
        traits = self.marks | np.where(np.isin(self.languages, prose), PROSE, 0) | np.where(examples, EXAMPLE, 0)
        return traits.astype(np.uint8)

    @lazy_property
    def pairs(self) -> int:
        """Of keys and texts that have them."""
        return int(self.content_postings.counts.sum(dtype=np.int64))

    @lazy_property
    def sampled(self) -> Ids:
        """Some documents, chosen by their git blobs: the same blobs in every shard."""
        return np.flatnonzero(keys_of(self.blobs) % _SAMPLE == 0)

    @lazy_property
    def sample(self) -> Keys:
        """The keys of their blobs."""
        return keys_of(self.blobs[self.sampled])

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


# The index folder: one folder per shard, moved in whole.


def move_in(shards: Sequence[ShardInfo], folder: Path, number: int | None = None) -> list[Shard]:
    """Open the shards and move them into `folder`, durably; those that are there already stay.

    Damaged, and nothing moved, when one is in neither place or is not what it says it is: with a `number`, one that
    holds documents of that source and no other. Who may see a document follows from it.
    """
    opened = [_open(info, folder, number) for info in shards]
    for info in shards:
        if not (folder / info.id).exists():
            _move(Path(info.folder), folder / info.id)
    if opened:
        sync_folders(folder)
    return opened


def _open(info: ShardInfo, folder: Path, number: int | None) -> Shard:
    inside = folder / info.id
    return open_shard(info, inside if is_shard_id(info.id) and inside.exists() else Path(info.folder), number)


def open_shard(info: ShardInfo, folder: Path, number: int | None) -> Shard:
    """Damaged when what is in the folder is not what `info` says, or not of that source."""
    if not is_shard_id(info.id):
        raise Damaged(f"'{info.id}' is not the id of a shard")
    shard = Shard(folder)
    if shard.id != info.id:
        raise Damaged(f"{info.folder} is shard {shard.id}, not {info.id}")
    if number is not None and shard.manifest.sources != [number]:
        raise Damaged(f"shard {shard.id} holds documents of other sources than number {number}")
    return shard


def _move(outside: Path, inside: Path) -> None:
    try:
        outside.rename(inside)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        aside = inside.with_name(inside.name + ".copy")
        shutil.copytree(outside, aside, copy_function=_copy_durably)
        sync_folders(aside)
        aside.rename(inside)
        shutil.rmtree(outside)


def _copy_durably(source: str, target: str) -> None:
    shutil.copyfile(source, target)
    with Path(target).open("rb") as file:
        sync_file(file)


def remove(folder: Path, ids: Collection[str]) -> None:
    """Searches that still read these shards have them open and are not disturbed."""
    for id in ids:
        shutil.rmtree(folder / id, ignore_errors=True)


def remove_unnamed(folder: Path, named: Collection[str]) -> None:
    """What a killed process left behind: moved in but never adopted, or half merged."""
    for path in folder.iterdir():
        if path.is_dir() and path.name not in named:
            shutil.rmtree(path, ignore_errors=True)
