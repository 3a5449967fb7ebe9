"""Which task is next, and where: the urgent first, whole workers, gangs."""

import asyncio
from collections import Counter

from skep.base.caller import SYSTEM
from skep.tasks.model import Run
from tests.tasks.house import Effects, Engine, command, hand


async def test_the_urgent_go_first(engine: Engine) -> None:
    effects = Effects()
    effects.shut = True
    async with hand(engine, slots=1, command=effects.on("wrk_1")):
        first = await engine.submit(command("running"))
        await engine.become(first, running="RUNNING")
        low = await engine.submit(*(command(f"low{n}", priority=-1) for n in range(3)))
        high = await engine.submit(command("high", priority=5), command("higher", priority=7))
        plain = await engine.submit(command("plain"))
        await engine.become(plain, plain="WAITING")
        assert (await engine.tasks(plain))["plain"].reason == "every worker that could do it is busy"
        effects.shut = False
        effects.gate("running").set()
        for context in (low, high, plain):
            await engine.ended(context)
    assert effects.begun() == ["running", "higher", "high", "plain", "low0", "low1", "low2"]


async def test_a_higher_priority_cuts_into_a_long_row(engine: Engine) -> None:
    """The row refills its own places without a look at others; a newcomer is seen all the same."""
    effects = Effects()
    reached = asyncio.Event()
    work = effects.on("wrk_1")

    async def do(run: Run) -> None:
        if run.name == "t20":
            reached.set()
            await effects.gate("t20").wait()
        await work(run)

    async with hand(engine, slots=1, command=do):
        row = await engine.submit(*(command(f"t{n}") for n in range(400)))
        await reached.wait()
        urgent = await engine.submit(command("urgent", priority=1))
        await engine.become(urgent, urgent="WAITING")
        effects.gate("t20").set()
        for context in (urgent, row):
            await engine.ended(context)
    assert effects.begun()[-1] != "urgent"


async def test_exclusive_tasks_have_their_worker_for_themselves(engine: Engine) -> None:
    running = Counter[str]()
    seen: list[tuple[str, str, Counter[str]]] = []

    async def do(run: Run) -> None:
        context = run.context
        running[context] += 1
        seen.append((run.name, context, running.copy()))
        await asyncio.sleep(0.002)
        running[context] -= 1
        if not running[context]:
            del running[context]

    async with hand(engine, slots=4, command=do):
        contexts = []
        for n in range(4):
            tasks = [command(f"{how}-{i}", exclusive=how) for how in ("none", "context", "worker") for i in range(4)]
            contexts.append(await engine.submit(*tasks[n:], *tasks[:n]))
        for context in contexts:
            assert (await engine.ended(context)).state == "FINISHED"
    assert len(seen) == 48
    for name, id, beside in seen:
        if name.startswith("worker"):
            assert beside == {id: 1}
        if name.startswith("context"):
            assert set(beside) == {id}
    assert max(sum(beside.values()) for _, _, beside in seen) > 1, "the others ran side by side"


async def test_a_whole_worker_is_kept_free_for_who_waits_for_one(engine: Engine) -> None:
    """Small tasks come without end; the one that wants the worker alone gets its turn."""
    effects = Effects()
    async with hand(engine, slots=2, command=effects.on("wrk_1")):
        small = await engine.submit(*(command(f"t{n}") for n in range(300)))
        alone = await engine.submit(command("alone", exclusive="worker"))
        later = await engine.submit(*(command(f"later{n}") for n in range(300)))
        for context in (alone, small, later):
            await engine.ended(context)
    effects.check()
    assert effects.begun()[-1] != "alone"


async def test_together_means_all_or_none(engine: Engine) -> None:
    """Two gangs of three on four places: each waits for all of its own to be there, and none waits for ever."""
    gathered: dict[str, asyncio.Barrier] = {}

    async def meet(run: Run) -> None:
        if run.name != "other":
            await gathered.setdefault(run.context, asyncio.Barrier(3)).wait()

    async with hand(engine, "wrk_1", 2, command=meet), hand(engine, "wrk_2", 2, command=meet):
        gangs = await asyncio.gather(
            *(engine.submit(*(command(f"t{n}") for n in range(3)), together=True) for _ in range(6))
        )
        for gang in gangs:
            assert (await engine.ended(gang)).state == "FINISHED"
        hopeless = await engine.submit(*(command(f"t{n}") for n in range(5)), together=True)
        await engine.become(hopeless, t0="WAITING", t4="WAITING")
        while "5 places at once" not in (await engine.tasks(hopeless))["t0"].reason:
            await asyncio.sleep(0.01)
        assert (await engine.ended(await engine.submit(command("other")))).state == "FINISHED", "it blocks nobody"
        await engine.core.contexts.cancel(SYSTEM, hopeless.id)
        assert (await engine.ended(hopeless)).state == "FAILED"


async def test_a_gang_gets_its_turn_in_a_busy_place(engine: Engine) -> None:
    barrier = asyncio.Barrier(2)
    ended: list[str] = []

    async def do(run: Run) -> None:
        if run.name.startswith("gang"):
            await barrier.wait()
        ended.append(run.name)

    async with hand(engine, slots=2, command=do):
        row = await engine.submit(*(command(f"t{n}") for n in range(300)))
        gang = await engine.submit(command("gang1"), command("gang2"), together=True)
        later = await engine.submit(*(command(f"t{n}") for n in range(300)))
        for context in (gang, row, later):
            await engine.ended(context)
    assert not ended[-1].startswith("gang")
