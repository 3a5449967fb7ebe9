"""Merging: few large shards answer faster than many small ones, and the dead go."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from skep.engines.index.trigram.build import TrigramBuilder
from skep.engines.index.trigram.postings import Mask
from skep.engines.index.trigram.shard import MOST_BYTES, MOST_DOCUMENTS, Shard
from skep.engines.index.trigram.snapshot import Part, unpack
from skep.model.search import Document, ShardInfo

#: shards of about the same size that may stand beside each other
_MOST_PER_TIER = 8
_MOST_DEAD = 0.25
#: a tier's shards are up to this many times larger than those of the tier below
_RATIO = 4


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
    return []


def _tier(part: Part) -> int:
    """0: as large as a shard gets, or nearly; the higher, the smaller."""
    live = part.shard.documents - part.dead_count
    share = max(part.live_bytes / MOST_BYTES, live / MOST_DOCUMENTS, 1e-6)
    tier = 0
    while share * _RATIO <= 1:
        share *= _RATIO
        tier += 1
    return tier


def merge(folders: Sequence[str], dead: Sequence[bytes], out: str) -> tuple[ShardInfo, ...]:
    """Write the living documents of these shards as new shards. Plain arguments: it runs in another process."""
    shards = [Shard(Path(folder)) for folder in folders]
    masks = [unpack(flags, shard.documents) for shard, flags in zip(shards, dead, strict=True)]
    return TrigramBuilder().build_mixed(_living(shards, masks), Path(out), lambda _: None)


def _living(shards: list[Shard], dead: list[Mask]) -> Iterator[tuple[int, Document]]:
    """By source and path, so that a source's files lie together."""
    places = sorted(
        (int(shard.sources[document]), shard.path(document), nth, document)
        for nth, shard in enumerate(shards)
        for document in range(shard.documents)
        if not dead[nth][document]
    )
    for source, _, nth, document in places:
        yield source, shards[nth].document(document)
