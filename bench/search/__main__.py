"""Index and search beside Debian's codesearch and ripgrep, on the same files in one run.

    python -m bench.search [--whole] [--builds N] [--rounds N] [--folder UNPACKED] [--zoekt PROGRAM]

Needs the Debian packages codesearch, ripgrep and linux-source-6.1; `--zoekt` names a zoekt-index that was built
elsewhere. Prints Markdown; the ratios are the point.
"""

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.search.corpus import QUERIES, unpack
from bench.search.load import bench_load
from skep.search.query import parse
from skep.storage.code_index.model import Delta, Document, Fence, Limits, ShardInfo, Tip
from skep.storage.code_index.trigram.builder import TrigramBuilder
from skep.storage.code_index.trigram.searcher import TrigramSearcher, open_trigram
from skep.storage.sqlite import open_sqlite

FIRST = 50


class Asked(NamedTuple):
    """Milliseconds of each round: Skep, csearch, ripgrep; and the lines they found."""

    name: str
    times: tuple[list[float], list[float], list[float]]
    lines: list[int]


def build(folder: Path, out: Path) -> tuple[ShardInfo, ...]:
    every = enumerate(files(folder))
    documents = (Document(str(p.relative_to(folder)).encode(), f"{n:040x}", p.read_bytes()) for n, p in every)
    return TrigramBuilder().build(1, documents, out, lambda _: None)


def cpu_seconds(command: Sequence[str], env: dict[str, str]) -> float:
    """Of the child and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=os.environ | env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)


def bench_build(folder: Path, work: Path, rounds: int, zoekt: str) -> None:
    megabytes = sum(path.stat().st_size for path in files(folder)) / 1e6
    ours: list[float] = []
    theirs: list[float] = []
    zoekts: list[float] = []
    for nth in range(rounds):
        out = work / f"built-{nth}"
        ours.append(cpu_seconds([sys.executable, "-m", "bench.search", "--build", str(folder), str(out)], {}))
        theirs.append(cpu_seconds(["cindex", "-reset", str(folder)], {"CSEARCHINDEX": str(work / "csearchindex")}))
        if zoekt:
            zoekts.append(cpu_seconds([zoekt, "-index", str(work / "zoekt"), "-parallelism", "1", str(folder)], {}))
    shards = list((work / "built-0").iterdir())
    index = sum((shard / "index").stat().st_size for shard in shards) / 1e6
    mine, other = megabytes / statistics.median(ours), megabytes / statistics.median(theirs)
    print(f"Corpus: {megabytes:.0f} MB, {len(files(folder))} files, {len(shards)} shards\n")
    print("| | Skep | cindex | ratio |\n|---|---|---|---|")
    print(f"| built, MB per CPU-second (fsync included) | {mine:.1f} | {other:.1f} | {mine / other:.2f}x |")
    if zoekts:
        third = megabytes / statistics.median(zoekts)
        print(f"| beside zoekt-index | {mine:.1f} | {third:.1f} | {mine / third:.2f}x |")
    other_size = (work / "csearchindex").stat().st_size / 1e6
    print(f"| index / corpus | {index / megabytes:.3f} + content | {other_size / megabytes:.3f} | |\n")


def first_lines(command: Sequence[str], env: dict[str, str]) -> tuple[float, int]:
    began = time.perf_counter()
    with subprocess.Popen(command, env=os.environ | env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout
        count = 0
        while count < FIRST and child.stdout.readline():
            count += 1
        took = time.perf_counter() - began
        child.kill()
    return took, count


async def first_hits(searcher: TrigramSearcher, text: str, count: int = 0) -> tuple[float, int]:
    began = time.perf_counter()
    hits = searcher.search(parse(text), np.ones(2, bool), Limits(lines=FIRST, seconds=60.0, count=count))
    found = sum([max(1, len(hit.lines)) async for hit in hits])
    return time.perf_counter() - began, hits.counted.lines if count else found


def count_lines(command: Sequence[str], env: dict[str, str]) -> tuple[float, int]:
    began = time.perf_counter()
    ran = subprocess.run(command, env=os.environ | env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return time.perf_counter() - began, ran.stdout.count(b"\n")


async def bench_count(searcher: TrigramSearcher, env: dict[str, str], rounds: int) -> None:
    """Every matching line counted, the first of them shown."""
    ours: list[float] = []
    theirs: list[float] = []
    for name, query, csearch, _ in QUERIES:
        pairs = [
            (await first_hits(searcher, query, 10**9), count_lines(["csearch", *csearch], env))
            for _ in range(rounds + 1)
        ][1:]
        if pairs[0][0][1] != pairs[0][1][1]:
            print(f"{name}: Skep counts {pairs[0][0][1]} lines, csearch {pairs[0][1][1]}")
        ours.append(statistics.median(mine for (mine, _), _ in pairs) * 1000)
        theirs.append(statistics.median(other for _, (other, _) in pairs) * 1000)
    print("\n| all lines counted, ms | Skep | csearch | ratio |\n|---|---|---|---|")
    for label, at in (("p50", 50), ("p95", 95)):
        mine, other = float(np.percentile(ours, at)), float(np.percentile(theirs, at))
        print(f"| {label} | {mine:.1f} | {other:.1f} | {mine / other:.2f}x |")


@asynccontextmanager
async def opened(work: Path) -> AsyncIterator[TrigramSearcher]:
    db = await open_sqlite("sqlite:", data=work, durability="full")
    searcher = await open_trigram("file:", data=work, db=db)
    await searcher.start()
    yield searcher
    await searcher.close()
    await db.close()


async def bench_search(searcher: TrigramSearcher, folder: Path, work: Path, rounds: int) -> None:
    shards = tuple(ShardInfo(path.name, str(path), 0, 0) for path in sorted((work / "built-0").iterdir()))
    assert await searcher.adopt(Delta("src", 1, (Tip("main", "c"),), None, shards), Fence("src", 1, 0.0))
    env = {"CSEARCHINDEX": str(work / "csearchindex")}
    rows: list[Asked] = []
    for name, query, csearch, ripgrep in QUERIES:
        times: tuple[list[float], list[float], list[float]] = ([], [], [])
        counts = [0, 0, 0]
        for attempt in range(rounds + 1):
            for nth, (took, count) in enumerate(
                [
                    await first_hits(searcher, query),
                    first_lines(["csearch", *csearch], env),
                    first_lines(["rg", "--no-config", "--no-heading", *ripgrep, str(folder)], {}),
                ]
            ):
                if attempt:  # the first only warms the caches, for all three
                    times[nth].append(took * 1000)
                counts[nth] = count
        rows.append(Asked(name, times, counts))
    _print_search(rows)
    await bench_count(searcher, env, max(1, rounds // 2))


async def search(folder: Path, work: Path, rounds: int) -> None:
    async with opened(work) as searcher:
        await bench_search(searcher, folder, work, rounds)
    sys.stdout.flush()
    # in a process of its own, whose memory is that of searches alone
    subprocess.run([sys.executable, "-m", "bench.search", "--load", str(work)], check=True)


async def load(work: Path) -> None:
    async with opened(work) as searcher:
        await bench_load(searcher, [query for _, query, _, _ in QUERIES])


def _print_search(rows: list[Asked]) -> None:
    print(f"| first {FIRST} lines, ms | Skep | csearch | rg | lines |\n|---|---|---|---|---|")
    medians = [[statistics.median(times) for times in row.times] for row in rows]
    for row, (ours, csearch, ripgrep) in zip(rows, medians, strict=True):
        print(f"| {row.name} | {ours:.1f} | {csearch:.1f} | {ripgrep:.1f} | {row.lines} |")
    for label, at in (("p50", 50), ("p95", 95)):
        ours, csearch, ripgrep = np.percentile(medians, at, axis=0).tolist()
        ratios = f"{csearch:.1f} ({ours / csearch:.2f}x) | {ripgrep:.1f} ({ours / ripgrep:.2f}x)"
        print(f"| **{label}** | {ours:.1f} | {ratios} | |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--whole", action="store_true", help="the whole kernel, about 1 GB")
    parser.add_argument("--builds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="unpack here, or use what was unpacked here before")
    parser.add_argument("--zoekt", default="", help="a zoekt-index to build beside")
    parser.add_argument("--build", nargs=2, type=Path, metavar=("FOLDER", "OUT"), help=argparse.SUPPRESS)
    parser.add_argument("--load", type=Path, metavar="WORK", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.build:
        build(*asked.build)
        return
    if asked.load:
        asyncio.run(load(asked.load))
        return
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as temporary:
        folder = asked.folder or Path(temporary) / "linux"
        if not folder.exists():
            folder.mkdir(parents=True)
            unpack(folder, asked.whole)
        bench_build(folder, Path(temporary), asked.builds, asked.zoekt)
        asyncio.run(search(folder, Path(temporary), asked.rounds))


if __name__ == "__main__":
    main()
