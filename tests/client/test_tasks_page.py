"""docs/tasks.md: what it shows is run, and what it lists is what there is."""

import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import get_args

import pytest

from skep.model.run import Limits
from skep.model.task import Actor, ContextSpec, TaskSpec, TaskState
from skep.tasks.selector import FACTS
from skep.tasks.states import legal
from tests.house.running import RunningSkep, environment

PAGE = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text()


def cells(heading: str) -> list[list[str]]:
    """The rows of the table that has this heading."""
    rows = PAGE[PAGE.index(f"| {heading} |") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_every_example_of_the_page_on_tasks_runs(broker: RunningSkep, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = environment({}) | {"PATH": path, "SKEP": broker.url, "SKEP_URL": broker.url}
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert [kind for kind, _ in blocks] == ["sh", "sh", "sh", "sh", "python"]
    outputs = []
    for kind, text in blocks:
        command = ["bash", "-euo", "pipefail", "-c", text] if kind == "sh" else [sys.executable, "-c", text]
        ended = subprocess.run(
            command,
            env=variables | {"SKEP_TOKEN": broker.token},
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        outputs.append(ended.stdout)
    first, commands, workers, http, library = outputs
    assert "FINISHED  release  3" in first
    assert commands.startswith("tsk_")
    assert workers.endswith("nobody\n")
    assert '"state":"FINISHED"' in http and "event: ended" in http
    assert library == "FINISHED\npress FINISHED  []\nfill FINISHED  []\n"


def test_every_move_is_on_the_page() -> None:
    told = {
        (old, new, by)
        for olds, new, actors, _ in cells("from")
        for old, by in product(olds.split(", "), actors.split(", "))
    }
    states, actors = get_args(TaskState), get_args(Actor)
    assert told == {(old, new, by) for old, new, by in product(states, states, actors) if legal(old, new, by)}


def test_every_fact_is_on_the_page() -> None:
    assert {name.strip("`"): kind for name, kind, _ in cells("fact")} == FACTS


@pytest.mark.parametrize("spec", [TaskSpec, ContextSpec, Limits])
def test_every_field_is_on_the_page(spec: type[TaskSpec | ContextSpec | Limits]) -> None:
    assert [field for field in spec.__struct_fields__ if f"`{field}`" not in PAGE] == []
