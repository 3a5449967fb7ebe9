"""Rooms whose changes a test reports itself, and whose rules are driven step by step."""

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from skep.base.caller import SYSTEM
from skep.base.ids import batch_id
from skep.config.settings import Settings
from skep.processes.build import open_rooms
from skep.rpc.messages import Looked
from skep.rules.api import RuleSpec
from skep.rules.triggers import Triggers
from skep.sources.git.mirror import folder_of
from skep.sources.model import Move, Source
from skep.sources.report_handler import Intake
from skep.tasks.model import Context, ContextSpec, TaskSpec
from tests.rooms.house import MovedClock
from tests.support.forge import Repo

MAIN = "refs/heads/main"
NOOP = ContextSpec("check", (TaskSpec(kind="noop"),))
_count = itertools.count(1)


def rule(name: str = "check", **more: Any) -> RuleSpec:
    if "cron" not in more and "labels" not in more:
        more.setdefault("source", "**")
    return RuleSpec(name, **{"context": NOOP, **more})


def oid(n: int) -> str:
    return f"{n:040x}"


class RulesHouse:
    """`step` does what the loop would do, until nothing is left."""

    def __init__(self, core: Any, data: Path, clock: MovedClock) -> None:
        self.core = core
        self.data = data
        self.clock = clock
        self.triggers = self.another()
        self._intake = Intake(core.topics.db, core.topics)
        self._batches: dict[str, int] = {}
        self._standing: dict[tuple[str, str], str | None] = {}

    def another(self, paths: Any = None) -> Triggers:
        """One more reader, as another coordinator has it, or this one has after a restart."""
        core = self.core

        async def changed(source: str, old: str, new: str) -> Sequence[str] | None:
            found: list[str] | None = await core.gather.changed(SYSTEM, source, old, new)
            return found

        return Triggers(core.topics.db, self.clock, core.topics, core.rules, paths or changed)

    async def source(self, url: str = "https://example.org/a", **more: Any) -> Source:
        added: Source = (await self.core.sources.add(SYSTEM, url, **more)).source
        return added

    async def change(self, source: Source, versions: dict[str, str | None], *, first: bool = False) -> str:
        """One batch as a worker reports it; answers with its id."""
        now = self.clock.now()
        batch = batch_id(source.id, 1, next(_count))
        self._batches[batch] = len(self._batches)
        moves = [
            Move(name, self._standing.get((source.id, name)), version) for name, version in sorted(versions.items())
        ]
        await self._intake.fetched(Looked(source.id, 1, now, now), batch, moves, first=first, default_branch="main")
        self._standing |= {(source.id, name): version for name, version in versions.items()}
        return batch

    def mirror(self, source: Source) -> Repo:
        return Repo.init(folder_of(self.data, source.id))

    async def step(self) -> None:
        while await self.triggers.step():
            pass

    async def contexts(self, rule: str = "") -> list[Context]:
        """In the order of what they were made for."""
        page = await self.core.contexts.list(SYSTEM, limit=1000)
        found = [one for one in page.items if not rule or one.properties.get("rule") == rule]
        return sorted(found, key=lambda one: self._batches.get(one.properties.get("batch", ""), 0))

    async def causes(self, rule: str = "") -> list[str]:
        return [one.cause for one in await self.contexts(rule)]

    async def count(self, table: str) -> int:
        rows = await self.core.topics.db.read(f"SELECT count(*) AS n FROM {table}")
        return int(rows[0]["n"])


@asynccontextmanager
async def rules_house(
    data: Path, database: str = "sqlite:", file: Sequence[RuleSpec] = (), clock: MovedClock | None = None
) -> AsyncIterator[RulesHouse]:
    clock = clock or MovedClock()
    data.mkdir(exist_ok=True)
    settings = Settings(data=str(data), database=database)
    async with open_rooms(settings, clock, "secret", file) as rooms:
        yield RulesHouse(rooms.core, data, clock)


def body(spec: msgspec.Struct) -> Any:
    return msgspec.to_builtins(spec)
