"""What a worker says of its machine, and when it takes no further task."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from skep.clock import SystemClock
from skep.config import Settings
from skep.model.run import Facts, Limits, Sample
from skep.runtime.commands import allowed, full
from skep.runtime.facts import Machine


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
    settings = Settings(task_commands=("make", "/opt/bench/run"))
    assert allowed(("make", "all"), settings) == "" and allowed(("/opt/bench/run",), settings) == ""
    for name in ("/usr/bin/make", "./make", "sh", "run", ""):
        assert "task_commands" in allowed((name,), settings)
    assert "task_commands" in allowed((), settings) and "task_commands" in allowed(("true",), Settings())
    assert allowed(("anything",), Settings(task_commands=("*",))) == ""


def test_a_full_worker_says_why() -> None:
    sample = Sample(0.0, 0.0, 95, 100, 0, 0, 0, 0, (0.0, 0.0, 0.0), 1)
    assert "2 tasks" in full(Settings(task_slots=2, task_memory_threshold=99), 2, sample)
    assert "95 %" in full(Settings(task_slots=2), 1, sample)
    assert full(Settings(task_slots=2, task_memory_threshold=95), 1, sample) == ""
    assert full(Settings(task_memory_threshold=99), 1, sample) == "", "at least two, whatever the cores"
