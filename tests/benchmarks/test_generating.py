"""Generators on both databases: begun again where they failed, stopped when they always fail; notices once each."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.base.caller import SYSTEM, Caller
from skep.base.clock import SystemClock
from skep.base.errors import BadInput, Conflict, NotFound, SkepError
from skep.benchmarks.api import Benchmark, BenchmarkSpec, Step, Turn, Want
from skep.benchmarks.change_points import Notices
from skep.config.settings import Settings
from skep.fleet.api import Offer
from skep.net.guard import Guard
from skep.sources.git.http import Http
from skep.sources.git.ls_refs import ca_bundle
from skep.storage.database import Tx
from skep.tasks.model import Call, Reply, Run, TaskSpec
from skep.tasks.worker import Doing, TaskFailed
from tests.tasks.hostile import submissions
from tests.tasks.house import Engine, Hand, MovableClock, coordinator

SPEC = BenchmarkSpec("speed", "github.com/a/b", code="own")
ONE = {"name": "one", "tasks": [{"argv": ["true"]}]}


class Generator:
    """The kind `benchmark` of a worker, as a test wants it; `command` tasks fail when they are told to."""

    def __init__(self, script: Callable[["Generator", Run], Awaitable[Any]]) -> None:
        self.script = script
        self.begun: list[str] = []
        self.failing = False
        self.one: Hand

    async def call(self, run: Run, name: str, body: Any = None, wait: float = 5.0) -> Any:
        reply = await self.one.client.ask(Call(run.task, run.attempt, "benchmark.call", name, body or {}, wait))
        assert isinstance(reply, Reply)
        return reply.value

    async def turn(self, run: Run, stamp: str = "") -> Turn:
        return msgspec.convert(await self.call(run, "next", {"stamp": stamp}), Turn)

    async def generate(self, run: Run) -> Any:
        self.begun.append(self.one.member)
        return await self.script(self, run)

    async def command(self, run: Run) -> None:
        if self.failing:
            raise TaskFailed("it was told to fail", 1)


@asynccontextmanager
async def generator(
    engine: Engine, script: Callable[[Generator, Run], Awaitable[Any]], member: str = "wrk_1"
) -> AsyncIterator[Generator]:
    one = Generator(script)
    offer = Offer(("command", "benchmark"), {"own": 4, "command": 4, "waiting": 9}, facts={"os": "linux"})
    kinds: dict[str, Doing] = {"benchmark": one.generate, "command": one.command}
    made = Hand(engine.link, member, kinds, offer)
    one.one = made
    made.dial()
    doing = asyncio.create_task(made.doer.run())
    try:
        yield one
    finally:
        doing.cancel()
        await asyncio.gather(doing, return_exceptions=True)
        await made.end()


async def until(engine: Engine, holds: Callable[[Benchmark], bool]) -> Benchmark:
    async with asyncio.timeout(60), engine.db.listen("work") as bell:
        while True:
            one = await engine.core.benchmarks.show(SYSTEM, "speed")
            if holds(one):
                return one
            await engine.ring()
            await bell.wait(0.05)


async def add(engine: Engine, **more: Any) -> Benchmark:
    await engine.core.sources.add(SYSTEM, "https://github.com/a/b")
    return await engine.core.benchmarks.add(SYSTEM, msgspec.structs.replace(SPEC, **more))


async def wait_for_ever(one: Generator, run: Run) -> None:
    await asyncio.Event().wait()


async def test_state_and_context_are_stored_together_and_a_key_is_measured_once(engine: Engine) -> None:
    seen: list[tuple[Turn, Turn]] = []

    async def script(one: Generator, run: Run) -> None:
        turn = await one.turn(run)
        asked = {"key": "k", "spec": ONE, "state": {"done": 1}}
        made = [await one.call(run, "submit", asked) for _ in range(2)]
        assert made[0] == made[1]
        later = await one.turn(run, turn.stamp)
        while not later.free:
            later = await one.turn(run, later.stamp)
        seen.append((turn, later))

    await add(engine)
    async with generator(engine, script):
        one = await until(engine, lambda one: one.state == "finished")
    assert (one.contexts, one.failed) == (1, 0)
    ((before, after),) = seen
    assert (before.state, before.generated) == ({}, {})
    assert (after.state, after.generated) == ({"done": 1}, {"k": "FINISHED"})


async def test_a_generator_that_fails_goes_to_another_worker_and_is_given_up_after_ten(engine: Engine) -> None:
    async def script(one: Generator, run: Run) -> None:
        raise TaskFailed("no luck")

    await add(engine)
    async with generator(engine, script) as first, generator(engine, script, "wrk_2") as second:
        while (one := await until(engine, lambda one: True)).state == "running":
            await engine.pass_time(61, first.one, second.one)
            await asyncio.sleep(0.02)
        with pytest.raises(Conflict):
            await first.call(Run("tsk_1", 1, "ctx", "generate", TaskSpec()), "next")
    assert (one.state, one.resubmits) == ("failed", 10)
    assert one.reason == "its generator failed 11 times: no luck"
    assert len(first.begun) + len(second.begun) == 11
    assert min(len(first.begun), len(second.begun)) >= 5


async def test_a_benchmark_whose_contexts_always_fail_is_stopped_with_a_reason(engine: Engine) -> None:
    async def script(one: Generator, run: Run) -> None:
        one.failing = True
        for n in range(100):
            turn = await one.turn(run)
            while not turn.free:
                turn = await one.turn(run, turn.stamp)
            await one.call(run, "submit", {"key": str(n), "spec": ONE})

    await add(engine)
    async with generator(engine, script):
        one = await until(engine, lambda one: one.state == "failed")
    assert one.contexts == one.failed == 10
    assert one.reason.startswith("10 of its last 10 contexts failed; the newest is ctx_")


async def test_one_that_generates_for_ever_is_held_to_its_hour(engine: Engine) -> None:
    made: list[str] = []

    async def script(one: Generator, run: Run) -> None:
        stamp = ""
        while True:
            turn = await one.turn(run, stamp)
            stamp = turn.stamp
            if turn.free:
                made.append(str(len(made)))
                await one.call(run, "submit", {"key": made[-1], "spec": ONE})

    await add(engine, per_hour=3)
    async with generator(engine, script) as one:
        await until(engine, lambda one: one.contexts == 3)
        assert len(made) == 3
        await engine.pass_time(3601, one.one)
        await until(engine, lambda one: one.contexts == 6)


async def test_pause_ends_the_generator_and_resume_goes_on_where_it_stood(engine: Engine) -> None:
    states: list[dict[str, Any]] = []

    async def script(one: Generator, run: Run) -> None:
        states.append((await one.turn(run)).state)
        await one.call(run, "submit", {"key": f"k{len(states)}", "spec": ONE, "state": {"n": len(states)}})
        await wait_for_ever(one, run)

    await add(engine)
    async with generator(engine, script):
        await until(engine, lambda one: one.contexts == 1)
        paused = await engine.core.benchmarks.switch(SYSTEM, "speed", "paused")
        assert (paused.state, paused.generator) == ("paused", "")
        await engine.core.benchmarks.switch(SYSTEM, "speed", "running")
        await until(engine, lambda one: one.contexts == 2)
    assert states == [{}, {"n": 1}]


NO_SUBMISSIONS: list[dict[str, Any]] = [
    {},
    {"key": "", "spec": ONE},
    {"key": "k", "spec": {"name": "x", "tasks": []}},
    {"key": "k", "spec": {"name": "x", "tasks": [{"argv": ["true"]}] * 1001}},
    {"key": "k", "spec": ONE, "state": {"x": "y" * 200_000}},
    {"key": "k", "spec": ONE, "more": 1},
    *({"key": "k", "spec": {"name": "one", "tasks": [task]}} for task in submissions()),
]


async def test_what_a_generator_may_not_submit(engine: Engine) -> None:
    refused: list[type[SkepError]] = []

    async def script(one: Generator, run: Run) -> None:
        for body in NO_SUBMISSIONS:
            try:
                await one.call(run, "submit", body)
            except SkepError as error:
                refused.append(type(error))

    await add(engine)
    async with generator(engine, script):
        await until(engine, lambda one: one.state == "finished")
    assert refused == [BadInput] * len(NO_SUBMISSIONS)


async def test_a_fulfilled_wish_goes_once_and_its_answer_stays(engine: Engine) -> None:
    """After a disconnection a generator says the same again: the wish that came after it is not taken for it."""
    seen: list[Turn] = []

    async def script(one: Generator, run: Run) -> None:
        told = {"fulfilled": [{"revs": "a..b", "bisect": True}], "bisect": [["main", "a", "b"]]}
        seen.extend([msgspec.convert(await one.call(run, "next", told), Turn) for _ in range(2)])

    await add(engine)
    wants = (Want("a..b", bisect=True), Want("c"), Want("d", again=True, round=7))
    await engine.sql("UPDATE benchmark SET wants = :wants", wants=msgspec.json.encode(wants))
    async with generator(engine, script):
        one = await until(engine, lambda one: one.state == "finished")
    assert [turn.wants for turn in seen] == [wants[1:]] * 2
    assert one.reason == "a or b was not measured"


async def test_a_private_source_hides_its_benchmarks(engine: Engine) -> None:
    await engine.core.sources.add(SYSTEM, "https://github.com/a/b", visibility="private")
    await engine.core.benchmarks.add(SYSTEM, SPEC)
    stranger = Caller("stranger", frozenset({"read", "write"}))
    assert (await engine.core.benchmarks.list(stranger)).items == []
    for verb in (engine.core.benchmarks.show, engine.core.benchmarks.remove, engine.core.benchmarks.steps):
        with pytest.raises(NotFound):
            await verb(stranger, "speed")
    assert len((await engine.core.benchmarks.list(SYSTEM)).items) == 1


async def test_removing_a_source_or_a_benchmark_leaves_nothing_running(engine: Engine) -> None:
    await add(engine)
    async with generator(engine, wait_for_ever) as one:
        await until(engine, lambda _: bool(one.begun))
        await engine.core.benchmarks.remove(SYSTEM, "speed")
        with pytest.raises(NotFound):
            await engine.core.benchmarks.show(SYSTEM, "speed")

        async def empty(tx: Tx) -> int:
            return len(await tx.rows("SELECT id FROM context WHERE state = 'RUNNING'"))

        async with asyncio.timeout(30):
            while await engine.db.write(empty):
                await asyncio.sleep(0.02)
    assert one.begun == ["wrk_1"]


async def test_benchmarks_of_the_file_come_and_go_with_it(tmp_path: Path) -> None:
    from skep.benchmarks.service import Benchmarks

    async with coordinator(tmp_path, "sqlite:", SystemClock()) as engine:
        room = Benchmarks(engine.db, engine.clock, engine.core.sources)
        await room.start([SPEC])
        one = await until(engine, lambda one: bool(one.reason))
        assert (one.origin, one.reason) == ("file", "there is no source 'github.com/a/b' yet")
        with pytest.raises(SkepError):
            await room.remove(SYSTEM, "speed")
        await room.start([])
        assert (await room.list(SYSTEM)).items == []
        with pytest.raises(BadInput):
            await room.start([SPEC, SPEC])


async def test_a_webhook_inside_the_network_is_never_asked_and_given_up(tmp_path: Path) -> None:
    heard: list[bytes] = []

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1000))
        writer.close()

    async with coordinator(tmp_path, "sqlite:", MovableClock()) as engine:
        server = await asyncio.start_server(hear, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        http = Http(ca=ca_bundle(), timeout=5.0, largest=10_000, connections=1)
        notices = Notices(engine.db, engine.clock, http, Guard(Settings(), engine.clock, local=False))
        names = ("stp_1", "speed", "src_1", "main", "", "time", "cpu", "s", "b" * 40, "a" * 40)
        step = Step(*names, 1.0, "a", "s", 1.0, 2.0, 1.0, 0.0, "told", 1.0)
        await engine.sql(
            "INSERT INTO step (id, benchmark, series, made_at, state, body, webhook, tries, next_try) "
            "VALUES ('stp_1', 'b', 's', 1, 'told', :body, :webhook, 0, 0)",
            body=msgspec.json.encode(step),
            webhook=f"http://127.0.0.1:{port}/",
        )
        assert isinstance(engine.clock, MovableClock)
        for tries in range(1, 9):
            await notices.once()
            (row,) = await engine.sql("SELECT tries, webhook FROM step")
            assert (row["tries"], bool(row["webhook"])) == (tries, tries < 8)
            engine.clock.ahead += 10_000
        await http.close()
        server.close()
        await server.wait_closed()
    assert heard == []
