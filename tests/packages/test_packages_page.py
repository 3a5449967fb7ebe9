"""docs/packages.md and docs/results.md: what they show is run."""

import os
import re
import subprocess
import sys
from pathlib import Path

from skep.results.fields import FIELDS
from tests.house.running import RunningSkep, environment

DOCS = Path(__file__).parents[2] / "docs"


def test_the_examples_of_both_pages_run(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    outputs = []
    with RunningSkep(tmp_path / "data", task_packages=["org.example/bench"]) as skep:
        variables = environment({}) | {"PATH": path, "SKEP_URL": skep.url, "SKEP_TOKEN": skep.token}
        for page in ("packages", "results"):
            (text,) = re.findall(r"^```sh\n(.*?)^```$", (DOCS / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL)
            command = ["bash", "-euo", "pipefail", "-c", text]
            ended = subprocess.run(command, env=variables, capture_output=True, text=True, cwd=tmp_path, check=False)
            assert ended.returncode == 0, ended.stdout + ended.stderr
            outputs.append(ended.stdout)
    assert "FINISHED  often  2" in outputs[0]
    assert (tmp_path / "copy.tar.gz").read_bytes() == (tmp_path / "bench-1.0.tar.gz").read_bytes()
    assert (tmp_path / "results.csv").read_text() == "commit,group,value\n" + ",,1.25\n" * 3


def test_the_page_lists_every_field() -> None:
    page = (DOCS / "results.md").read_text()
    listed = set(re.findall(r"`(\w+)`", page[page.index("Fields: ") : page.index("and `tags.NAME`")]))
    assert listed == FIELDS.keys() - {"values", "tags"}
