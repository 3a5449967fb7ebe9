"""What a worker says of its machine, and when it takes no further task."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.runtime.commands import Machine, allowed, full
from skep.tasks.model import Facts, Limits, Sample, TaskSpec


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, Settings(task_tools=("git", "no-such-tool")), SystemClock())


async def test_facts(machine: Machine) -> None:
    facts = await asyncio.to_thread(machine.facts)
    assert (facts.os, facts.cpus, facts.kernel) == ("linux", os.cpu_count(), os.uname().release)
    assert facts.memory > 0 and facts.disk_total >= facts.disk_free > 0
    assert list(facts.tools) == ["git"] and Path(facts.tools["git"]).is_file()
    assert facts.limits.keys() == {field.name for field in msgspec.structs.fields(Limits)}
    assert msgspec.json.decode(msgspec.json.encode(facts), type=Facts) == facts


async def test_samples(machine: Machine) -> None:
    first, second = machine.sample(), machine.sample()
    for sample in (first, second):
        assert 0 <= sample.cpu_percent <= 100
        assert 0 < sample.memory_used < sample.memory_total
        assert sample.processes > 1 and sample.disk_free > 0 and len(sample.load) == 3
    assert second.network_in >= first.network_in >= 0 and second.at >= first.at
    assert msgspec.json.decode(msgspec.json.encode(second), type=Sample) == second


def test_commands_are_allowed_by_their_exact_name() -> None:
    def why(*argv: str, commands: tuple[str, ...] = ("make", "/opt/bench/run")) -> str:
        return allowed(TaskSpec(argv=argv), Settings(task_commands=commands))

    assert why("make", "all") == why("/opt/bench/run") == ""
    for name in ("/usr/bin/make", "./make", "sh", "run", "package:a/b", ""):
        assert "task_commands" in why(name)
    assert "task_commands" in why() and "task_commands" in why("true", commands=())
    assert why("anything", commands=("*",)) == ""


def test_packages_are_allowed_by_group_and_name() -> None:
    def why(package: str, *packages: str, commands: tuple[str, ...] = ()) -> str:
        return allowed(TaskSpec(package=package), Settings(task_packages=packages, task_commands=commands))

    assert why("a/b/1.0", "a/b") == why("a/b/2.0", "*") == why("a/b/1.0", commands=("*",)) == ""
    for packages in ((), ("a/b/1.0",), ("a/bc",), ("a/*",)):
        assert "may not run 'a/b': its setting task_packages" in why("a/b/1.0", *packages, commands=("a/b",))


def test_a_full_worker_says_why() -> None:
    sample = Sample(0.0, 0.0, 95, 100, 0, 0, 0, 0, (0.0, 0.0, 0.0), 1)
    assert "2 tasks" in full(Settings(task_slots=2, task_memory_threshold=99), 2, sample)
    assert "95 %" in full(Settings(task_slots=2), 1, sample)
    assert full(Settings(task_slots=2, task_memory_threshold=95), 1, sample) == ""
    assert full(Settings(task_memory_threshold=99), 1, sample) == "", "at least two, whatever the cores"
