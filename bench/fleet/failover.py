"""How long a fleet goes without: a worker killed, a coordinator killed; and what a heartbeat costs on the wire.

python -m bench.fleet.failover [--grace 10] [--sources 20]
python -m bench.fleet.failover --crowd 1000

Real processes on loopback: two coordinators on a PostgreSQL, three workers, each behind lines that count its bytes; or
a crowd of workers that only beat, half of them at each, and each coordinator killed in its turn.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.cluster.cluster import Cluster, Line
from tests.cluster.fleet import api, until
from tests.support.forge import Forge
from tests.support.postgres import postgres_server

BEAT_EVERY, CROWD_EVERY = 0.5, 5.0
WORKERS = 3
#: seconds, after which what a change led to is over
CALM = 15.0


def timed(ready: Callable[[], bool], servers: Cluster) -> float:
    began = time.monotonic()
    until(ready, servers.server)
    return time.monotonic() - began


def held(servers: Cluster) -> list[set[str]]:
    """Names of repositories, by worker."""
    sources = {one["id"]: name for name, one in servers.sources().items()}
    mirrors = [(worker.data / "mirrors").glob("*/*/*.git") for worker in servers.workers]
    return [{sources[path.stem] for path in paths} for paths in mirrors]


def killed_worker(servers: Cluster) -> float:
    """Until every source that it held was asked for by somebody else."""
    victim = max(range(WORKERS), key=lambda n: len(held(servers)[n]))
    lost, dead = held(servers)[victim], servers.workers[victim]
    dead.stop(signal.SIGKILL)
    seen = len(servers.forge.requests)

    def polled() -> bool:
        asked = "\n".join(request.path for request in servers.forge.requests[seen:])
        return all(f"{name}/" in asked for name in lost)

    took = timed(polled, servers)
    dead.start()
    servers.settle()
    return took


def killed_coordinator(servers: Cluster) -> float:
    """Until all workers, some of which were its own, beat at the other one."""
    began = time.time()
    servers.coordinators[0].kill()

    def attached() -> bool:
        members = [one for one in api(servers.server, "status")["members"] if one["role"] == "worker"]
        return all(one["state"] == "alive" and one["last_alive"] > began + BEAT_EVERY for one in members)

    took = timed(attached, servers)
    servers.coordinators[0].start()
    return took


def beats(lines: list[Line], seconds: float) -> tuple[float, float]:
    """Bytes up and down of one beat."""
    before = [line.carried.copy() for line in lines]
    time.sleep(seconds)
    up, down = (sum(line.carried[way] - old[way] for line, old in zip(lines, before, strict=True)) for way in (0, 1))
    count = WORKERS * seconds / BEAT_EVERY
    return up / count, down / count


def crowd_moves(servers: Cluster, token: str, count: int) -> None:
    links = [one.link for one in servers.coordinators]
    command = [sys.executable, "-m", "bench.fleet.crowd", str(count), token, *links]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as crowd:
        assert crowd.stdin and crowd.stdout
        print(f"{count} workers that come at once: attached after {crowd.stdout.readline().strip()} s")
        for one in servers.coordinators:
            time.sleep(CALM)
            one.kill()
            print(f"a coordinator killed: all are attached again after {crowd.stdout.readline().strip()} s")
            one.start()
        crowd.stdin.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--grace", type=float, default=10.0)
    parser.add_argument("--sources", type=int, default=20)
    parser.add_argument("--crowd", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, postgres_server() as database, ExitStack() as stack:
        forge = stack.enter_context(Forge(Path(folder) / "forge"))
        settings = {"beat_every": CROWD_EVERY if args.crowd else BEAT_EVERY, "grace": args.grace}
        servers = Cluster(Path(folder), database.url, forge, stack, **settings)
        if args.crowd:
            crowd_moves(servers, (Path(folder) / "token").read_text(), args.crowd)
            return
        for _ in range(WORKERS):
            servers.join()
        servers.add(args.sources)
        servers.settle()
        up, down = beats(servers.lines, 20.0)
        print(f"a beat: {up:.0f} bytes up, {down:.0f} down, with what is asked and answered beside it")
        took = killed_worker(servers)
        print(f"a worker killed, grace {args.grace:g} s: all it held is polled by others after {took:.1f} s")
        print(f"a coordinator killed: {WORKERS} workers at the other after {killed_coordinator(servers):.1f} s")


if __name__ == "__main__":
    main()
