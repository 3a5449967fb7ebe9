"""`make chaos-selftest`: which of the planted bugs does the harness find?

Each bug is planted in a copy of the source tree. It is found when the harness reports a violation.
"""

import argparse
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

from tests.chaos.planted import BUGS, Bug, plant
from tests.chaos.run import SKIPPED

_ROOT = Path(__file__).parents[2]
#: "  message lost: 17"
_KIND = re.compile(r"^  (\S[^:]*): (\d+)$", re.MULTILINE)
_FOLDER = re.compile(r"are in (/\S+)$", re.MULTILINE)


def attempt(bug: Bug, seed: int, minutes: float, settle: float) -> tuple[int, str]:
    """The exit code of the harness, and what it printed."""
    with tempfile.TemporaryDirectory(prefix="skep-planted-") as folder:
        shutil.copytree(_ROOT / "src", Path(folder) / "src")
        plant(bug, Path(folder))
        command = [_interpreter(Path(folder)), "-m", "tests.chaos.run"]
        command += ["--seed", str(seed), "--minutes", str(minutes), "--settle", str(settle)]
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def _interpreter(folder: Path) -> str:
    """Finds the copy of the tree. Not by PYTHONPATH: the supervisor of tasks starts isolated from variables."""
    venv.create(folder / "venv", symlinks=True)
    (own,) = (folder / "venv" / "lib").glob("*/site-packages")
    (own / "planted.pth").write_text(f"{folder / 'src'}\n{sysconfig.get_path('purelib')}\n")
    return str(folder / "venv" / "bin" / "python")


def search(bug: Bug, seed: int, runs: int, minutes: float, settle: float) -> bool:
    """Prints one line for each run, until the bug is found."""
    for n in range(seed, seed + runs):
        code, text = attempt(bug, n, minutes, settle)
        if code == SKIPPED:
            raise SystemExit(text)
        kinds = ", ".join(f"{kind} ({many})" for kind, many in _KIND.findall(text))
        verdict = f"found: {kinds or text[-500:]}" if code else "not found"
        print(f"{bug.name} | seed {n} | {minutes:g} min | {verdict}", flush=True)
        for kept in _FOLDER.findall(text):
            shutil.rmtree(kept, ignore_errors=True)
        if code:
            return True
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bugs", nargs="*", help="names of bugs; all unless some are given")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1, help="seeds that are tried for each bug")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--settle", type=float, default=120.0)
    options = parser.parse_args()
    chosen = [bug for bug in BUGS if not options.bugs or bug.name in options.bugs]
    found = [search(bug, options.seed, options.runs, options.minutes, options.settle) for bug in chosen]
    print(f"found {sum(found)} of {len(found)}")
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
