"""A worker runs tasks only while its lease is valid, and what it stops for that reason is not a failure of the task."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from skep.base.clock import SystemClock
from skep.base.errors import Unavailable
from skep.fleet.api import Offer
from skep.rpc.messages import AnswerBody, AskBody
from skep.tasks.model import Renew, Renewed, Report, Reported, Run, TaskHold, TaskSpec
from skep.tasks.worker import Doer
from tests.tasks.house import Effects, command, coordinator, hand

LONG = 1000.0
DEADLINE = 120.0


def run(task: str = "tsk_1", attempt: int = 1, *, at_most_once: bool = False) -> Run:
    return Run(task, attempt, "ctx_1", task, TaskSpec(task, argv=("true",), at_most_once=at_most_once))


class Coordinator:
    """Answers a worker when the test wants it to."""

    def __init__(self) -> None:
        self.renewals: asyncio.Queue[tuple[Renew, asyncio.Future[AnswerBody]]] = asyncio.Queue()
        self.reports: list[Report] = []
        #: reports are not answered while this is set
        self.deaf = False

    async def ask(self, body: AskBody) -> AnswerBody:
        if isinstance(body, Reported):
            while self.deaf:
                await asyncio.sleep(0.01)
            self.reports.extend(body.reports)
            return Renewed(LONG)
        assert isinstance(body, Renew)
        answer: asyncio.Future[AnswerBody] = asyncio.get_running_loop().create_future()
        self.renewals.put_nowait((body, answer))
        return await answer

    async def renewal(self) -> tuple[tuple[TaskHold, ...], asyncio.Future[AnswerBody]]:
        async with asyncio.timeout(DEADLINE):
            body, answer = await self.renewals.get()
        return body.running, answer


class Work:
    """What the tasks of a worker do: each runs until it is stopped or the gate opens."""

    def __init__(self) -> None:
        self.running: set[TaskHold] = set()
        self.begun: list[TaskHold] = []
        self.gate = asyncio.Event()

    async def do(self, run: Run) -> None:
        hold = (run.task, run.attempt)
        self.begun.append(hold)
        self.running.add(hold)
        try:
            await self.gate.wait()
        finally:
            self.running.discard(hold)


@asynccontextmanager
async def working() -> AsyncIterator[tuple[Coordinator, Doer, Work]]:
    boss, work = Coordinator(), Work()
    doer = Doer({"command": work.do}, boss.ask, Offer, lambda run: "", SystemClock())
    running = asyncio.create_task(doer.run())
    try:
        yield boss, doer, work
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not true():
            await asyncio.sleep(0.01)


async def test_worker_without_a_lease_given_a_task_starts_it_when_a_lease_comes() -> None:
    async with working() as (boss, doer, work):
        known, first = await boss.renewal()
        assert known == ()
        doer.begin([run()])
        first.set_result(Renewed(LONG))
        # that lease was granted before the coordinator heard of the task: it has to be asked for again
        known, second = await boss.renewal()
        assert known == (("tsk_1", 1),) and not work.begun and not boss.reports
        second.set_result(Renewed(LONG))
        await until(lambda: work.running)
        assert doer.running == (("tsk_1", 1),)


async def test_worker_without_a_lease_given_a_task_that_is_another_ones_by_now_never_starts_it() -> None:
    async with working() as (boss, doer, work):
        _, first = await boss.renewal()
        doer.begin([run("tsk_1"), run("tsk_2")])
        first.set_result(Renewed(LONG))
        known, second = await boss.renewal()
        second.set_result(Renewed(LONG, stop=(("tsk_1", 1),)))
        await until(lambda: work.running)
        assert known == (("tsk_1", 1), ("tsk_2", 1)) and work.begun == [("tsk_2", 1)]
        await until(lambda: [(one.task, one.state) for one in boss.reports if one.task == "tsk_1"])
        assert [one.state for one in boss.reports if one.task == "tsk_1"] == ["SUBMITTED"]


async def test_renewal_answered_after_its_lease_is_over_starts_nothing_and_is_asked_again_at_once() -> None:
    """As after a link that was away: what was asked before comes back as a lease that has ended already."""
    async with working() as (boss, doer, work):
        _, first = await boss.renewal()
        doer.begin([run()])
        first.set_result(Renewed(-LONG))
        for _ in range(3):
            known, late = await boss.renewal()
            assert known == (("tsk_1", 1),) and not work.begun
            late.set_result(Renewed(-LONG))
        _, valid = await boss.renewal()
        valid.set_result(Renewed(LONG))
        await until(lambda: work.running)
        assert work.begun == [("tsk_1", 1)] and [one.state for one in boss.reports] == ["ACCEPTED", "RUNNING"]


async def test_lease_that_ends_stops_what_runs_once_and_starts_nothing_before_the_next() -> None:
    async with working() as (boss, doer, work):
        _, first = await boss.renewal()
        first.set_result(Renewed(0.2))
        known, late = await boss.renewal()
        await asyncio.sleep(0.2)  # the lease is over
        late.set_result(Renewed(0.1))
        while True:
            known, answer = await boss.renewal()
            if work.begun:
                break
            if not known:
                doer.begin([run()])
            answer.set_result(Renewed(5.0))
        await until(lambda: not work.running)  # nobody answers: 3.5 s later it is stopped
        await until(lambda: boss.reports)
        doer.begin([run("tsk_2")])
        assert [(one.state, one.reason) for one in boss.reports if one.state == "SUBMITTED"] == [
            ("SUBMITTED", "its lease ended: the worker could not renew it")
        ]
        answer.set_result(Renewed(-LONG))
        known, answer = await boss.renewal()
        assert work.begun == [("tsk_1", 1)]
        answer.set_result(Renewed(LONG))
        await until(lambda: work.running)
        assert work.begun == [("tsk_1", 1), ("tsk_2", 1)]


async def test_worker_whose_coordinator_fails_keeps_asking_for_its_lease() -> None:
    async with working() as (boss, doer, work):
        _, first = await boss.renewal()
        doer.begin([run()])
        first.set_exception(Unavailable("the database is away"))
        _, second = await boss.renewal()
        assert not work.begun
        second.set_result(Renewed(LONG))
        _, third = await boss.renewal()
        third.set_result(Renewed(LONG))
        await until(lambda: work.running)


@pytest.mark.parametrize("leases", [0.8, 2.5])
async def test_link_away_for_longer_than_the_lease_counts_no_failure(place: str, data: Path, leases: float) -> None:
    """Shorter than the coordinator's own patience, and longer: what ran is begun again, what waited is begun once."""
    effects = Effects()
    effects.shut = True
    lease = 2.0
    async with coordinator(data, place, task_lease=lease) as engine, AsyncExitStack() as stack:
        worker = await stack.enter_async_context(hand(engine, "wrk_1", 1, command=effects.on("wrk_1")))
        context = await engine.submit(*(command(name, backoff=0.0) for name in "abcd"))
        await engine.become(context, a="RUNNING")
        await engine.cut(worker)
        away_since = asyncio.get_running_loop().time()
        for name in "abcd":
            effects.gate(name).set()
        effects.shut = False
        await until(lambda: asyncio.get_running_loop().time() > away_since + leases * lease)
        engine.mend(worker)
        assert (await engine.ended(context)).state == "FINISHED"
        tasks = await engine.tasks(context)
    effects.check()
    assert {name: task.failures for name, task in tasks.items()} == dict.fromkeys("abcd", 0)
