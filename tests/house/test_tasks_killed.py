"""Commands with effects, and kill -9 of server and worker meanwhile: each effect is there, none ran twice at once.

A slice of some seconds belongs to every run; `make long LONG=600 SEED=5` goes on longer.
"""

import os
import random
import threading
from pathlib import Path
from time import monotonic

from skep.client import Client
from skep.model.run import Limits
from skep.model.task import ContextSpec, Need, TaskSpec
from tests.house.running import RunningSkep

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
    with RunningSkep(tmp_path / "data", task_commands=["sh"], task_slots=4, task_lease=6.0) as skep:
        story = Story(skep, effects)
        until = monotonic() + LONG
        story.submit()
        while monotonic() < until:
            story.kill()
            story.submit()
        story.check()
