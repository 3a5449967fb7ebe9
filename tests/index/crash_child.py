"""Builds, adopts and merges without end, until somebody kills it. Prints each commit once it is adopted."""

import asyncio
import sys
from pathlib import Path

from skep.engines.db.sqlite import open_sqlite
from skep.engines.index.trigram import TrigramBuilder, open_trigram
from skep.model.search import Delta, Document, Fence, Tip

FILES = 7


def content(commit: int) -> bytes:
    return b"word %d\n" % commit


async def main(data: Path) -> None:
    db = await open_sqlite("sqlite:", data=data, durability="full")
    searcher = await open_trigram("file:", data=data, db=db)
    await searcher.start()
    standing = searcher.standing(1)
    commit = int(standing.commit) if standing else 0
    while True:
        path = b"f%d" % ((commit + 1) % FILES)
        document = Document(path, "0" * 40, content(commit + 1))
        shards = TrigramBuilder().build(1, [document], data / "built", lambda _: None)
        base = (Tip("main", str(commit)),) if commit else None
        delta = Delta("src_1", 1, (Tip("main", str(commit + 1)),), base, shards, (path,))
        assert await searcher.adopt(delta, Fence("src_1", 1, 0.0))
        commit += 1
        sys.stdout.write(f"{commit}\n")
        sys.stdout.flush()
        await searcher.merge_once()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
