"""Merging: few large shards answer faster than many small ones, the dead go, and forks come to share their texts."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from skep.engines.index.trigram.build import TrigramBuilder
from skep.engines.index.trigram.postings import Mask
from skep.engines.index.trigram.shard import MOST_BYTES, MOST_DOCUMENTS, MOST_PAIRS, MOST_TEXTS, Shard
from skep.engines.index.trigram.snapshot import Part, unpack
from skep.model.search import Document, ShardInfo

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
