"""Files that the programs themselves wrote, not we in their name."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from skep.results.api import Draft
from skep.results.fields import read

PYTEST = """\
import pytest

@pytest.mark.parametrize("size", [10, 1000])
def test_sum(benchmark, size):
    benchmark.pedantic(sum, (range(size),), rounds=3)

def test_calibrated(benchmark):
    benchmark(len, ())
"""


def run(folder: Path, *argv: str) -> None:
    done = subprocess.run(
        argv,
        cwd=folder,
        # what tells pytest that it is part of a divided run is not for the one that is run here
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        | {"HOME": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def seen(drafts: list[Draft]) -> dict[str, tuple[str, str, str]]:
    """By group; a time is whatever it was, but was one."""
    assert all((draft.value or 0) > 0 for draft in drafts if draft.kind == "measure")
    return {draft.group: (draft.kind, draft.metric, draft.unit) for draft in drafts}


def test_of_pytest_benchmark(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(PYTEST)
    options = (
        "-p",
        "no:cacheprovider",
        "-p",
        "pytest_benchmark.plugin",
        "--benchmark-json=out.json",
        "--benchmark-max-time=0.01",
    )
    run(tmp_path, sys.executable, "-m", "pytest", "-q", *options)
    drafts = read("out.json", (tmp_path / "out.json").read_bytes())
    names = ("test_sum[10]", "test_sum[1000]", "test_calibrated")
    assert seen(drafts) == {f"test_a.py::{name}": ("measure", "time", "s") for name in names}
    assert [draft.tags for draft in drafts] == [{"size": "10"}, {"size": "1000"}, {}]
    assert [len(draft.values) for draft in drafts[:2]] == [3, 3]


def test_of_hyperfine(tmp_path: Path) -> None:
    if shutil.which("hyperfine") is None:
        pytest.skip("there is no hyperfine; scripts/test-needs installs it")
    run(
        tmp_path, "hyperfine", "--export-json=out.json", "--shell=none", "--runs=3", "-L", "n", "0.01,0.02", "sleep {n}"
    )
    drafts = read("out.json", (tmp_path / "out.json").read_bytes())
    assert seen(drafts) == {f"sleep {n}": ("measure", "time", "s") for n in ("0.01", "0.02")}
    assert [(len(draft.values), draft.tags) for draft in drafts] == [(3, {"n": n}) for n in ("0.01", "0.02")]
