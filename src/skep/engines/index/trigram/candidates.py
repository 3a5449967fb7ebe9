"""Which documents of a shard can match: a plan over the postings."""

import numpy as np

from skep.engines.index.trigram.plan import All, Grams, Plan, Some
from skep.engines.index.trigram.shard import Ids, Mask, Shard, bitmap_size

#: further keys hardly narrow what this many left over
_MOST_KEYS = 24
#: reading so few documents costs no more than asking for another key
_FEW = 3
#: a key that half of the documents have is asked for only while more than this are left
_MANY = 30


def candidates(shard: Shard, plan: Plan) -> Mask:
    """One flag per document."""
    match plan:
        case Grams():
            mask = np.zeros(shard.documents, bool)
            mask[_with_all(shard, plan)] = True
            return mask
        case All(parts):
            mask = np.ones(shard.documents, bool)
            for part in parts:
                mask &= candidates(shard, part)
            return mask
        case Some(parts):
            mask = np.zeros(shard.documents, bool)
            for part in parts:
                mask |= candidates(shard, part)
            return mask


def _with_all(shard: Shard, grams: Grams) -> Ids:
    """The documents that have every key, rarest key first."""
    places = np.searchsorted(shard.keys, grams.keys)
    if places[-1] >= len(shard.keys) or not np.array_equal(shard.keys[places], grams.keys):
        return np.empty(0, np.int64)
    counts = shard.counts[places]
    units = bitmap_size(shard.documents) // 2
    ids: Ids | None = None
    for nth in np.argsort(counts, kind="stable")[:_MOST_KEYS].tolist():
        start, count = int(shard.starts[places[nth]]), int(counts[nth])
        if ids is not None and len(ids) <= (_MANY if 2 * count > shard.documents else _FEW):
            break
        if count > units:
            flags = shard.postings[start : start + units].view(np.uint8)
            if ids is None:
                ids = np.flatnonzero(np.unpackbits(flags, count=shard.documents, bitorder="little"))
            else:
                ids = ids[flags[ids >> 3] >> (ids & 7).astype(np.uint8) & 1 != 0]
        else:
            listed = shard.postings[start : start + count]
            if ids is None:
                ids = listed.astype(np.int64)
            else:
                mask = np.zeros(shard.documents, bool)
                mask[listed] = True
                ids = ids[mask[ids]]
    assert ids is not None
    return ids
