"""What lies in a shard's folder.

    manifest   first line: checksum of the rest; then JSON: format, id, counts, where each array lies, checksums
    index      the arrays, one after the other, mapped into memory
    content    the texts, each ending with a newline

    keys       the distinct trigram keys, ascending           counts     texts of each key
    starts     where a key's postings start, in 2-byte units  postings   numbers of texts, or one bit per text
    offsets    where a text starts in content                 texts      the document's text
    sources    number of the document's source
    hashes     of (source, path), ascending                   order      the document of each hash
    path_at    where a document's path starts in paths        blobs      ids of the git blobs, padded with NUL
    paths      each with a newline after it                   languages  which of the manifest's languages it is in
    marks      test, vendored, generated: bits                branches   bit n: the n-th tip of its source has it
    path_keys, path_counts, path_starts, path_postings: the same for the trigrams of the paths, by document

A key's postings are bits when that is smaller; which it is follows from its count.
"""

import re
import zlib
from pathlib import Path

import msgspec

from skep.errors import Damaged

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
