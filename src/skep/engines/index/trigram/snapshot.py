"""What a search sees: the shards, which of their documents are dead, and where each source stands. Never changed,
only replaced, so a running search keeps the one it began with."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from skep.engines.index.base import Gains, Size, Standing, Visible
from skep.engines.index.trigram.postings import Mask
from skep.engines.index.trigram.shard import Shard
from skep.lazy import lazy_property


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """A shard and its dead."""

    shard: Shard
    dead: Mask

    @property
    def dead_count(self) -> int:
        return int(np.count_nonzero(self.dead))

    @property
    def live_bytes(self) -> int:
        share = 1 - self.dead_count / self.shard.documents
        return int(self.shard.bytes * share)


@dataclass(frozen=True, eq=False)
class Snapshot:
    parts: tuple[Part, ...] = ()
    #: by source number
    standings: dict[int, Standing] = field(default_factory=dict)
    #: numbers of sources whose shards were damaged, until they are built anew
    lost: frozenset[int] = frozenset()

    @classmethod
    def of(cls, shards: Iterable[Shard], standings: dict[int, Standing]) -> "Snapshot":
        """Of shards in which nothing is dead."""
        return cls(tuple(Part(shard, np.zeros(shard.documents, bool)) for shard in shards), standings)

    def allowed(self, visible: Visible) -> Mask:
        """By source number: seen by the caller, and known to be whole. Long enough for every shard."""
        allowed = np.zeros(self._size, bool)
        shared = min(len(visible), self._size)
        allowed[:shared] = visible[:shared]
        allowed &= self._standing_mask
        return allowed

    def misses(self, visible: Visible) -> bool:
        """Is there a source that the caller may see and that cannot be searched now?"""
        return any(number < len(visible) and visible[number] for number in self.lost)

    def gains(self, gains: Gains | None) -> Gains | None:
        """Long enough for every shard."""
        return None if gains is None else np.pad(gains[: self._size], (0, max(0, self._size - len(gains))))

    def living(self, number: int) -> Iterator[tuple[bytes, str, int]]:
        """Path, git blob and branches of every document of a source."""
        for part in self.parts:
            shard = part.shard
            for document in np.flatnonzero((shard.sources == number) & ~part.dead).tolist():
                yield shard.path(document), shard.blob(document), int(shard.branches[document])

    def blobs(self) -> Iterator[NDArray[np.bytes_]]:
        return (part.shard.blobs[~part.dead] for part in self.parts)

    @lazy_property
    def _size(self) -> int:
        return 1 + max((part.shard.manifest.sources[-1] for part in self.parts), default=0)

    @lazy_property
    def _standing_mask(self) -> Mask:
        mask = np.zeros(self._size, bool)
        mask[[number for number in self.standings if number < self._size]] = True
        return mask

    @lazy_property
    def size(self) -> Size:
        dead = sum(part.dead_count for part in self.parts)
        documents = sum(part.shard.documents for part in self.parts)
        return Size(len(self.parts), documents - dead, sum(part.live_bytes for part in self.parts))


def pack(dead: Mask) -> bytes:
    return np.packbits(dead, bitorder="little").tobytes()


def unpack(dead: bytes, documents: int) -> Mask:
    return np.unpackbits(np.frombuffer(dead, np.uint8), count=documents, bitorder="little").astype(bool)
