"""Many small sources beside one of the same size: what a rare word costs, and whether adopting gets slower.

python -m bench.search.many FOLDER [SOURCES]      # an unpacked corpus, as bench.search makes it
"""

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from skep.search.query import parse
from skep.storage.code_index.model import Delta, Document, Fence, Limits, Tip
from skep.storage.code_index.trigram.builder import TrigramBuilder
from skep.storage.code_index.trigram.searcher import TrigramSearcher, open_trigram
from skep.storage.database import Database
from skep.storage.sqlite import open_sqlite

FILES, BYTES = 4, 3_000
#: merges happen beside the adoptions, as in a running server, and not after each of them
MERGE_EVERY = 250
ROUNDS = 15
RARE = ("case:yes e1000_phy_hw_reset", "case:yes thisisnowhere_tobefound")


async def adopt(searcher: TrigramSearcher, number: int, documents: list[Document], work: Path) -> None:
    shards = TrigramBuilder().build(number, documents, work, lambda _: None)
    delta = Delta(f"src_{number}", number, (Tip("main", "c"),), None, shards)
    assert await searcher.adopt(delta, Fence(delta.source, 1, 0.0))


async def fill(searcher: TrigramSearcher, documents: list[Document], sources: int, work: Path) -> list[float]:
    """Seconds of each adoption, with the build of its shard."""
    took: list[float] = []
    for n in range(sources):
        began = time.process_time()
        await adopt(searcher, n + 1, documents[FILES * n : FILES * (n + 1)], work)
        took.append(time.process_time() - began)
        if n % MERGE_EVERY == MERGE_EVERY - 1:
            while await searcher.merge_once():
                pass
    while await searcher.merge_once():
        pass
    return took


async def asked(searcher: TrigramSearcher, text: str, sources: int) -> float:
    began = time.perf_counter()
    async for _ in searcher.search(parse(text), np.ones(sources + 2, bool), Limits()):
        pass
    return time.perf_counter() - began


async def main() -> None:
    corpus, sources = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    texts = [path.read_bytes() for path in sorted(corpus.rglob("*.c"))]
    pieces = [text[at : at + BYTES] for text in texts for at in range(0, len(text), BYTES)][: FILES * sources]
    documents = [Document(b"%d.c" % n, f"{n:040x}", piece) for n, piece in enumerate(pieces)]
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as name:
        searchers: list[TrigramSearcher] = []
        databases: list[Database] = []
        for which in ("many", "one"):
            folder = Path(name) / which
            folder.mkdir()
            databases.append(await open_sqlite("sqlite:", data=folder, durability="delayed"))
            searchers.append(await open_trigram("file:", data=folder, db=databases[-1]))
            await searchers[-1].start()
        many, one = searchers
        took = await fill(many, documents, sources, Path(name) / "built")
        await adopt(one, 1, documents, Path(name) / "built")
        quarter = sources // 4
        print(
            f"{sources:,} sources, {len(documents):,} files: {many.size().shards} shards beside {one.size().shards}; "
        )
        print(f"adopting took {statistics.mean(took[:quarter]) * 1000:.1f} ms of CPU each at first, ")
        print(f"{statistics.mean(took[-quarter:]) * 1000:.1f} ms in the end\n")
        print("| query | many, ms | one, ms | ratio |\n|---|---|---|---|")
        for text in RARE:
            pairs = [(await asked(many, text, sources), await asked(one, text, sources)) for _ in range(ROUNDS)]
            mine, other = (statistics.median(column) * 1000 for column in zip(*pairs, strict=True))
            print(f"| `{text}` | {mine:.2f} | {other:.2f} | {mine / other:.2f} |")
        for searcher, db in zip(searchers, databases, strict=True):
            await searcher.close()
            await db.close()


if __name__ == "__main__":
    asyncio.run(main())
