"""The same questions over HTTP: the best 50 lines of a real server, in turns with csearch; and how soon a commit of 100
files can be found.

    python -m bench.search.http FOLDER        # an unpacked corpus, as bench.search makes it
"""

import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlencode

import numpy as np

from bench.search.__main__ import FIRST, first_lines
from bench.search.corpus import QUERIES

#: turns of each side, and questions asked in one: the first of a turn finds the caches full of the other side, and
#: everything has to be warm
TURNS, ASKED = 3, 4
CHANGED = 100
#: seconds
MERGES_EVERY = 10.0
SKEP = [sys.executable, "-m", "skep"]


def git(folder: Path, *args: str) -> None:
    who = ["-c", "user.name=bench", "-c", "user.email=bench@example.org"]
    subprocess.run(["git", "-C", str(folder), *who, *args], check=True, capture_output=True)


def main() -> None:
    corpus = Path(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as name:
        work = Path(name)
        env = {"CSEARCHINDEX": str(work / "csearchindex")}
        subprocess.run(["cindex", "-reset", str(corpus)], env=os.environ | env, check=True, capture_output=True)
        git(corpus, "init", "--quiet")
        git(corpus, "add", "--all", "--force")
        git(corpus, "commit", "--quiet", "--allow-empty", "--message", "corpus")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        variables = os.environ | {
            "SKEP_URL": f"http://127.0.0.1:{port}",
            "SKEP_ALLOW_LOCAL": "true",
            "SKEP_INDEX_ANALYSE": "false",
        }
        up = [*SKEP, "up", "--data", str(work / "data"), "--listen", f"127.0.0.1:{port}"]
        with subprocess.Popen(up, env=variables, stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr
            while "is up at" not in server.stderr.readline():
                pass
            try:
                variables["SKEP_TOKEN"] = (work / "data" / "admin.token").read_text().strip()
                subprocess.run([*SKEP, "source", "add", str(corpus), "--wait"], env=variables, check=True)
                merged(work / "data" / "index")
                compare(port, variables["SKEP_TOKEN"], env)
                change(corpus, port, variables)
            finally:
                server.terminate()


def merged(index: Path) -> None:
    """Everything that is merged in the background was."""
    before: set[Path] = set()
    while (now := set(index.iterdir())) != before:
        before = now
        time.sleep(MERGES_EVERY + 5.0)


def ask(connection: http.client.HTTPConnection, token: str, query: str) -> tuple[float, int]:
    began = time.perf_counter()
    path = "/api/v1/search?" + urlencode({"q": query, "lines": FIRST})
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    body = answer.read()
    took = time.perf_counter() - began
    assert answer.status == 200, body
    return took, sum(max(1, len(hit["lines"])) for hit in json.loads(body)["hits"])


def compare(port: int, token: str, env: dict[str, str]) -> None:
    """Milliseconds of each query, warm, and right after the other side ran."""
    warm: list[tuple[float, float]] = []
    after: list[tuple[float, float]] = []
    for _, query, csearch, _ in QUERIES:
        connection = http.client.HTTPConnection("127.0.0.1", port)  # one that is idle for long is closed
        turns: list[tuple[list[float], list[float]]] = []
        for _ in range(TURNS + 1):
            mine = [ask(connection, token, query)[0] for _ in range(ASKED)]
            turns.append((mine, [first_lines(["csearch", *csearch], env)[0] for _ in range(ASKED)]))
        sides = [[turn[n] for turn in turns[1:]] for n in (0, 1)]
        warm.append(_medians([took for side in one for took in side[1:]] for one in sides))
        after.append(_medians([side[0] for side in one] for one in sides))
    print("| over HTTP, best 50 lines, ms | Skep | csearch | ratio |\n|---|---|---|---|")
    for name, rows in (("warm", warm), ("after the other", after)):
        for label, at in (("p50", 50), ("p95", 95)):
            ours, theirs = np.percentile(rows, at, axis=0).tolist()
            print(f"| {label}, {name} | {ours:.1f} | {theirs:.1f} | {ours / theirs:.2f}x |")


def _medians(sides: Iterable[list[float]]) -> tuple[float, float]:
    ours, theirs = (statistics.median(side) * 1000 for side in sides)
    return ours, theirs


def change(corpus: Path, port: int, variables: dict[str, str]) -> None:
    """Seconds from the end of the fetch, as the server has it, to the first search that finds all of it."""
    files = sorted(path for path in corpus.rglob("*.c") if path.is_file())[:CHANGED]
    took: list[float] = []
    for turn in range(3):
        for path in files:
            path.write_bytes(path.read_bytes() + b"\n/* changed_for_the_bench_%d */\n" % turn)
        git(corpus, "commit", "--quiet", "--all", "--message", f"turn {turn}")
        subprocess.run([*SKEP, "source", "fetch", str(corpus)], env=variables, check=True, capture_output=True)
        connection = http.client.HTTPConnection("127.0.0.1", port)
        found, token = 0, variables["SKEP_TOKEN"]
        while found < CHANGED:
            found = _found(connection, token, f"changed_for_the_bench_{turn}")
        seen = time.time()
        connection.request("GET", "/api/v1/sources", headers={"Authorization": f"Bearer {token}"})
        (source,) = json.loads(connection.getresponse().read())["items"]
        took.append(seen - source["last_fetched"])
    print(f"\n{CHANGED} changed files, from the look that found them to all of them searchable: ", end="")
    print(f"{statistics.median(took):.2f} s")


def _found(connection: http.client.HTTPConnection, token: str, query: str) -> int:
    path = "/api/v1/search?" + urlencode({"q": query, "lines": 1000})
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    return len(json.loads(connection.getresponse().read())["hits"])


if __name__ == "__main__":
    main()
