"""Commands with effects, and kill -9 of server and worker meanwhile: each effect is there, none ran twice at once.

A slice of some seconds belongs to every run; `make long LONG=600 SEED=5` goes on longer.
"""

import os
import random
import signal
import threading
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from skep.client import Client
from skep.tasks.model import ContextSpec, Limits, Need, TaskSpec
from tests.house.running import RunningSkep
from tests.house.waiting import until

LONG = float(os.environ.get("LONG", "6"))
SEED = int(os.environ.get("SEED", "11"))
TASKS = 60
#: contexts under way at a time
UNDER_WAY = 3
#: the lock is the kernel's: it is free as soon as whoever had it is dead
_EFFECT = 'flock -n "$1.lock" sh -c "sleep 0.05; echo done >> \\"$1\\"" || { echo "$1" >> "$2"; exit 1; }'


def context(folder: Path, n: int) -> ContextSpec:
    """Every tenth needs the one before it."""
    tasks = [
        TaskSpec(
            f"t{task}",
            argv=("sh", "-c", _EFFECT, "sh", str(folder / f"{n}-{task}"), str(folder / "overlaps")),
            needs=(Need(f"t{task - 1}"),) if task % 10 == 9 else (),
            retries=20,
            lost_worker_retries=100,
            backoff=0.1,
            limits=Limits(seconds=30.0),
        )
        for task in range(TASKS)
    ]
    return ContextSpec(f"killed {n}", tuple(tasks))


class Story:
    def __init__(self, skep: RunningSkep, effects: Path) -> None:
        self.chance = random.Random(SEED)
        self.skep = skep
        self.effects = effects
        self.made: list[str] = []
        #: how many of them are known to have finished
        self.finished = 0

    def submit(self) -> None:
        """As many as are wanted; while the server is up."""
        with Client(self.skep.url, self.skep.token) as client:
            while self.finished < len(self.made) and client.contexts.show(self.made[self.finished]).context.left == 0:
                self.finished += 1
            while len(self.made) - self.finished < UNDER_WAY:
                self.made.append(client.contexts.submit(context(self.effects, len(self.made))).id)

    def kill(self) -> None:
        threading.Event().wait(0.3 + self.chance.random())  # the moment of the kill is the test's input
        if self.chance.random() < 0.5:
            self.skep.kill()
            self.skep.start()
        else:
            self.skep.kill_children()

    def check(self) -> None:
        with Client(self.skep.url, self.skep.token) as client:
            for id in self.made:
                assert client.contexts.wait(id, 120.0).state == "FINISHED", self.skep.tail()
        overlaps = self.effects / "overlaps"
        assert not overlaps.exists(), overlaps.read_text()
        wanted = [self.effects / f"{n}-{task}" for n in range(len(self.made)) for task in range(TASKS)]
        assert [path.name for path in wanted if not path.exists() or set(path.read_text().split()) != {"done"}] == []


def test_every_effect_is_there_and_none_ran_twice_at_once(tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    effects.mkdir()
    allowed: dict[str, Any] = {"task_commands": ["sh"], "task_writable_paths": [str(effects)]}
    with RunningSkep(tmp_path / "data", task_slots=4, task_lease=6.0, **allowed) as skep:
        story = Story(skep, effects)
        last = monotonic() + LONG
        story.submit()
        while monotonic() < last:
            story.kill()
            story.submit()
        story.check()


def _worker_of(skep: RunningSkep) -> int:
    """The process id of the worker that the server started; it may have to be waited for."""

    def found() -> int | None:
        return next((pid for pid in skep.children() if b"skep.processes.worker" in _words(pid)), None)

    return until(found, skep)


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("at_most_once", [True, False])
def test_task_whose_worker_is_killed_after_it_started_is_started_again_unless_at_most_once(
    tmp_path: Path, at_most_once: bool
) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    effect, gate = seen / "effect", seen / "gate"
    code = f'echo ran >> "{effect}"; while [ ! -e "{gate}" ]; do sleep 0.05; done'
    allowed: dict[str, Any] = {"task_commands": ["sh"], "task_writable_paths": [str(seen)]}
    with RunningSkep(tmp_path / "data", task_lease=6.0, **allowed) as skep:
        with Client(skep.url, skep.token) as client:
            spec = TaskSpec("one", argv=("sh", "-c", code), at_most_once=at_most_once, backoff=0.0)
            made = client.tasks.submit(spec)
            until(effect.exists, skep)
            os.kill(_worker_of(skep), signal.SIGKILL)
            until(lambda: client.tasks.show(made.task).task.lost_workers, skep)
            gate.touch()
            ended = client.contexts.wait(made.context.id, 120.0)
            task = client.tasks.show(made.task).task
        assert (ended.state, task.failures) == ("FAILED" if at_most_once else "FINISHED", 0), skep.tail()
        assert effect.read_text().split() == ["ran"] * (1 if at_most_once else 2)


def test_at_most_once_whose_worker_is_killed_between_placement_and_acceptance_runs_once(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    effect = seen / "effect"
    allowed: dict[str, Any] = {"task_commands": ["sh"], "task_writable_paths": [str(seen)]}
    with RunningSkep(tmp_path / "data", task_lease=6.0, **allowed) as skep:
        with Client(skep.url, skep.token) as client:
            client.contexts.wait(client.tasks.submit(TaskSpec("first", argv=("sh", "-c", "true"))).context.id, 120.0)
            worker = _worker_of(skep)
            os.kill(worker, signal.SIGSTOP)
            made = client.tasks.submit(TaskSpec("one", argv=("sh", "-c", f'echo ran >> "{effect}"'), at_most_once=True))
            until(lambda: client.tasks.show(made.task).task.state == "SCHEDULED", skep)
            os.kill(worker, signal.SIGKILL)
            ended = client.contexts.wait(made.context.id, 120.0)
            task = client.tasks.show(made.task).task
        assert (ended.state, task.failures, task.lost_workers) == ("FINISHED", 0, 0), skep.tail()
        assert effect.read_text().split() == ["ran"]


def test_at_most_once_with_kills_at_any_moment_never_runs_twice(tmp_path: Path) -> None:
    effects, chance = tmp_path / "effects", random.Random(SEED)
    effects.mkdir()
    allowed: dict[str, Any] = {"task_commands": ["sh"], "task_writable_paths": [str(effects)]}
    with RunningSkep(tmp_path / "data", task_slots=4, task_lease=6.0, **allowed) as skep:
        specs = tuple(
            TaskSpec(f"t{n}", argv=("sh", "-c", f'echo ran >> "{effects / str(n)}"; sleep 0.05'), at_most_once=True)
            for n in range(TASKS)
        )
        with Client(skep.url, skep.token) as client:
            made = client.contexts.submit(ContextSpec("once", specs))
            for _ in range(4):
                threading.Event().wait(chance.random())  # the moment of the kill is the test's input
                os.kill(_worker_of(skep), signal.SIGKILL)
            assert client.contexts.wait(made.id, 120.0).state != "RUNNING", skep.tail()
            tasks = {task.name: task for task in client.contexts.show(made.id).tasks}
    for n in range(TASKS):
        ran = (effects / str(n)).read_text().split() if (effects / str(n)).exists() else []
        assert ran == ["ran"] or (ran == [] and tasks[f"t{n}"].state == "FAILED")
