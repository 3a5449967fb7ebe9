"""A seeded walk: submits, adds, finishes, fails, loses, cancels, retries; after each step all rows agree."""

import random
from contextlib import AsyncExitStack

from skep.base.caller import SYSTEM
from skep.base.errors import BadInput, Conflict
from skep.storage.database import Row
from skep.tasks.model import Context, Need, TaskSpec
from skep.tasks.transitions import ENDED, legal, moves_of
from tests.tasks.house import Effects, Engine, command, context_state, hand

STEPS = 60


def specs(chance: random.Random, known: list[str], tag: str) -> list[TaskSpec]:
    made: list[TaskSpec] = []
    for n in range(chance.randint(1, 4)):
        others = [*known, *(task.name for task in made)]
        needs = [Need(other, chance.choice(["finished", "ended"])) for other in others if chance.random() < 0.3]
        made.append(command(f"{tag}-{n}", *needs, retries=chance.randint(0, 2), backoff=0.0))
    return made


async def check(engine: Engine) -> None:
    """One reading of all rows, so that nothing moves meanwhile."""
    rows = await engine.sql(
        "SELECT task.*, context.state AS whole, context.unended, context.failed, context.tasks AS n FROM task "
        "JOIN context ON context.id = task.context ORDER BY task.id"
    )
    needs = await engine.db.read("SELECT target, task, rule FROM need")
    by_context: dict[str, list[Row]] = {}
    for row in rows:
        by_context.setdefault(row["context"], []).append(row)
        states = [move.state for move in moves_of(row["moves"])]
        by = [move.by for move in moves_of(row["moves"])]
        assert states[-1] == row["state"]
        for old, new, actor in zip(states[:-1], states[1:], by[1:], strict=True):
            assert legal(old, new, actor), (old, new, actor)
        assert row["needs_left"] <= sum(need["task"] == row["id"] for need in needs)
        assert (row["ended_at"] is not None) == (row["state"] in ENDED)
    for tasks in by_context.values():
        first, states = tasks[0], [task["state"] for task in tasks]
        assert first["n"] == len(tasks)
        assert first["unended"] == sum(state not in ENDED for state in states)
        assert first["failed"] == sum(state in ("FAILED", "ABORTED") for state in states)
        assert first["whole"] == context_state(states)


async def test_a_walk(engine: Engine) -> None:
    chance, effects = random.Random(7), Effects()
    effects.shut = True
    contexts: list[Context] = []
    async with AsyncExitStack() as stack:
        worker = await stack.enter_async_context(hand(engine, "wrk_1", 3, command=effects.on("wrk_1")))
        await stack.enter_async_context(hand(engine, "wrk_2", 2, command=effects.on("wrk_2")))
        for step in range(STEPS):
            act = chance.choice(
                ["submit", "submit", "finish", "finish", "finish", "fail", "add", "cancel", "retry", "cut"]
            )
            begun = [name for name in effects.begun() if name not in effects.begun("end")]
            context = chance.choice(contexts) if contexts else None
            try:
                if act == "submit" or context is None:
                    contexts.append(await engine.submit(*specs(chance, [], f"s{step}")))
                elif act == "add":
                    known = list(await engine.tasks(context))
                    await engine.core.contexts.add(SYSTEM, context.id, specs(chance, known, f"a{step}"))
                elif act == "cancel" and chance.random() < 0.3:
                    await engine.core.contexts.cancel(SYSTEM, context.id)
                elif act == "retry":
                    await engine.core.contexts.retry(SYSTEM, context.id)
                elif act == "cut":
                    await engine.cut(worker)
                    engine.mend(worker)
                elif begun:
                    name = chance.choice(begun)
                    effects.failing[name] = int(act == "fail")
                    effects.gate(name).set()
            except (Conflict, BadInput):
                pass  # it has ended, or needs what has failed
            await check(engine)
        effects.shut = False
        for name in set(effects.begun()):
            effects.failing[name] = 0
            effects.gate(name).set()
        for context in contexts:
            await engine.ended(context)
        await check(engine)
    effects.check()
