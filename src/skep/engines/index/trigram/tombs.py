"""Tombstones: which documents of older shards a delta makes obsolete."""

from collections.abc import Iterable

import msgspec
import numpy as np

from skep.engines.index.trigram.postings import Mask
from skep.engines.index.trigram.shard import Shard, path_hash
from skep.engines.index.trigram.snapshot import Part


class Gone(msgspec.Struct, frozen=True):
    source: int
    #: None: all of them
    paths: frozenset[bytes] | None


def bury(parts: Iterable[Part], gone: Gone) -> list[Part]:
    """The parts that gain dead, with them."""
    hashes = np.array([path_hash(gone.source, path) for path in gone.paths or ()], np.uint64)
    changed: list[Part] = []
    for part in parts:
        if not part.shard.has(gone.source):
            continue
        hit = part.shard.sources == gone.source if gone.paths is None else _named(part.shard, gone, hashes)
        dead = part.dead | hit
        if dead.sum() > part.dead_count:
            changed.append(Part(part.shard, dead))
    return changed


def _named(shard: Shard, gone: Gone, hashes: np.typing.NDArray[np.uint64]) -> Mask:
    mask = np.zeros(shard.documents, bool)
    for document in shard.hashed(hashes):
        if shard.sources[document] == gone.source and shard.path(document) in (gone.paths or ()):
            mask[document] = True
    return mask
