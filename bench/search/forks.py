"""Forks of one source: what each further one costs on disk, and what a search over all of them costs.

python -m bench.search.forks FOLDER [FORKS]      # an unpacked corpus, as bench.search makes it
"""

import asyncio
import hashlib
import statistics
import sys
import tempfile
from pathlib import Path

from bench.search.__main__ import files
from bench.search.many import adopt, asked
from skep.storage.code_index.model import Document
from skep.storage.code_index.trigram.searcher import open_trigram
from skep.storage.sqlite import open_sqlite

#: one file of so many is the fork's own
OWN = 50
ROUNDS = 15
QUERIES = ("case:yes e1000_phy_hw_reset", "spin_lock_irqsave", "mutex")


def documents(folder: Path, fork: int) -> list[Document]:
    made: list[Document] = []
    for n, path in enumerate(files(folder)):
        content = path.read_bytes()
        if fork and n % OWN == fork % OWN:
            content += b"\n/* of fork %d */\n" % fork
        blob = hashlib.sha1(content, usedforsecurity=False).hexdigest()
        made.append(Document(str(path.relative_to(folder)).encode(), blob, content))
    return made


def on_disk(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


async def main() -> None:
    corpus, forks = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 4
    print("| sources | documents | MB on disk | beside one | rare, ms | common, ms | more common, ms |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        db = await open_sqlite("sqlite:", data=work, durability="full")
        searcher = await open_trigram("file:", data=work, db=db)
        await searcher.start()
        first = 0.0
        for fork in range(forks + 1):
            await adopt(searcher, fork + 1, documents(corpus, fork), work / "built")
            while await searcher.merge_once():
                pass
            size = on_disk(work / "index")
            first = first or size
            took = [
                1000 * statistics.median([await asked(searcher, text, fork) for _ in range(ROUNDS)]) for text in QUERIES
            ]
            times = " | ".join(f"{one:.1f}" for one in took)
            print(f"| {fork + 1} | {searcher.size().documents} | {size:.0f} | {size / first:.2f}x | {times} |")
        await searcher.close()
        await db.close()


if __name__ == "__main__":
    asyncio.run(main())
