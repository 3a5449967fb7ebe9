"""How long people wait: `skep search` and `skep --help` beside `import asyncio`; `skep up` beside its own imports.

Everything runs interleaved in one go, on a real server with an empty data folder; medians and ratios are printed.
"""

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

ROUNDS = 15
PYTHON = sys.executable
SKEP = str(Path(PYTHON).with_name("skep"))


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def run(*command: str) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode not in (0, 1):
        raise SystemExit(f"{command} ended with {ended.returncode}: {ended.stderr}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=1) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def start(folder: str) -> tuple[subprocess.Popen[bytes], str, float]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    began = time.perf_counter()
    command = [SKEP, "up", "--data", folder, "--listen", f"127.0.0.1:{port}", "--log-level", "error"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while not answers(url):
        if server.poll() is not None:
            raise SystemExit(f"skep up ended with {server.returncode}")
        time.sleep(0.005)
    return server, url, time.perf_counter() - began


def stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    server.wait(30)


def show(title: str, times: dict[str, list[float]], base: str) -> None:
    print(title)
    reference = statistics.median(times[base])
    for name, values in times.items():
        median = statistics.median(values)
        print(f"  {name:<28}{median * 1e3:8.1f} ms   {median / reference:5.2f} x   (min {min(values) * 1e3:.1f} ms)")


def commands() -> None:
    works: dict[str, Callable[[], object]] = {
        "import asyncio": lambda: run(PYTHON, "-c", "import asyncio"),
        "skep search": lambda: run(SKEP, "search", "needle"),
        "skep --help": lambda: run(SKEP, "--help"),
        "the request alone": lambda: urllib.request.urlopen(f"{os.environ['SKEP_URL']}/api/v1/search?q=needle").read(),
    }
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            times[name].append(timed(work))
    show("commands on a warm server", times, "import asyncio")


def starts() -> None:
    times: dict[str, list[float]] = {"import skep.processes.up": [], "skep up -> /healthz": []}
    for _ in range(ROUNDS // 3):
        times["import skep.processes.up"].append(timed(lambda: run(PYTHON, "-c", "import skep.processes.up")))
        with tempfile.TemporaryDirectory() as folder:
            server, _, seconds = start(folder)
            stop(server)
        times["skep up -> /healthz"].append(seconds)
    show("start on an empty data folder", times, "import skep.processes.up")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        server, os.environ["SKEP_URL"], _ = start(folder)
        try:
            commands()
        finally:
            stop(server)
    starts()


if __name__ == "__main__":
    main()
