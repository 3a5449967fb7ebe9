"""Variables of tasks: only names that the settings allow, and none of them changes how Skep's own programs start."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.base.clock import SystemClock
from skep.benchmarks.worker import meant
from skep.config.settings import Settings
from skep.runtime.commands import RESERVED, allowed
from skep.runtime.runtime import Runtime
from skep.tasks.model import Command, Run, TaskSpec
from skep.tasks.worker import TaskFailed
from tests.runtime.conftest import Told
from tests.support.forge.repository import Repo

#: what makes a Python, a shell, git or the loader run something else
HOSTILE = {
    "PYTHONWARNINGS": "all:0:antigravity.x:0:0",
    "BROWSER": "/bin/sh -c 'echo taken > taken' #%s",
    "PYTHONPATH": ".",
    "PYTHONSTARTUP": "x",
    "BASH_ENV": "./x",
    "ENV": "./x",
    "LD_PRELOAD": "./x.so",
    "GIT_CONFIG_GLOBAL": "./x",
    "GIT_SSH_COMMAND": "./x",
    "PATH": ".",
    "HOME": "/",
    "LANG": "x",
    "skep_x": "",
}


def command_of(spec: TaskSpec, mirror: Path, code: str = "", **settings: Any) -> Command:
    command = Command("tsk_1", 1, "ctx_1", spec.argv, spec.environment)
    given = Settings(**{"task_commands": ("true", "python3"), **settings})
    return meant(command, Run("tsk_1", 1, "ctx_1", "t", spec), code, settings=given, mirror=lambda _: mirror)


@pytest.mark.parametrize("name", [*HOSTILE, *sorted(RESERVED)])
@pytest.mark.parametrize("way", ["command", "measure", "code"])
def test_variables_that_are_not_allowed_fail_the_task_and_are_named(tmp_path: Path, way: str, name: str) -> None:
    arguments = {"measure": {"commit": "c"}} if way == "measure" else {}
    spec = TaskSpec(argv=("true",), arguments=arguments, environment={name: "x"})
    with pytest.raises(TaskFailed, match=f"variable {name}\\b"):
        command_of(spec, tmp_path, "pass" if way == "code" else "")


def test_variables_that_an_entry_allows_are_allowed_for_its_command_alone(tmp_path: Path) -> None:
    rules = ("TASK_*", "true:CFLAGS", "org.example/bench:LEVEL")
    for spec, variable, fine in (
        (TaskSpec(argv=("true",)), "TASK_X", True),
        (TaskSpec(argv=("true",)), "CFLAGS", True),
        (TaskSpec(argv=("python3",)), "CFLAGS", False),
        (TaskSpec(argv=("python3",)), "SKEP_X", False),
        (TaskSpec(package="org.example/bench/1", argv=("x",)), "LEVEL", True),
        (TaskSpec(package="org.example/other/1", argv=("x",)), "LEVEL", False),
    ):
        given = msgspec.structs.replace(spec, environment={variable: "x"})
        if fine:
            assert command_of(given, tmp_path, task_variables=rules).environment == {variable: "x"}
            continue
        with pytest.raises(TaskFailed, match="task_variables"):
            command_of(given, tmp_path, task_variables=rules)


def test_variables_of_a_measurement_are_checked_for_its_build_too(tmp_path: Path) -> None:
    job = {"measure": {"commit": "c", "build": ["python3"]}}
    spec = TaskSpec(argv=("true",), arguments=job, environment={"CFLAGS": "x"})
    with pytest.raises(TaskFailed, match="'python3' may not be given the variable CFLAGS"):
        command_of(spec, tmp_path, task_variables=("true:CFLAGS",))


@pytest.mark.parametrize(
    "name", ["./true", "/tmp/true", "x/../true", "true/", "/usr/bin/true", "package:a/b", "package"]
)
def test_commands_by_another_path_than_the_allowed_name_are_refused(name: str) -> None:
    assert allowed(TaskSpec(argv=(name,)), Settings(task_commands=("true",), task_packages=("*", "a/b")))
    assert not allowed(TaskSpec(argv=("true",)), Settings(task_commands=("true",)))


async def test_measuring_with_hostile_variables_starts_nothing_of_theirs(tmp_path: Path) -> None:
    """Even where the settings allow every name: only the measured command gets them."""
    repo = Repo.init(tmp_path / "repo")
    attributes = b"* filter=evil\n"
    commit = repo.commit({"a.txt": b"a", ".gitattributes": attributes, ".gitmodules": b'[submodule "x"]\n'})
    settings = Settings(data=str(tmp_path / "data"), task_variables=("*",), task_commands=("*",))
    code = "import os; open('out.jsonl', 'w').write('{\"metric\": \"n\", \"value\": 1}'); print(os.environ['BROWSER'])"
    # what would break the measured Python itself is left out
    harmless = {name: HOSTILE[name] for name in ("BROWSER", "BASH_ENV", "ENV", "GIT_CONFIG_GLOBAL", "GIT_SSH_COMMAND")}
    hostile = harmless | {"GIT_DIR": "/nowhere", "GIT_TEMPLATE_DIR": ".", "PYTHONWARNINGS": HOSTILE["PYTHONWARNINGS"]}
    unused = {"pin": False, "metrics": [], "variant": "", "author": "", "subject": ""}
    job = {
        "measure": {
            "commit": commit,
            "base": "",
            "build": [],
            "read": "out.jsonl",
            "warmup": 0,
            "repetitions": 1,
            **unused,
        }
    }
    spec = TaskSpec(argv=(sys.executable, "-I", "-c", code), arguments=job, environment=hostile, source="src")
    command = meant(
        Command("tsk_1", 1, "ctx_1", spec.argv, spec.environment),
        Run("tsk_1", 1, "ctx_1", "t", spec),
        "",
        settings=settings,
        mirror=lambda _: repo.folder,
    )
    told, left = Told(), list[str]()

    async def after(work: Path) -> None:
        left.extend(path.name for path in work.rglob("*"))

    async with Runtime(tmp_path / "data" / "runtime", settings, SystemClock()) as runtime:
        end = await runtime.run(command, told, after=after)
    assert end.ok, (end, told.stderr)
    assert told.stdout.decode().strip() == HOSTILE["BROWSER"] and "taken" not in left and "results.jsonl" in left


async def test_code_of_a_benchmark_gets_variables_once_its_interpreter_runs(tmp_path: Path) -> None:
    settings = Settings(data=str(tmp_path / "data"), task_variables=("*",), task_commands=("*",))
    code = (
        "import os, sys; print(sys.flags.isolated, os.environ['BROWSER'], 'SKEP_VARIABLES' in os.environ); sys.exit()"
    )
    spec = TaskSpec(environment={"BROWSER": "x", "PYTHONWARNINGS": HOSTILE["PYTHONWARNINGS"]})
    given = Run("tsk_1", 1, "ctx_1", "t", spec)
    command = Command("tsk_1", 1, "ctx_1", (), spec.environment)
    told = Told()
    async with Runtime(tmp_path / "data" / "runtime", settings, SystemClock()) as runtime:
        await runtime.run(meant(command, given, code, settings=settings, mirror=lambda _: tmp_path), told)
    assert told.stdout == b"1 x False\n", told.stderr
