"""docs/tasks.md: what it shows is run, and what it lists is what there is."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import get_args

import pytest

from skep.client import Client
from skep.tasks.model import Actor, ContextSpec, Limits, Need, TaskSpec, TaskState
from skep.tasks.selector import FACTS
from skep.tasks.transitions import legal
from tests.house.running import RunningSkep, environment

PAGE = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text()
#: from here on the examples are for the inside of a task
INSIDE = "## How a worker runs one"


def cells(heading: str) -> list[list[str]]:
    """The rows of the table that has this heading."""
    rows = PAGE[PAGE.index(f"| {heading} |") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


@pytest.fixture(scope="module")
def doing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSkep]:
    """A server whose worker runs any command."""
    with RunningSkep(tmp_path_factory.mktemp("page-skep") / "data", task_commands=["*"]) as running:
        yield running


def blocks(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(sh|python)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_every_example_of_the_page_on_tasks_runs(doing: RunningSkep, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = environment({}) | {"PATH": path, "SKEP": doing.url, "SKEP_URL": doing.url, "SKEP_TOKEN": doing.token}
    examples = blocks(PAGE[: PAGE.index(INSIDE)])
    assert [kind for kind, _ in examples] == ["sh", "sh", "sh", "sh", "python"]
    outputs = []
    for kind, text in examples:
        command = ["bash", "-euo", "pipefail", "-c", text] if kind == "sh" else [sys.executable, "-c", text]
        ended = subprocess.run(command, env=variables, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        outputs.append(ended.stdout)
    first, commands, workers, http, library = outputs
    assert "FINISHED  release  3" in first
    assert commands.startswith("tsk_")
    assert workers.endswith("nobody\n")
    assert '"state":"FINISHED"' in http and "event: ended" in http
    assert library == "FINISHED\npress FINISHED  []\nfill FINISHED  []\n"


def test_the_examples_for_the_inside_of_a_task_run_there(doing: RunningSkep) -> None:
    (_, python), (_, shell) = blocks(PAGE[PAGE.index(INSIDE) :])
    tasks = (
        TaskSpec("python", argv=(sys.executable, "-c", python)),
        TaskSpec("shell", argv=("sh", "-c", shell), needs=(Need("python"),)),
    )
    with Client(doing.url, doing.token) as client:
        context = client.contexts.submit(ContextSpec("inside", tasks))
        one, two = client.contexts.show(context.id).tasks
        assert b"".join(chunk.body for chunk in client.tasks.follow(one.id)) == b""
        written = b"".join(chunk.body for chunk in client.tasks.follow(two.id))
        assert client.tasks.show(one.id).result == {"seconds": 1.25}
        assert json.loads(written) == {"set": True, "value": "10.0.0.7:80"}
        assert client.contexts.show(context.id).context.tasks == 3


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
