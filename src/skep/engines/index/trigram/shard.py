"""A shard: an immutable folder of documents, their texts and their trigrams. Documents with the same text share it."""

import hashlib
import mmap
import os
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from skep.engines.index.books import keys_of, rows_of
from skep.engines.index.ranking import EXAMPLE, PROSE, PROSES, is_example
from skep.engines.index.trigram.manifest import unseal
from skep.engines.index.trigram.plan import plan
from skep.engines.index.trigram.postings import Ids, Mask, Postings
from skep.engines.index.trigram.syntax import literal
from skep.errors import Damaged
from skep.lazy import lazy_property
from skep.model.search import Document

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
