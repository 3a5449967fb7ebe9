"""The example of a pytest-benchmark suite, measured as it is by a running Skep."""

import sys
import time
from pathlib import Path

from skep.client import Client
from skep.results.api import Result
from tests.house.running import RunningSkep
from tests.support.forge.repository import Repo

EXAMPLE = Path(__file__).parents[2] / "examples" / "benchmark" / "pytest.toml"
SUITE = b"""\
import pytest
from sums import total

@pytest.mark.parametrize("n", [10, 1000])
def test_total(benchmark, n):
    assert benchmark.pedantic(total, (n,), rounds=3) == n * (n - 1) // 2

def test_nothing_to_measure():
    raise AssertionError("--benchmark-only leaves this out")
"""


def example(source: str) -> str:
    """With this interpreter, which has the plugin; pip would ask the network, so that its part is done by hand."""
    pip = '"-m", "pip", "install", "--quiet", "--target", ".deps", "."'
    copy = "\"-c\", \"import shutil; shutil.copytree('sums', '.deps/sums')\""
    text = EXAMPLE.read_text()
    for old, new in (
        ("github.com/you/project", source),
        (pip, copy),
        ('"python3"', f'"{sys.executable}"'),
        ("repetitions = 5", "repetitions = 2\nwarmup = 0"),
    ):
        assert old in text
        text = text.replace(old, new)
    return text


def measured(skep: RunningSkep, commit: str, within: float = 120.0) -> dict[str, Result]:
    until = time.monotonic() + within
    while time.monotonic() < until:
        with Client(skep.url, skep.token) as client:
            if found := list(client.results.list([f"commit={commit}"])):
                return {one.group: one for one in found}
        time.sleep(0.2)
    raise AssertionError(f"nothing was measured{skep.tail()}")


def test_every_test_of_a_suite_is_a_series_beside_its_parent(skep: RunningSkep, tmp_path: Path) -> None:
    repo = Repo.init(tmp_path / "repo")
    before = repo.commit(
        {"sums/__init__.py": b"def total(n): return n * (n - 1) // 2\n", "benchmarks/test_sums.py": SUITE}
    )
    after = repo.commit({"sums/__init__.py": b"def total(n): return sum(range(n))\n"})
    skep.cli("source", "add", str(repo.folder))
    with Client(skep.url, skep.token) as client:
        client.sources.wait(str(repo.folder), timeout=60)
    file = tmp_path / "suite.toml"
    file.write_text(example(str(repo.folder)))
    skep.cli("benchmark", "add", str(file))
    found = measured(skep, after)
    assert set(found) == {f"benchmarks/test_sums.py::test_total[{n}]" for n in (10, 1000)}, (found, skep.tail())
    for one in found.values():
        assert (one.kind, one.metric, one.unit, len(one.values)) == ("measure", "time", "s", 2)
        assert one.tags["base"] == before
        assert min(one.values) > 0
        assert float(one.tags["ratio"]) > 0
