"""Many searches at once: how many in a second, how long each takes, what they do to the event loop and to memory."""

import asyncio
import time
from pathlib import Path

import numpy as np

from skep.search.query import parse
from skep.storage.code_index.model import Limits
from skep.storage.code_index.trigram.searcher import TrigramSearcher

SEARCHERS = 8
SEARCHES = 1000


def anonymous_megabytes() -> float:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Anonymous:")).split()[1]) / 1000


async def _ask(searcher: TrigramSearcher, texts: list[str], took: list[float]) -> None:
    for text in texts:
        began = time.perf_counter()
        async for _ in searcher.search(parse(text), np.ones(2, bool), Limits()):
            pass
        took.append(time.perf_counter() - began)


async def _watch_loop(late: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(0.005)
        late.append(time.perf_counter() - began - 0.005)


async def bench_load(searcher: TrigramSearcher, queries: list[str]) -> None:
    rng = np.random.default_rng(1)
    before = anonymous_megabytes()
    late: list[float] = []
    took: list[float] = []
    watch = asyncio.create_task(_watch_loop(late))
    each = [[queries[n] for n in rng.integers(len(queries), size=SEARCHES // SEARCHERS)] for _ in range(SEARCHERS)]
    began = time.perf_counter()
    await asyncio.gather(*(_ask(searcher, texts, took) for texts in each))
    seconds = time.perf_counter() - began
    watch.cancel()
    milliseconds = np.array(took) * 1000
    print(f"\n{SEARCHERS} searchers at once, {len(took)} searches: {len(took) / seconds:.0f} a second, ", end="")
    print(f"p50 {np.percentile(milliseconds, 50):.1f} ms, p95 {np.percentile(milliseconds, 95):.1f} ms; ", end="")
    print(
        f"the event loop was late by {np.percentile(late, 99) * 1000:.0f} ms (p99), {max(late) * 1000:.0f} ms at most"
    )
    print(f"\nAnonymous memory: {before:.0f} MB before, {anonymous_megabytes():.0f} MB after")
