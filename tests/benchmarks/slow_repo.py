"""A repository with a known slow commit. What a run "takes" is what the commit says, with noise from its name and run:
so that finding it is the same on every machine, however busy."""

from pathlib import Path

from tests.support.forge.repository import Repo

#: each run writes what it took; the dice are thrown by commit, side and run
BENCH = """\
import hashlib, json, os, pathlib
runs = pathlib.Path("runs"); n = len(runs.read_text()) if runs.exists() else 0; runs.write_text("x" * (n + 1))
if pathlib.Path("broken").exists(): raise SystemExit(3)
def dice(k):
    seed = f"{os.environ['SKEP_COMMIT']}/{pathlib.Path.cwd().name}/{n}/{k}".encode()
    return int.from_bytes(hashlib.blake2b(seed, digest_size=8).digest(), "big") / 2**64
noise = sum(dice(k) for k in range(12)) - 6
took = float(pathlib.Path("takes").read_text()) * (1 + float(pathlib.Path("noise").read_text()) * noise)
line = json.dumps({"metric": "time", "value": took, "unit": "s", "group": "parse"})
pathlib.Path("out.jsonl").write_text(line + "\\n")
"""


def slow_repo(
    folder: Path, commits: int, slow: int | None, *, change: float = 0.1, noise: float = 0.01, broken: int | None = None
) -> tuple[Repo, list[str]]:
    """Oldest commit first; from number `slow` on everything takes longer."""
    repo = Repo.init(folder)
    ids = []
    for n in range(commits):
        takes = 0.25 * (1 + change) if slow is not None and n >= slow else 0.25
        files: dict[str | bytes, bytes | str | None] = {
            "bench.py": BENCH.encode(),
            "takes": f"{takes}".encode(),
            "noise": f"{noise}".encode(),
            "count": f"{n}".encode(),
            "broken": b"yes" if n == broken else None,
        }
        if n != broken and n - 1 != broken:
            del files["broken"]
        ids.append(repo.commit(files, message=f"change number {n}"))
    return repo, ids
