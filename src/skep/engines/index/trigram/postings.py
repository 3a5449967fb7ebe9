"""Which documents hold a trigram, and from that which can match: a plan over the postings."""

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
#: a key that half of the documents have is asked for only while more than this are left
_MANY = 30


def bitmap_size(documents: int) -> int:
    """Bytes of one bit per document, even, so that lists and bitmaps share an array of 2-byte units."""
    return (documents + 15) // 16 * 2


@dataclass(frozen=True, eq=False, slots=True)
class Postings:
    """The distinct keys, ascending; how many documents have each; where its documents start; the documents."""

    keys: NDArray[Any]
    counts: NDArray[Any]
    starts: NDArray[Any]
    documents: NDArray[Any]
    #: documents of the shard
    size: int

    def mask(self, plan: Plan) -> Mask:
        """One flag per document."""
        match plan:
            case Grams(keys):
                mask = np.zeros(self.size, bool)
                mask[self._with_all(keys)] = True
                return mask
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
        mask = np.zeros(self.size, bool)
        for place in range(first, last):
            ids, flags = self._of(place)
            mask[ids if flags is None else self._set(flags)] = True
        return mask

    def _of(self, place: int) -> tuple[NDArray[Any], NDArray[np.uint8] | None]:
        """The documents of a key: listed, or as bits."""
        start, count = int(self.starts[place]), int(self.counts[place])
        units = bitmap_size(self.size) // 2
        if count > units:
            return self.documents[:0], self.documents[start : start + units].view(np.uint8)
        return self.documents[start : start + count], None

    def _set(self, flags: NDArray[np.uint8]) -> Ids:
        return np.flatnonzero(np.unpackbits(flags, count=self.size, bitorder="little"))

    def _with_all(self, keys: NDArray[np.uint32]) -> Ids:
        """The documents that have every key, rarest key first."""
        places = np.searchsorted(self.keys, keys)
        if places[-1] >= len(self.keys) or not np.array_equal(self.keys[places], keys):
            return np.empty(0, np.int64)
        counts = self.counts[places]
        ids: Ids | None = None
        for nth in np.argsort(counts, kind="stable")[:_MOST_KEYS].tolist():
            if ids is not None and len(ids) <= (_MANY if 2 * int(counts[nth]) > self.size else _FEW):
                break
            listed, flags = self._of(int(places[nth]))
            if ids is None:
                ids = listed.astype(np.int64) if flags is None else self._set(flags)
            elif flags is not None:
                ids = ids[flags[ids >> 3] >> (ids & 7).astype(np.uint8) & 1 != 0]
            else:
                mask = np.zeros(self.size, bool)
                mask[listed] = True
                ids = ids[mask[ids]]
        assert ids is not None
        return ids
