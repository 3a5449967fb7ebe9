"""The engine from submission to the end, with a real link and workers that are told what to do."""

import asyncio
import re
from collections import Counter

import msgspec
import pytest

from skep.base.caller import SYSTEM
from skep.base.errors import BadInput, Conflict, NotFound
from skep.fleet.api import Offer
from skep.tasks.model import Chunk, ContextSpec, Need, Run, TaskSpec, TaskState
from skep.tasks.service import _in_state
from tests.tasks.house import Effects, Engine, MovableClock, command, hand


async def test_needs_are_met_in_order_and_failures_cascade(engine: Engine) -> None:
    effects = Effects()
    effects.failing = {"bad": 1}
    async with hand(engine, command=effects.on("wrk_1")):
        context = await engine.submit(
            command("first"),
            command("second", "first"),
            command("third", "second", "first"),
            command("bad"),
            command("never", "bad"),
            command("nor this", "never"),
            command("all the same", Need("bad", "ended"), Need("nor this", "ended")),
        )
        context = await engine.ended(context)
    assert context.state == "FAILED"
    assert (context.tasks, context.left, context.failed) == (7, 0, 3)
    done = effects.begun()
    assert done.index("first") < done.index("second") < done.index("third")
    assert "never" not in done
    tasks = await engine.tasks(context)
    assert tasks["never"].state == tasks["nor this"].state == "ABORTED"
    assert tasks["never"].reason == "needs bad, which is FAILED"
    assert tasks["nor this"].reason == "needs never, which is ABORTED"
    assert (tasks["bad"].state, tasks["bad"].code, tasks["bad"].reason) == ("FAILED", 3, "it was told to fail")
    assert tasks["all the same"].state == "FINISHED"


async def test_a_failed_task_is_tried_again_after_a_pause(engine: Engine) -> None:
    effects = Effects()
    effects.failing = {"a": 2}
    async with hand(engine, command=effects.on("wrk_1")) as worker:
        context = await engine.submit(command("a", retries=2, backoff=1000.0))
        tasks = await engine.become(context, a="WAITING")
        for failures in (1, 2):
            while (tasks := await engine.tasks(context))["a"].failures < failures:
                await asyncio.sleep(0.01)
            assert "it was told to fail" in tasks["a"].reason
            assert tasks["a"].not_before > engine.clock.now() + 800 * failures
            await engine.pass_time(2400.0 * failures, worker)
        context = await engine.ended(context)
    assert context.state == "FINISHED"
    moves = await engine.moves(context, "a")
    assert [move.state for move in moves if move.by == "worker"] == ["ACCEPTED", "RUNNING"] * 3 + ["FINISHED"]
    assert moves[-1].attempt == 3


async def test_retries_end(engine: Engine) -> None:
    effects = Effects()
    effects.failing = {"a": 99}
    async with hand(engine, command=effects.on("wrk_1")):
        context = await engine.ended(await engine.submit(command("a", retries=2, backoff=0.0)))
    assert context.state == "FAILED"
    assert effects.begun() == ["a", "a", "a"]


async def test_a_worker_may_decline(engine: Engine) -> None:
    async with hand(engine) as worker:
        worker.refusal = "no memory left"
        context = await engine.submit(command("a"))
        while (task := (await engine.tasks(context))["a"]).reason != "declined: no memory left":
            await asyncio.sleep(0.01)
        assert task.state == "WAITING"
        assert task.failures == 0
        worker.refusal = ""
        await engine.pass_time(5.0, worker)
        context = await engine.ended(context)
    assert context.state == "FINISHED"
    assert [move.state for move in await engine.moves(context, "a")][3:6] == ["SCHEDULED", "SUBMITTED", "WAITING"]


async def test_a_worker_that_declines_is_not_asked_for_every_task_at_once(engine: Engine) -> None:
    assert isinstance(engine.clock, MovableClock)
    async with hand(engine) as worker:
        engine.clock.stopped = engine.clock.now()  # it rests for a second, however long the machine takes for the rings
        worker.refusal = "not today"
        context = await engine.submit(*(command(f"t{n}") for n in range(200)))
        await engine.become(context, t0="WAITING")
        for _ in range(20):
            await engine.ring()
        declined = sum(task.attempt for task in (await engine.tasks(context)).values())
        assert declined <= 8, "its four places, and perhaps once more"
        engine.clock.stopped = None
        worker.refusal = ""
        await engine.pass_time(5.0, worker)
        await engine.ended(context)


async def test_a_running_task_adds_to_its_context(engine: Engine) -> None:
    async def fan_out(run: Run) -> None:
        name, context = run.name, run.context
        if len(name) < 4:
            await engine.core.contexts.add(SYSTEM, context, [command(name + c, name) for c in "ab"])

    async with hand(engine, command=fan_out):
        context = await engine.ended(await engine.submit(command("r")))
        assert (context.state, context.tasks) == ("FINISHED", 15)
        with pytest.raises(Conflict, match="FINISHED"):
            await engine.core.contexts.add(SYSTEM, context.id, [command("late")])
    with pytest.raises(NotFound):
        await engine.core.contexts.add(SYSTEM, "ctx_none", [command("x")])
    with pytest.raises(BadInput, match="10,001 tasks are too many to add at once"):
        await engine.core.contexts.add(SYSTEM, context.id, [command(f"n{n}") for n in range(10_001)])


async def test_what_is_added_may_not_need_what_has_failed(engine: Engine) -> None:
    effects = Effects()
    effects.failing = {"bad": 1}
    effects.shut = True
    async with hand(engine, command=effects.on("wrk_1")):
        context = await engine.submit(command("bad"), command("good"))
        effects.gate("bad").set()
        await engine.become(context, bad="FAILED", good="RUNNING")
        with pytest.raises(BadInput, match="needs 'bad', which is FAILED"):
            await engine.core.contexts.add(SYSTEM, context.id, [command("x", "bad")])
        await engine.core.contexts.add(SYSTEM, context.id, [command("y", Need("bad", "ended"), "good")])
        effects.shut = False
        effects.gate("good").set()
        assert (await engine.ended(context)).tasks == 3
    assert (await engine.states(context))["y"] == "FINISHED"


async def test_cancel_of_what_waits_and_what_runs(engine: Engine) -> None:
    effects = Effects()
    effects.shut = True
    async with hand(engine, slots=1, command=effects.on("wrk_1")):
        context = await engine.submit(command("a"), command("b"), command("c", "b"))
        await engine.become(context, a="RUNNING", b="WAITING")
        task = await engine.core.tasks.cancel(SYSTEM, (await engine.tasks(context))["a"].id, "not needed")
        assert (task.state, task.reason) == ("ABORTED", "aborted by skep: not needed")
        await engine.become(context, b="RUNNING")
        assert effects.begun("end") == ["a"], "the worker was told to stop it"
        with pytest.raises(Conflict, match="ABORTED already"):
            await engine.core.tasks.cancel(SYSTEM, task.id)
        await engine.core.contexts.cancel(SYSTEM, context.id)
        assert (await engine.ended(context)).failed == 3
        other = await engine.submit(command("next"))
        await engine.become(other, next="RUNNING")
        assert effects.begun("end") == ["a", "b"]
    effects.check()


async def test_what_a_task_writes_does_not_hurry_whoever_cancels_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    effects, go = Effects(), asyncio.Event()
    effects.shut = True
    end = engine.dispatcher._end

    async def late(condition: str, params: dict[str, float], now: float) -> int:
        await go.wait()
        return await end(condition, params, now)

    monkeypatch.setattr(engine.dispatcher, "_end", late)
    async with hand(engine, command=effects.on("wrk_1")):
        context = await engine.submit(command("a"))
        task = (await engine.become(context, a="RUNNING"))["a"]
        cancelling = asyncio.create_task(engine.core.tasks.cancel(SYSTEM, task.id))
        for n in range(30):
            await engine.core.tasks.write([Chunk(task.id, context.id, 1, n, "stdout", 1.0, b"x")])
            await asyncio.sleep(0.01)
        go.set()
        assert (await cancelling).state == "ABORTED"


async def test_retry_runs_what_failed_and_leaves_what_finished(engine: Engine) -> None:
    effects = Effects()
    effects.failing = {"bad": 1}
    async with hand(engine, command=effects.on("wrk_1")):
        context = await engine.ended(
            await engine.submit(
                command("good"), command("bad"), command("after", "bad"), command("last", "after", "good")
            )
        )
        assert (context.state, context.failed) == ("FAILED", 3)
        await engine.core.contexts.retry(SYSTEM, context.id)
        context = await engine.ended(context)
        assert (context.state, context.left, context.failed) == ("FINISHED", 0, 0)
        with pytest.raises(Conflict, match="no task of context"):
            await engine.core.contexts.retry(SYSTEM, context.id)
    assert sorted(effects.begun()) == ["after", "bad", "bad", "good", "last"]
    moves = [(move.state, move.by) for move in await engine.moves(context, "after")]
    assert ("ABORTED", "dispatcher") in moves
    assert ("SUBMITTED", "person") in moves


async def test_time_is_over_while_waiting_and_while_running(engine: Engine) -> None:
    effects = Effects()
    effects.shut = True
    async with hand(engine, slots=1, command=effects.on("wrk_1")) as worker:
        context = await engine.submit(
            command("a", timeout=100.0), command("b", timeout=50.0), command("c", timeout=300.0)
        )
        await engine.become(context, a="RUNNING", b="WAITING")
        await engine.pass_time(60.0, worker)
        tasks = await engine.become(context, b="FAILED")
        assert tasks["b"].reason == "its time was over before it had ended"
        assert tasks["a"].state == "RUNNING"
        await engine.pass_time(60.0, worker)
        tasks = await engine.become(context, a="FAILED", c="RUNNING")
        assert effects.begun("end") == ["a"]
        effects.gate("c").set()
        assert (await engine.ended(context)).failed == 2


async def test_a_task_waits_with_a_reason_and_is_woken_by_what_it_waits_for(engine: Engine) -> None:
    await engine.sql("INSERT INTO holding (source, member, pins) VALUES ('src_1', 'wrk_away', '[]')")
    context = await engine.submit(
        command("any"),
        command("strong", selector="cpu >= 64"),
        TaskSpec("strange", "evaluate"),
        command("local", source="src_1", holder=True),
        command("labelled", selector="labels has 'red' and not os == 'plan9'"),
    )
    await engine.become(context, any="WAITING", labelled="WAITING")
    while {task.reason for task in (await engine.tasks(context)).values()} != {"no worker is attached"}:
        await asyncio.sleep(0.01)
    async with hand(engine, slots=8) as worker:
        await engine.become(context, any="FINISHED")
        reasons = {name: task.reason for name, task in (await engine.tasks(context)).items()}
        assert reasons == {
            "any": "",
            "strong": "no worker matches the selector 'cpu >= 64'",
            "strange": "no worker does tasks of kind evaluate",
            "local": "no attached worker holds src_1",
            "labelled": "no worker matches the selector \"labels has 'red' and not os == 'plan9'\"",
        }
        worker.offer = msgspec.structs.replace(worker.offer, labels=("red",))
        await engine.pass_time(0.001, worker)
        await engine.become(context, labelled="FINISHED")
        offer = Offer(("evaluate", "command"), {"own": 1, "command": 1}, facts={"cpu": 128.0})
        async with hand(engine, "wrk_2", offer=offer, evaluate=Effects().on("wrk_2")):
            tasks = await engine.become(context, strong="FINISHED", strange="FINISHED")
            assert tasks["strong"].worker == tasks["strange"].worker == "wrk_2"
            await engine.sql("UPDATE holding SET member = 'wrk_1' WHERE source = 'src_1'")
            assert (await engine.ended(context)).state == "FINISHED"
    assert (await engine.tasks(context))["local"].worker == "wrk_1"


async def test_the_same_occasion_is_the_same_context(engine: Engine) -> None:
    spec = ContextSpec("c", (command("a"),))
    made = await asyncio.gather(
        *(engine.core.contexts.submit(SYSTEM, spec, cause="change:bat_1", once="rule/bat_1") for _ in range(5))
    )
    assert len({context.id for context in made}) == 1
    assert made[0].cause == "change:bat_1"


async def test_ends_are_told_once(engine: Engine) -> None:
    effects = Effects()
    effects.failing = {"bad": 1}
    async with hand(engine, command=effects.on("wrk_1")):
        context = await engine.ended(await engine.submit(command("a"), command("bad"), command("c", "bad")))
        await engine.core.contexts.retry(SYSTEM, context.id)
        await engine.ended(context)
    wanted = Counter(
        {("a", "FINISHED"): 1, ("bad", "FAILED"): 1, ("c", "ABORTED"): 1, ("bad", "FINISHED"): 1, ("c", "FINISHED"): 1}
    )
    wanted |= Counter({("", "FAILED"): 1, ("", "FINISHED"): 1})
    names = {task.id: name for name, task in (await engine.tasks(context)).items()}
    told: list[dict[str, str]] = []
    while len(told) < wanted.total():
        page = await engine.core.topics.read(SYSTEM, "skep.tasks", 0, 100)
        told = [msgspec.json.decode(message.body) for message in page]
        await asyncio.sleep(0.01)
    assert Counter((names.get(one.get("task", ""), ""), one["state"]) for one in told) == wanted
    assert (await engine.db.read("SELECT count(*) AS n FROM news"))[0]["n"] == 0


@pytest.mark.parametrize("state", ["WAITING", "RUNNING", "FAILED", "ABORTED"])
async def test_tasks_in_a_rare_state_are_found_by_an_index(engine: Engine, state: TaskState) -> None:
    if engine.db.shared:
        pytest.skip("PostgreSQL plans by what is in the tables, and there is nothing")
    sql = f"EXPLAIN QUERY PLAN SELECT * FROM task_seen WHERE {_in_state(state)} ORDER BY id DESC LIMIT 10"
    plan = " ".join(row["detail"] for row in await engine.db.read(sql))
    assert re.search("USING INDEX task_(unended|failed|aborted|active)", plan), plan
