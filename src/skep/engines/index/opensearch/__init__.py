"""An index on a server: OpenSearch, or Elasticsearch by the same part of its interface."""

from pathlib import Path

from skep.engines.db.base import Database
from skep.engines.index.opensearch.address import parse
from skep.engines.index.opensearch.searcher import OpenSearchSearcher

__all__ = ["OpenSearchSearcher", "open_opensearch"]


async def open_opensearch(url: str, *, data: Path, db: Database) -> OpenSearchSearcher:
    """`opensearch://[USER:PASSWORD@]HOST[:PORT][/PREFIX][?tls=yes&shards=3&replicas=1]`; books in DATA/books."""
    return OpenSearchSearcher(parse(url), db, data / "books")
