"""Trigram shards in a folder: the index that needs no server."""

from pathlib import Path

from skep.engines.db.base import Database
from skep.engines.index.trigram.build import TrigramBuilder
from skep.engines.index.trigram.searcher import TrigramSearcher

__all__ = ["TrigramBuilder", "TrigramSearcher", "open_trigram"]


async def open_trigram(url: str, *, data: Path, db: Database) -> TrigramSearcher:
    """`file:` is DATA/index, `file:PATH` another folder."""
    path = url.partition(":")[2]
    return TrigramSearcher(Path(path) if path else data / "index", db)
