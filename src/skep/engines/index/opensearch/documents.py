"""What a document of ours is on the server.

Its text never goes through the server's own analysis: it may be any bytes, and what is found must be what the embedded
engine finds. So the trigram keys of the embedded engine are written as words of three letters, and the document itself
as one stored value that the server hands back as it came.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from skep.engines.index.trigram.keys import Distinct
from skep.model.search import Document, digest

#: of mapping and body; an index of another format is copied into a new one
FORMAT = 2
#: a document's place is its generation and, in the lower bits, its count within that
PLACE_BITS = 24

_LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)
_GRAMS = {"type": "text", "analyzer": "whitespace", "index_options": "docs", "norms": False}
_LONG = {"type": "long"}
MAPPING: dict[str, Any] = {
    "dynamic": "strict",
    "_meta": {"format": FORMAT},
    "_source": {"enabled": False},
    "properties": {
        "place": _LONG,
        "source": _LONG,
        "marked": {"type": "boolean", "doc_values": False},
        "size": {"type": "long", "index": False},
        "language": {"type": "keyword", "doc_values": False},
        "path": {"type": "keyword"},
        "blob": {"type": "keyword"},
        "digest": {"type": "keyword", "index": False},
        "grams": _GRAMS,
        "path_grams": _GRAMS,
        "body": {"type": "binary", "store": True},
    },
}


class Row(msgspec.Struct, frozen=True):
    """A document as it is sent."""

    place: int
    source: int
    #: a test, a copy or generated
    marked: bool
    #: bytes of its content
    size: int
    language: str
    #: its hash: paths are any bytes
    path: str
    blob: str
    digest: str
    grams: str
    path_grams: str
    body: bytes


class Light(msgspec.Struct, frozen=True):
    """What is asked of every candidate before its body is."""

    place: int
    source: int
    size: int
    path: str
    blob: str
    digest: str

    @property
    def born(self) -> int:
        """The generation it came with."""
        return self.place >> PLACE_BITS


LIGHT = ("place", "source", "size", "path", "blob", "digest")


def light(hit: dict[str, Any]) -> Light:
    fields = hit["fields"]
    return Light(*(fields[name][0] for name in LIGHT))


def path_hash(path: bytes) -> str:
    return hashlib.blake2b(path, digest_size=16).hexdigest()


def words(keys: np.typing.NDArray[Any]) -> str:
    """Trigram keys, each as a word of three letters."""
    letters = np.full((len(keys), 4), 32, np.uint8)
    for nth, shift in enumerate((12, 6, 0)):
        letters[:, nth] = _LETTERS[keys >> shift & 63]
    return letters.tobytes().decode()


def actions(documents: Iterator[tuple[int, int, Document]]) -> Iterator[bytes]:
    """For `bulk`: write the documents, each with its place and the number of its source."""
    distinct = Distinct()
    for place, source, document in documents:
        row = Row(
            place,
            source,
            document.marks > 0,
            len(document.content),
            document.language,
            path_hash(document.path),
            document.blob,
            digest([(document.path, document.blob, document.branches)]),
            words(distinct.keys(document.content)),
            words(distinct.keys(document.path + b"\n")),
            msgspec.msgpack.encode(document),
        )
        yield b'{"index":{"_id":"%d"}}\n%b' % (place, msgspec.json.encode(row))
