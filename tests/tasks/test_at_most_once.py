"""What may run at most once never starts a second time; failures and lost workers are counted apart."""

import asyncio
from pathlib import Path

import pytest

from skep.base.caller import SYSTEM
from skep.base.errors import BadInput, Conflict
from skep.rpc.messages import AnswerBody, AskBody
from skep.tasks.contexts import compose
from skep.tasks.model import Context, ContextSpec, Need, Renewed, Reported, TaskSpec
from tests.tasks.house import Effects, Engine, command, coordinator, hand
from tests.tasks.test_leases import LONG, run, until, working


@pytest.fixture
def effects() -> Effects:
    found = Effects()
    found.shut = True
    return found


async def failed(engine: Engine, context: Context) -> str:
    """The reason why task a has failed."""
    assert (await engine.ended(context)).state == "FAILED"
    task = (await engine.tasks(context))["a"]
    assert task.state == "FAILED"
    return task.reason


async def test_task_with_no_retries_that_fails_runs_once(engine: Engine, effects: Effects) -> None:
    effects.shut, effects.failing["a"] = False, 5
    async with hand(engine, command=effects.on("wrk_1")):
        context = await engine.submit(command("a", backoff=0.0))
        assert await failed(engine, context) == "it was told to fail"
    task = (await engine.tasks(context))["a"]
    assert (effects.begun(), task.failures, task.lost_workers) == (["a"], 1, 0)


@pytest.mark.parametrize("limit", [0, 2])
async def test_lost_workers_are_counted_against_their_own_limit(engine: Engine, effects: Effects, limit: int) -> None:
    context = await engine.submit(command("a", backoff=0.0, retries=3, lost_worker_retries=limit))
    for boot in range(1, limit + 2):
        async with hand(engine, "wrk_1", 1, boot=boot, command=effects.on("wrk_1")):
            await engine.become(context, a="RUNNING")
    async with hand(engine, "wrk_1", 1, boot=limit + 2, command=effects.on("wrk_1")):
        reason = await failed(engine, context)
    task = (await engine.tasks(context))["a"]
    assert (len(effects.begun()), task.failures, task.lost_workers) == (limit + 1, 0, limit + 1)
    assert reason.endswith(f"its worker was lost {limit + 1} time(s), and lost_worker_retries is {limit}")


async def test_failures_do_not_use_up_the_starts_after_lost_workers(engine: Engine, effects: Effects) -> None:
    effects.failing["a"] = 1
    context = await engine.submit(command("a", backoff=0.0, retries=1, lost_worker_retries=1))
    async with hand(engine, "wrk_1", 1, boot=1, command=effects.on("wrk_1")):
        await engine.become(context, a="RUNNING")
    async with hand(engine, "wrk_1", 1, boot=2, command=effects.on("wrk_1")):
        effects.gate("a").set()
        assert (await engine.ended(context)).state == "FINISHED"
    task = (await engine.tasks(context))["a"]
    assert (task.failures, task.lost_workers, len(effects.begun())) == (1, 1, 3)


async def test_at_most_once_that_fails_is_not_started_again(engine: Engine, effects: Effects) -> None:
    effects.shut, effects.failing["a"] = False, 1
    async with hand(engine, command=effects.on("wrk_1")):
        context = await engine.submit(command("a", at_most_once=True))
        assert await failed(engine, context) == "it was told to fail"
        with pytest.raises(Conflict, match="may run at most once"):
            await engine.core.contexts.retry(SYSTEM, context.id)
    assert effects.begun() == ["a"]


async def test_at_most_once_whose_worker_restarts_is_not_started_again(engine: Engine, effects: Effects) -> None:
    async with hand(engine, "wrk_1", 1, boot=1, command=effects.on("wrk_1")):
        context = await engine.submit(command("a", at_most_once=True))
        await engine.become(context, a="RUNNING")
    async with hand(engine, "wrk_1", 1, boot=2, command=effects.on("wrk_1")):
        reason = await failed(engine, context)
    assert reason == "wrk_1 began anew without it; it may run at most once, and may have started"
    assert effects.begun() == ["a"]


async def test_at_most_once_whose_worker_is_lost_is_not_started_elsewhere(
    place: str, data: Path, effects: Effects
) -> None:
    async with coordinator(data, place, task_lease=1.5) as engine, hand(engine, "wrk_1", 1, command=effects.on("w1")):
        context = await engine.submit(command("a", at_most_once=True))
        await engine.become(context, a="RUNNING")
        async with hand(engine, "wrk_2", 1, command=effects.on("w2")):
            await engine.sql("UPDATE member SET last_alive = 0 WHERE id = 'wrk_1'")
            assert "may run at most once" in await failed(engine, context)
    assert effects.begun() == ["a"]


async def test_at_most_once_declined_is_placed_again_and_runs_once(engine: Engine, effects: Effects) -> None:
    effects.shut = False
    async with hand(engine, "wrk_1", command=effects.on("wrk_1")) as worker:
        worker.refusal = "not now"
        context = await engine.submit(command("a", at_most_once=True))
        await until(lambda: worker.doer._known)
        worker.refusal = ""
        assert (await engine.ended(context)).state == "FINISHED"
    task = (await engine.tasks(context))["a"]
    assert effects.begun() == ["a"] and task.attempt > 1 and (task.failures, task.lost_workers) == (0, 0)


async def test_at_most_once_whose_worker_dies_before_it_accepts_runs_once_elsewhere(
    engine: Engine, effects: Effects
) -> None:
    """As long as it is SCHEDULED it has not started: its worker waits until ACCEPTED is stored."""
    effects.shut = False
    async with hand(engine, "wrk_1", 1, boot=1, command=effects.on("first")) as worker:
        ask = worker.doer._ask

        async def deaf(body: AskBody) -> AnswerBody:
            if isinstance(body, Reported):
                await asyncio.Event().wait()
            return await ask(body)

        worker.doer._ask = deaf
        context = await engine.submit(command("a", at_most_once=True))
        await until(lambda: worker.doer._accepting)
        assert (await engine.states(context))["a"] == "SCHEDULED" and effects.begun() == []
    async with hand(engine, "wrk_1", 1, boot=2, command=effects.on("second")):
        assert (await engine.ended(context)).state == "FINISHED"
    assert effects.log == [("a", "second", "begin"), ("a", "second", "end")]


async def test_at_most_once_starts_when_its_acceptance_is_stored() -> None:
    async with working() as (boss, doer, work):
        boss.deaf = True
        _, first = await boss.renewal()
        first.set_result(Renewed(LONG))
        await until(doer._has_lease)
        doer.begin([run("tsk_1", at_most_once=True), run("tsk_2")])
        await until(lambda: work.begun)
        assert work.begun == [("tsk_2", 1)]  # which does not wait
        boss.deaf = False
        await until(lambda: len(work.begun) == 2)
        states = [one.state for one in boss.reports if one.task == "tsk_1"]
        assert states[0] == "ACCEPTED"


async def test_retry_starts_what_failed_but_not_what_may_run_at_most_once(engine: Engine, effects: Effects) -> None:
    """Nor what needs it: that could never run, and its context would never end."""
    effects.shut, effects.failing["a"], effects.failing["b"] = False, 1, 1
    specs = [
        command("a", at_most_once=True),
        command("b"),
        command("c", "a"),
        command("d", Need("a", "ended"), "b"),
        command("e", "c"),
    ]
    async with hand(engine, command=effects.on("wrk_1")):
        context = await engine.submit(*specs)
        assert (await engine.ended(context)).state == "FAILED"
        await engine.core.contexts.retry(SYSTEM, context.id)
        assert (await engine.ended(context)).state == "FAILED"
    expected = {"a": "FAILED", "b": "FINISHED", "c": "ABORTED", "d": "FINISHED", "e": "ABORTED"}
    assert await engine.states(context) == expected
    assert effects.begun().count("a") == 1


async def test_retry_starts_what_may_run_at_most_once_and_never_started(engine: Engine, effects: Effects) -> None:
    effects.shut = False
    context = await engine.submit(command("a", at_most_once=True))
    await engine.core.contexts.cancel(SYSTEM, context.id)
    await engine.ended(context)
    await engine.core.contexts.retry(SYSTEM, context.id)
    async with hand(engine, command=effects.on("wrk_1")):
        assert (await engine.ended(context)).state == "FINISHED"
    assert effects.begun() == ["a"]


@pytest.mark.parametrize("more", [{"retries": 1}, {"lost_worker_retries": 1}, {"retries": 2, "lost_worker_retries": 5}])
def test_at_most_once_with_retries_is_refused(more: dict[str, int]) -> None:
    with pytest.raises(BadInput, match=f"may run at most once, but {next(iter(more))} is") as refused:
        compose(ContextSpec("c", (TaskSpec("a", argv=("true",), at_most_once=True, **more),)))  # type: ignore[arg-type]
    assert refused.value.hint == f"leave out {next(iter(more))}, or at_most_once"


def test_at_most_once_of_a_template_with_retries_of_the_task_is_refused() -> None:
    templates = {"once": TaskSpec(argv=("true",), at_most_once=True)}
    with pytest.raises(BadInput, match="at most once"):
        compose(ContextSpec("c", (TaskSpec("a", template="once", retries=1),), templates=templates))
    (task,) = compose(ContextSpec("c", (TaskSpec("a", template="once", lost_worker_retries=0),), templates=templates))
    assert task.at_most_once
