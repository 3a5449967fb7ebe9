"""How many EML documents of what size become records in a CPU-second: read, taken apart, indexed and committed.

python -m bench.dataone.index [--documents 2000]
"""

import argparse
import cProfile
import hashlib
import pstats
import tempfile
import time
from pathlib import Path

import uvloop

from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.dataone.science_formats import science
from skep.dataone.types import AccessPolicy, AccessRule, Checksum, SystemMetadata
from skep.processes.build import open_rooms
from skep.testing.documents import EML_21, eml
from tests.support.dataone_objects import put_pack

#: documents that a harvest brings at a time
LOT = 250


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--profile", action="store_true", help="say what it is spent on")
    args = parser.parse_args()
    print("| tables | bytes | documents/CPU-s | taken apart only, documents/CPU-s |\n|---|---|---|---|")
    for tables in (0, 1, 5):
        count = args.documents // (1 + tables)
        with tempfile.TemporaryDirectory() as folder:
            rate, size = uvloop.run(measure(Path(folder), count, tables, profile=args.profile))
        print(f"| {tables} | {size:,} | {rate:,.0f} | {apart(count, tables):,.0f} |")


async def measure(folder: Path, count: int, tables: int, *, profile: bool) -> tuple[float, int]:
    settings = Settings(data=str(folder))
    async with open_rooms(settings, SystemClock(), "w" * 64) as rooms:
        dataone = rooms.core.dataone
        size = 0
        for first in range(0, count, LOT):
            bodies = [document(n, tables) for n in range(first, min(count, first + LOT))]
            metas = [meta(f"doi:10.5072/{first + n}", body) for n, body in enumerate(bodies)]
            await put_pack(dataone.store, metas, bodies, "urn:node:Bench")
            size = len(bodies[0])
        profiler = cProfile.Profile()
        began = time.process_time()
        if profile:
            profiler.enable()
        await dataone.index.drain()
        took = time.process_time() - began
        if profile:
            profiler.disable()
            pstats.Stats(profiler).sort_stats("cumtime").print_stats(25)
        return count / took, size


def apart(count: int, tables: int) -> float:
    documents = [document(n, tables) for n in range(count)]
    began = time.process_time()
    for one in documents:
        science(EML_21, one)
    return count / (time.process_time() - began)


def document(n: int, tables: int) -> bytes:
    return eml(f"Record {n} of a glacier", about="Measured every hour for a year. " * 20, tables=tables)


def meta(pid: str, body: bytes) -> SystemMetadata:
    return SystemMetadata(
        identifier=pid,
        format_id=EML_21,
        size=len(body),
        checksum=Checksum(hashlib.sha1(body, usedforsecurity=False).hexdigest(), "SHA-1"),
        submitter="CN=x",
        rights_holder="CN=x",
        access_policy=AccessPolicy((AccessRule(("public",), ("read",)),)),
        date_uploaded=1_000,
        date_sys_metadata_modified=1_000,
        origin_member_node="urn:node:Bench",
        authoritative_member_node="urn:node:Bench",
    )


if __name__ == "__main__":
    main()
