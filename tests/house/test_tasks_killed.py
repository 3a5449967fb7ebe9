"""Commands with effects, and kill -9 of server and worker meanwhile: each effect is there, none ran twice at once."""

import os
import random
import signal
import threading
from pathlib import Path

from skep.client import Client
from skep.model.run import Limits
from skep.model.task import ContextSpec, Need, TaskSpec
from tests.house.running import RunningSkep

CONTEXTS, TASKS, KILLS = 3, 60, 5
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
            backoff=0.1,
            limits=Limits(seconds=30.0),
        )
        for task in range(TASKS)
    ]
    return ContextSpec(f"killed {n}", tuple(tasks))


def test_every_effect_is_there_and_none_ran_twice_at_once(tmp_path: Path) -> None:
    chance = random.Random(11)
    effects = tmp_path / "effects"
    effects.mkdir()
    with RunningSkep(tmp_path / "data", task_commands=["sh"], task_slots=4, task_lease=6.0) as skep:
        with Client(skep.url, skep.token) as client:
            ids = [client.contexts.submit(context(effects, n)).id for n in range(CONTEXTS)]
        for _ in range(KILLS):
            threading.Event().wait(0.3 + chance.random())  # the moment of the kill is the test's input
            if chance.random() < 0.5:
                skep.kill()
                skep.start()
            else:
                for pid in skep.children():
                    os.kill(pid, signal.SIGKILL)
        with Client(skep.url, skep.token) as client:
            for id in ids:
                ended = client.contexts.wait(id, 60.0)
                assert ended.state == "FINISHED", skep.tail()
        assert not (effects / "overlaps").exists(), (effects / "overlaps").read_text()
        missing = [f"{n}-{task}" for n in range(CONTEXTS) for task in range(TASKS) if not done(effects, n, task)]
        assert missing == []


def done(folder: Path, n: int, task: int) -> bool:
    path = folder / f"{n}-{task}"
    return path.exists() and set(path.read_text().split()) == {"done"}
