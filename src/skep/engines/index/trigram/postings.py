"""Which texts, or paths, hold a trigram, and from that which can match: a plan over the postings."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skep.engines.index.trigram.plan import All, Grams, Pair, Plan, Some

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
