"""A harvest beside a bare loop that only downloads, from the same node, in turns; medians and their ratio.

    PYTHONPATH=. python bench/dataone/run.py [--objects 10000] [--rounds 3] [--memory 10000,100000]

The node is a process of its own with small EML documents; both sides have 5 connections, and both ask for the system
metadata and the bytes of each object. The harvest is a whole `skep up`: listed, queued, verified, decided, stored and
told, durably; indexing is deferred, as bulk load does it. With `--memory` only lists and system metadata are asked for.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

from skep.client import Client
from skep.dataone.encoding import encode, parse
from skep.dataone.types import ObjectList
from skep.net.http import Exchange
from skep.net.urls import parse as parse_url
from skep.sources.git.ls_refs import ca_bundle

sys.path.append(str(Path(__file__).parents[2]))
from tests.house.running import RunningSkep

CONNECTIONS = 5
TICK = os.sysconf("SC_CLK_TCK")


@contextmanager
def node(objects: int) -> Iterator[tuple[str, int]]:
    command = [sys.executable, "-m", "skep.dataone.testing", str(objects)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin and child.stdout
        yield child.stdout.readline().strip(), child.pid
        child.stdin.close()


async def bare(base: str, objects: int) -> float:
    """Seconds to download everything, and do nothing with it."""
    http, to = Exchange(ca=ca_bundle(), timeout=60, largest=64 << 20), parse_url(base)
    began = time.monotonic()
    pids: list[str] = []
    while len(pids) < objects:
        page = await http.ask(to, [to.host], f"{to.path}/v2/object?start={len(pids)}&count=1000")
        pids += [one.identifier for one in parse(ObjectList, page.body).object_info]
    waiting = iter(pids)

    async def work() -> None:
        for pid in waiting:
            for what in ("meta", "object"):
                await http.ask(to, [to.host], f"{to.path}/v2/{what}/{encode(pid)}")

    await asyncio.gather(*(work() for _ in range(CONNECTIONS)))
    took = time.monotonic() - began
    http.close()
    return took


def harvest(base: str, objects: int) -> tuple[float, list[float], list[int]]:
    """Seconds; seconds of CPU and the most memory of the server and its worker."""
    with tempfile.TemporaryDirectory() as folder, RunningSkep(Path(folder) / "data", look_timeout=60.0) as skep:
        skep.cli("dataone", "index", "--bulk")
        while not skep.rows("worker", "list"):
            time.sleep(0.1)
        pids = [skep.process.pid, *skep.children()]
        before = list(map(cpu, pids))
        with Client(skep.url, skep.token) as client:
            began = time.monotonic()
            client.sources.add(base, kind="dataone")
        while held(skep) < objects:
            time.sleep(0.2)
        took = time.monotonic() - began
        return took, [cpu(pid) - was for pid, was in zip(pids, before, strict=True)], [peak(pid) for pid in pids]


def held(skep: RunningSkep) -> int:
    answer: Any = skep.get("/api/v1/dataone/nodes")[1]
    return sum(one["objects"].get("held", 0) for one in answer["nodes"])


def cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def peak(pid: int) -> int:
    """MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="", help="numbers of objects, such as 10000,100000")
    args = parser.parse_args()
    if args.memory:
        for count in map(int, args.memory.split(",")):
            with node(count) as (base, _):
                took, burnt, peaks = harvest(base, count)
                print(f"{count} objects: {peaks} MiB at most, {count / took:.0f} a second, {sum(burnt):.1f} s of CPU")
        return
    loops: list[float] = []
    ours: list[float] = []
    used: list[float] = []
    with node(args.objects) as (base, pid):
        for _ in range(args.rounds):
            served = cpu(pid)
            loops.append(uvloop.run(bare(base, args.objects)))
            middle = cpu(pid)
            took, seconds, peaks = harvest(base, args.objects)
            ours.append(took)
            used.append(sum(seconds))
            print(
                f"bare {loops[-1]:.1f} s (node {middle - served:.1f} s of CPU), harvest {took:.1f} s,"
                f" {[round(one, 1) for one in seconds]} s of CPU (node {cpu(pid) - middle:.1f}), {peaks} MiB"
            )
    loop, our = statistics.median(loops), statistics.median(ours)
    rate = args.objects / statistics.median(used)
    print(f"{args.objects / our:.0f} objects a second, {loop / our:.0%} of the bare loop, {rate:.0f} per CPU-second")


if __name__ == "__main__":
    main()
