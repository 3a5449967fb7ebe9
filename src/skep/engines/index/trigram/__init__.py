"""Trigram shards in a folder: the index that needs no server."""

from pathlib import Path

from skep.engines.db.base import Database
from skep.engines.db.sqlite import open_sqlite
from skep.engines.index.trigram.build import TrigramBuilder
from skep.engines.index.trigram.searcher import TrigramSearcher

__all__ = ["TrigramBuilder", "TrigramSearcher", "open_trigram"]


async def open_trigram(url: str, *, data: Path, db: Database) -> TrigramSearcher:
    """`file:` is DATA/index, `file:PATH` another folder."""
    path = url.partition(":")[2]
    folder = Path(path) if path else data / "index"
    if not db.shared:
        return TrigramSearcher(folder, db)
    # shards are files of this machine, and so is the list of them, whoever else shares the database
    own = await open_sqlite("sqlite:index.db", data=data, durability="full")
    return TrigramSearcher(folder, own, also_close=own.close)
