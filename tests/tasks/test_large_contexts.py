"""Contexts that take more than one transaction: seen whole or not at all, cancelled and removed as a set."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from skep.base.caller import SYSTEM
from skep.base.errors import NotFound
from skep.storage.database import Database, Tx
from skep.tasks.model import Context, ContextSpec, Need, TaskSpec
from skep.tasks.store import FILLING_SECONDS, PIECE
from tests.tasks.house import Effects, Engine, MovableClock, command, hand, noop

MANY = 2 * PIECE + 300


def large(kind: str = "magic", *first: TaskSpec) -> ContextSpec:
    """Every hundredth needs the one before it."""
    tasks = [
        TaskSpec(f"t{n}", kind=kind, needs=(Need(f"t{n - 1}"),) if n % 100 == 99 else ())
        for n in range(MANY - len(first))
    ]
    return ContextSpec("large", (*first, *tasks))


async def counted(engine: Engine) -> dict[str, int]:
    tables = ("context", "task", "need")
    return {one: (await engine.db.read(f"SELECT count(*) AS n FROM {one}"))[0]["n"] for one in tables}


async def test_all_of_it_runs(engine: Engine) -> None:
    async with hand(engine, slots=500, noop=noop):
        context = await engine.core.contexts.submit(SYSTEM, large("noop"))
        assert (context.tasks, context.state) == (MANY, "RUNNING")
        assert (await engine.ended(context)).state == "FINISHED"
    (last,) = (await engine.core.tasks.list(SYSTEM, limit=1)).items
    moves = (await engine.core.tasks.show(SYSTEM, last.id)).moves
    assert [move.state for move in moves[:4]] == ["CREATED", "SUBMITTED", "WAITING", "SCHEDULED"]
    assert (await engine.db.read("SELECT DISTINCT stage FROM context")) == [{"stage": "whole"}]


class Stuck:
    """A database that takes so many writes and no more."""

    def __init__(self, db: Database, writes: int) -> None:
        self._db = db
        self._left = writes
        self.reached = asyncio.Event()

    async def write(self, work: Callable[[Tx], Awaitable[Any]]) -> Any:
        if not self._left:
            self.reached.set()
            await asyncio.Event().wait()
        self._left -= 1
        return await self._db.write(work)


async def test_what_was_not_stored_whole_is_never_seen(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = Stuck(engine.db, 2)  # the context, and its first piece
    with monkeypatch.context() as patch:
        patch.setattr(engine.core.contexts, "_db", stuck)
        submitting = asyncio.create_task(engine.core.contexts.submit(SYSTEM, large()))
        await stuck.reached.wait()
        submitting.cancel()
        await asyncio.gather(submitting, return_exceptions=True)
    assert (await counted(engine))["task"] == PIECE
    assert (await engine.core.contexts.list(SYSTEM)).items == []
    (row,) = await engine.db.read("SELECT id FROM context")
    with pytest.raises(NotFound):
        await engine.core.contexts.show(SYSTEM, row["id"])
    await engine.dispatcher.sweep.once()
    assert (await counted(engine))["context"] == 1, "somebody may still be storing it"
    assert isinstance(engine.clock, MovableClock)
    engine.clock.ahead += FILLING_SECONDS + 1
    await engine.dispatcher.sweep.once()
    assert await counted(engine) == {"context": 0, "task": 0, "need": 0}


async def test_for_one_occasion_there_is_one(engine: Engine) -> None:
    def submit() -> "asyncio.Task[Context]":
        return asyncio.create_task(engine.core.contexts.submit(SYSTEM, large(), once="this"))

    first, second = await asyncio.gather(submit(), submit())
    assert first.id == second.id
    assert (await counted(engine))["task"] == MANY
    assert (await engine.core.contexts.submit(SYSTEM, large(), once="this")).id == first.id
    assert (await counted(engine))["task"] == MANY


async def test_cancelled_and_removed(engine: Engine) -> None:
    effects = Effects()
    effects.shut = True
    async with hand(engine, command=effects.on("wrk_1")):
        context = await engine.core.contexts.submit(SYSTEM, large("magic", command("runs")))
        await engine.become(context, runs="RUNNING")
        await engine.core.contexts.cancel(SYSTEM, context.id, 'it is "wrong"')
        ended = await engine.ended(context)
        assert (ended.state, ended.failed, ended.left) == ("FAILED", MANY, 0)
        while effects.begun("end") != ["runs"]:
            await asyncio.sleep(0.01)
    states = await engine.db.read("SELECT state, reason, count(*) AS n FROM task GROUP BY state, reason")
    assert states == [{"state": "ABORTED", "reason": f'aborted by {SYSTEM.subject}: it is "wrong"', "n": MANY}]
    assert (await engine.moves(context, "t7"))[-1].reason == states[0]["reason"]
    await engine.core.contexts.remove(SYSTEM, context.id)
    assert await counted(engine) == {"context": 0, "task": 0, "need": 0}
