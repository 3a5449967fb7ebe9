"""What goes wrong around tasks: workers that vanish, lie or come back, a coordinator that starts again, odd rows."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from skep.base.caller import SYSTEM
from skep.results.api import Draft, ResultQuery
from skep.tasks.model import Chunk, Renewed, Report, Reported, Run, TaskSpec, Written
from skep.tasks.worker import TaskFailed
from tests.tasks.house import Effects, Engine, Hand, MovableClock, command, coordinator, hand


async def test_a_lost_workers_task_runs_elsewhere_and_never_twice_at_once(place: str, data: Path) -> None:
    """Its stream is cut, it goes on by itself: it stops before its lease is over, and then another one begins."""
    effects = Effects()
    effects.shut = True
    async with coordinator(data, place, task_lease=1.5) as engine, AsyncExitStack() as stack:
        first = await stack.enter_async_context(hand(engine, "wrk_1", 1, command=effects.on("wrk_1")))
        context = await engine.submit(command("a"))
        await engine.become(context, a="RUNNING")
        await stack.enter_async_context(hand(engine, "wrk_2", 1, command=effects.on("wrk_2")))
        await engine.cut(first)
        while ("a", "wrk_2", "begin") not in effects.log:
            await asyncio.sleep(0.01)
        effects.gate("a").set()
        assert (await engine.ended(context)).state == "FINISHED"
    effects.check()
    # a machine that stalls for longer than the lease may lose it once more; who had it first and last stays true
    assert (effects.log[0], effects.log[-1]) == (("a", "wrk_1", "begin"), ("a", "wrk_2", "end"))


async def test_a_task_lost_again_and_again_fails(engine: Engine) -> None:
    effects = Effects()
    effects.shut = True
    context = await engine.submit(command("a", backoff=0.0))
    for boot in range(1, 7):
        async with hand(engine, "wrk_1", 1, boot=boot, command=effects.on("wrk_1")):
            await engine.become(context, a="RUNNING")
    async with hand(engine, "wrk_1", 1, boot=7, command=effects.on("wrk_1")):
        assert (await engine.ended(context)).state == "FAILED"
    task = (await engine.tasks(context))["a"]
    assert (task.failures, task.lost_workers) == (0, 6)
    why = "its worker was lost 6 time(s), and lost_worker_retries is 5"
    assert task.reason == f"wrk_1 began anew without it; {why}"


async def test_the_same_process_comes_back_and_keeps_what_it_runs(engine: Engine) -> None:
    effects = Effects()
    effects.shut = True
    async with hand(engine, command=effects.on("wrk_1")) as worker:
        context = await engine.submit(command("a"), command("b"))
        await engine.become(context, a="RUNNING", b="RUNNING")
        await engine.cut(worker)
        effects.gate("b").set()
        while effects.begun("end") != ["b"]:
            await asyncio.sleep(0.01)
        engine.mend(worker)
        await engine.become(context, a="RUNNING", b="FINISHED")
        effects.gate("a").set()
        assert (await engine.ended(context)).state == "FINISHED"
    assert sorted(effects.begun()) == ["a", "b"]
    assert {task.attempt for task in (await engine.tasks(context)).values()} == {1}


async def test_what_was_aborted_meanwhile_is_stopped_when_the_worker_is_back(engine: Engine) -> None:
    effects = Effects()
    effects.shut = True
    async with hand(engine, command=effects.on("wrk_1")) as worker:
        context = await engine.submit(command("a"))
        await engine.become(context, a="RUNNING")
        await engine.cut(worker)
        await engine.core.contexts.cancel(SYSTEM, context.id)
        assert (await engine.ended(context)).state == "FAILED"
        engine.mend(worker)
        while effects.begun("end") != ["a"]:
            await asyncio.sleep(0.01)
    assert (await engine.tasks(context))["a"].state == "ABORTED"


async def test_another_attempt_begins_when_the_one_before_it_has_ended(engine: Engine) -> None:
    """What was cancelled may take its time to end; who wants it again does not get it twice at once."""
    ended, log = asyncio.Event(), list[tuple[str, int, str]]()

    async def do(run: Run) -> None:
        log.append((run.name, run.attempt, "begin"))
        try:
            while (run.name, run.attempt) == ("a", 1):
                await asyncio.sleep(60)
        finally:
            while run.name == "a" and not ended.is_set():
                with suppress(asyncio.CancelledError):  # it is told again and again
                    await ended.wait()
            log.append((run.name, run.attempt, "end"))

    async with hand(engine, command=do):
        context = await engine.submit(command("a"))
        await engine.become(context, a="RUNNING")
        await engine.core.contexts.cancel(SYSTEM, context.id)
        await engine.ended(context)
        await engine.core.contexts.retry(SYSTEM, context.id)
        await engine.become(context, a="SCHEDULED")
        await engine.ended(await engine.submit(command("b")))  # the worker has heard of both
        assert log == [("a", 1, "begin"), ("b", 1, "begin"), ("b", 1, "end")]
        ended.set()
        assert (await engine.ended(context)).state == "FINISHED"
    assert log[3:] == [("a", 1, "end"), ("a", 2, "begin"), ("a", 2, "end")]


async def test_what_is_stopped_before_its_first_step_is_given_back(engine: Engine) -> None:
    async with hand(engine) as worker:
        begin, stop = worker.doer.begin, worker.doer.stop

        def at_once(runs: Sequence[Run]) -> None:
            begin(runs)
            worker.doer.begin = begin  # type: ignore[method-assign]
            stop([(run.task, run.attempt) for run in runs])

        worker.doer.begin = at_once  # type: ignore[method-assign]
        context = await engine.ended(await engine.submit(command("a", backoff=0.0)))
        assert context.state == "FINISHED"
        while worker.doer.running:  # its last report is on its way
            await asyncio.sleep(0.01)
    assert (await engine.tasks(context))["a"].attempt == 2


async def report(worker: Hand, *reports: Report) -> Renewed:
    answer = await worker.client.ask(Reported(reports))
    assert isinstance(answer, Renewed)
    return answer


async def test_lies_about_attempts_are_refused(engine: Engine) -> None:
    effects = Effects()
    effects.shut = True
    async with hand(engine, "wrk_1", 1, command=effects.on("wrk_1")) as worker, hand(engine, "wrk_2", 0) as liar:
        context = await engine.submit(command("a"))
        task = (await engine.become(context, a="RUNNING"))["a"]
        for attempt in (0, 2, 1 << 62, -1):
            assert (await report(worker, Report(task.id, attempt, "FINISHED"))).stop == ((task.id, attempt),)
        assert (await report(liar, Report(task.id, 1, "FINISHED"))).stop == ((task.id, 1),)
        assert (await report(liar, Report("tsk_none", 1, "RUNNING"))).stop == (("tsk_none", 1),)
        assert (await report(liar)).stop == ()
        assert (await report(worker, Report(task.id, 1, "RUNNING"))).stop == (), "a repeat is harmless"
        assert (await engine.tasks(context))["a"].state == "RUNNING"
        two = await report(worker, Report(task.id, 1, "ACCEPTED"), Report("tsk_x", 1, "FINISHED"))
        assert two.stop == ((task.id, 1), ("tsk_x", 1)) or two.stop == (("tsk_x", 1),)
        stale = await engine.rooms.desk.ask("wrk_1", 99, Reported((Report(task.id, 1, "FINISHED"),)), False)
        assert isinstance(stale, Renewed)
        assert stale.stop == ((task.id, 1),), "an older or unknown process of the worker has no say"
        effects.gate("a").set()
        assert (await engine.ended(context)).state == "FINISHED"
        assert (await report(worker, Report(task.id, 1, "FAILED"))).stop == ((task.id, 1),)
        assert (await engine.tasks(context))["a"].state == "FINISHED"


async def test_a_worker_writes_the_output_of_nothing_but_its_own_tasks(engine: Engine) -> None:
    effects = Effects()
    effects.shut = True
    async with hand(engine, "wrk_1", 1, command=effects.on("wrk_1")) as worker, hand(engine, "wrk_2", 0) as liar:
        context = await engine.submit(command("a"))
        task = (await engine.become(context, a="RUNNING"))["a"]
        for who, attempt in ((liar, 1), (worker, 2), (worker, 1)):
            chunk = Chunk(task.id, context.id, attempt, 0, "stdout", 1.0, who.member.encode())
            await who.client.ask(Written((chunk,)))
        assert [row["body"] for row in await engine.sql("SELECT body FROM output")] == [b"wrk_1"]


async def test_a_huge_result_is_not_kept(engine: Engine) -> None:
    async def chatty(run: object) -> str:
        return "x" * 2_000_000

    async with hand(engine, command=chatty):
        context = await engine.ended(await engine.submit(command("a")))
    view = await engine.core.tasks.show(SYSTEM, (await engine.tasks(context))["a"].id)
    assert "more than" in view.result["error"]


async def test_an_error_inside_a_task_is_its_failure_and_not_the_workers(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(run: object) -> None:
        raise ZeroDivisionError("one over nothing")

    async with hand(engine, command=broken):
        context = await engine.ended(await engine.submit(command("a")))
        assert (await engine.tasks(context))["a"].reason == "ZeroDivisionError: one over nothing"
        assert (await engine.ended(await engine.submit(command("b")))).state == "FAILED"


async def test_a_coordinator_starts_again_in_the_middle(place: str, data: Path) -> None:
    effects = Effects()
    effects.shut = True
    async with coordinator(data, place) as engine, hand(engine, "wrk_1", 2, command=effects.on("wrk_1")):
        context = await engine.submit(*(command(f"t{n}") for n in range(6)), command("last", "t5"))
        await engine.become(context, t0="RUNNING", t1="RUNNING")
        effects.gate("t0").set()
        await engine.become(context, t0="FINISHED", t2="RUNNING")
        await engine.stop_serving()
        effects.gate("t1").set()
        while "t1" not in effects.begun("end"):
            await asyncio.sleep(0.01)
        async with coordinator(data, place) as again:
            await again.become(context, t0="FINISHED", t1="FINISHED", t2="RUNNING", t3="RUNNING")
            effects.shut = False
            for n in range(6):
                effects.gate(f"t{n}").set()
            assert (await again.ended(context)).state == "FINISHED"
    effects.check()
    assert sorted(effects.begun()) == ["last", "t0", "t1", "t2", "t3", "t4", "t5"]


async def test_ended_contexts_expire(place: str, data: Path) -> None:
    clock = MovableClock()
    bounds = {"keep_contexts": 1000.0, "keep_failed": 300.0}
    async with coordinator(data, place, clock, **bounds) as engine, hand(engine, bad=broken) as worker:
        failed = await engine.ended(await engine.submit(TaskSpec("f", kind="bad")))
        await engine.core.results.record(SYSTEM, (await engine.tasks(failed))["f"].id, None, [Draft("time", 1.0)])
        old = await engine.ended(await engine.submit(command("a"), command("b", "a")))
        await engine.pass_time(600.0, worker)
        await swept(engine)
        assert {row["id"] for row in await engine.db.read("SELECT id FROM context")} == {old.id}
        assert [one.context for one in (await engine.core.results.query(SYSTEM, ResultQuery())).items] == [failed.id]
        waiting = await engine.submit(command("w", selector="cpu > 99"))
        new = await engine.ended(await engine.submit(command("a")))
        await engine.pass_time(600.0, worker)
        await swept(engine)
        ids = {row["id"] for row in await engine.db.read("SELECT id FROM context")}
        assert ids == {new.id, waiting.id}
        assert {row["context"] for row in await engine.db.read("SELECT context FROM task")} == ids
        assert not await engine.db.read("SELECT task FROM need WHERE task NOT IN (SELECT id FROM task)")
        await engine.core.contexts.remove(SYSTEM, new.id)
        assert [row["id"] for row in await engine.db.read("SELECT id FROM context")] == [waiting.id]
        assert old.id not in ids


async def broken(run: Run) -> None:
    raise TaskFailed("it was told to fail")


async def swept(engine: Engine) -> dict[str, int]:
    """All that was ever repaired: the dispatcher sweeps in its own time too, and may have come first."""
    await engine.dispatcher.sweep.once()
    return await engine.dispatcher.sweep.repairs()


async def test_the_sweep_repairs_what_no_event_will(engine: Engine) -> None:
    effects = Effects()
    effects.shut = True
    async with hand(engine, slots=1, command=effects.on("wrk_1")):
        context = await engine.submit(command("a"), command("b", "a"), command("c", "b"))
        await engine.become(context, a="RUNNING", b="WAITING")
        assert await swept(engine) == {}
        # a worker that nobody knows has it
        await engine.db.write(lambda tx: tx.rows("UPDATE task SET worker = 'wrk_ghost' WHERE state = 'RUNNING'"))
        assert await swept(engine) == {"lost_worker": 1}
        moves = [(move.state, move.reason) for move in await engine.moves(context, "a")]
        assert ("WAITING", "its worker wrk_ghost is lost") in moves
        effects.shut = False
        effects.gate("a").set()
        await engine.ended(context)
        # needs that were met, and nobody counted
        effects.shut = True
        effects.gates.clear()
        context = await engine.submit(command("a"), command("b", "a"))
        await engine.become(context, a="RUNNING", b="WAITING")
        await engine.sql("UPDATE task SET needs_left = 7 WHERE name = 'b' AND context = :c", c=context.id)
        effects.shut = False
        effects.gate("a").set()
        await engine.become(context, a="FINISHED", b="WAITING")
        assert await swept(engine) == {"lost_worker": 1, "met_needs": 1}
        assert (await engine.ended(context)).state == "FINISHED"
        # a context that did not notice
        await engine.sql(
            "UPDATE context SET state = 'RUNNING', ended_at = NULL, unended = 2 WHERE id = :c", c=context.id
        )
        assert await swept(engine) == {"ended_context": 1, "lost_worker": 1, "met_needs": 1}
        context = await engine.ended(context)
        assert (context.state, context.left) == ("FINISHED", 0)
        # active without a worker at all
        effects.shut = True
        effects.gates.clear()
        context = await engine.submit(command("a"))
        await engine.become(context, a="RUNNING")
        await engine.sql("UPDATE task SET worker = '' WHERE context = :c", c=context.id)
        assert await swept(engine) == {"ended_context": 1, "lost_worker": 2, "met_needs": 1}
        assert await swept(engine) == {"ended_context": 1, "lost_worker": 2, "met_needs": 1}
    repairs = {row["kind"]: row["n"] for row in await engine.db.read("SELECT kind, n FROM repair")}
    assert repairs == {"lost_worker": 2, "met_needs": 1, "ended_context": 1}
