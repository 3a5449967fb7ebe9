"""Tasks that measure, on a real worker: what they record is stored when they have finished, or they have failed."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skep.client import Client
from skep.results.api import Result
from skep.tasks.model import Task, TaskSpec
from tests.cluster.fleet import Coordinator, Member, until
from tests.house.running import RunningSkep

TASK = "from skep import task; "


@pytest.fixture(scope="module")
def skep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSkep]:
    with RunningSkep(tmp_path_factory.mktemp("results") / "data", task_commands=["*"]) as running:
        yield running


def ran(server: RunningSkep, code: str, **spec: Any) -> tuple[Task, dict[str, Result]]:
    """How a task of this Python ended, and what it had measured by then, by metric."""
    with Client(server.url, server.token) as client:
        made = client.tasks.submit(TaskSpec("measure", argv=(sys.executable, "-c", code), **spec))
        client.contexts.wait(made.context.id, 60)
        found = client.results.list([f"task={made.task}"])
        return client.tasks.show(made.task).task, {one.metric: one for one in found}


def test_a_task_records_by_call_and_by_file(skep: RunningSkep) -> None:
    code = """
import json, os
from skep import task
task.record("time", 1.5, "s", group="parse", tags={"size": "10"})
task.record("memory", values=[1, 2, 9], unit="B")
open("results.jsonl", "w").write(json.dumps({"metric": "lines", "value": 7}) + "\\n")
os.mkdir("out")
hyperfine = {"results": [{"command": "ls", "mean": 0.5, "times": [0.5]}]}
open("out/bench.json", "w").write(json.dumps(hyperfine))
open("machine", "w").write(task.properties["skep.machine"])
task.result(task.properties["skep.machine"])
"""
    properties = {"skep.commit": "c0ffee", "skep.benchmark": "running"}
    task, found = ran(skep, code, results=("out/*.json",), properties=properties)
    assert task.state == "FINISHED", task.reason
    assert {name: (one.value, one.unit) for name, one in found.items() if name != "time"} == {
        "memory": (2.0, "B"), "lines": (7.0, ""),
    }  # fmt: skip
    assert found["memory"].values == (1.0, 2.0, 9.0)
    assert {one.commit for one in found.values()} == {"c0ffee"}
    (machine,) = {one.machine for one in found.values()}
    assert machine.rpartition("-")[2]
    with Client(skep.url, skep.token) as client:
        assert client.tasks.show(task.id).result == machine
        times = client.results.list([f"task={task.id}", "metric=time"], order="value")
        assert [(one.group, one.value, one.tags) for one in times] == [("ls", 0.5, {}), ("parse", 1.5, {"size": "10"})]


def test_a_failed_task_keeps_what_it_measured(skep: RunningSkep) -> None:
    line = {"kind": "failure", "tags": {"reason": "no compiler"}}
    code = f"open('results.jsonl', 'w').write('{json.dumps(line)}'); raise SystemExit(3)"
    task, found = ran(skep, code)
    assert (task.state, task.code) == ("FAILED", 3)
    assert found[""].tags == {"reason": "no compiler"}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ('open("results.jsonl", "w").write(\'{"metric": "a", "value": NaN}\')', "line 1: a value of 'a' is nan"),
        ('open("results.jsonl", "wb").write(b" " * 100_000_000)', "has more than 16,000,000 bytes"),
        (TASK + 'task.record("a", 1, kind="guess")', "'guess' is no kind of result; known are measure, failure"),
        (TASK + 'task.record("b", 1); task.record("b", 1, "ms")', "is measured in '', and this result is in 'ms'"),
        (TASK + 'task.record("a", float("inf"))', "ended with exit code 1"),
        ("pass", "left no file 'bench.json'"),
    ],
)  # fmt: skip
def test_what_cannot_be_recorded_fails_the_task(skep: RunningSkep, code: str, reason: str) -> None:
    task, found = ran(skep, code, results=("bench.json",) if code == "pass" else ())
    assert task.state == "FAILED"
    assert reason in task.reason
    assert {one.unit for one in found.values()} <= {""}
    assert "a" not in found


def test_by_the_command_line(skep: RunningSkep, tmp_path: Path) -> None:
    task, _ = ran(skep, "pass", properties={"skep.benchmark": "typed"})
    file = tmp_path / "a.jsonl"
    file.write_text(
        "".join(json.dumps({"metric": "time", "value": n, "unit": "s", "group": "g"}) + "\n" for n in (1, 2))
    )
    assert skep.cli("result", "record", task.id, str(file)).stdout == "2 recorded\n"
    rows = skep.rows("result", "list", "benchmark=typed", "--order", "value")
    assert [row["value"] for row in rows] == [1, 2]
    assert "1 s" in skep.cli("result", "list", "benchmark=typed").stdout
    assert "value       1.0" in skep.cli("result", "show", rows[0]["id"]).stdout
    assert skep.rows("result", "show", rows[0]["id"]) == [rows[0]]
    assert skep.rows("result", "series", "benchmark=typed")[0]["unit"] == "s"
    assert skep.rows("result", "aggregate", "benchmark=typed", "--by", "group")[0]["mean"] == 1.5
    assert "1.5" in skep.cli("result", "aggregate", "benchmark=typed").stdout
    drawn = skep.cli("result", "plot", "benchmark=typed", "--rows", "1").stdout
    assert drawn.splitlines()[0].startswith("typed  ")
    assert "│" in drawn
    as_table = ("--format", "csv", "--fields", "metric,value", "--order", "value")
    exported = skep.cli("result", "export", "benchmark=typed", *as_table).stdout
    assert exported == "metric,value\ntime,1.0\ntime,2.0\n"
    assert "no filter" in skep.cli("result", "list", "typed", check=False).stderr
    assert "no field" in skep.cli("result", "export", "size=1", check=False).stderr


def test_results_wait_on_the_worker_while_the_coordinator_is_dead(tmp_path: Path) -> None:
    """kill -9 between two measurements: the second is on the worker's disk before the task goes on."""
    code = """
import pathlib, sys, time
from skep import task
folder = pathlib.Path(sys.argv[1])
task.record("time", 1, "s")
(folder / "one").touch()
while not (folder / "dead").exists():
    time.sleep(0.02)
for n in range(100):
    task.record("time", 2 + n, "s")
(folder / "two").touch()
"""
    with Coordinator(tmp_path / "c", task_lease=300) as coordinator:
        line = coordinator.make_line("--name", "w")
        seen = tmp_path / "seen"
        seen.mkdir()
        given: dict[str, Any] = {"task_commands": ["*"], "task_writable_paths": [str(seen)], "task_lease": 300}
        with Member(tmp_path / "w", line, **given) as worker:
            worker.attached()
            with Client(coordinator.url, coordinator.token) as client:
                made = client.tasks.submit(TaskSpec("m", argv=(sys.executable, "-c", code, str(seen))))
            until((seen / "one").exists, coordinator)
            coordinator.kill()
            (seen / "dead").touch()
            until((seen / "two").exists, coordinator)
            coordinator.start()
            with Client(coordinator.url, coordinator.token) as client:
                assert client.contexts.wait(made.context.id, 60).state == "FINISHED"
                found = list(client.results.list([f"task={made.task}"], order="number"))
                assert [one.value for one in found] == [float(n) for n in range(1, 102)]
                assert client.tasks.show(made.task).task.attempt == 1
