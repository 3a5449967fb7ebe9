"""Does the tasks placed on this worker: accepts or declines, runs, reports, and stops what is no longer its own.

Reports of one turn leave together and are asked again until they are answered. The right to run lasts for a lease: a
worker that cannot renew it stops its tasks before the coordinator gives them to another worker, and starts none before
it has a lease again. A task that may run at most once starts when the coordinator has stored that it was accepted.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from skep.base.clock import Clock
from skep.base.errors import SkepError
from skep.base.loops import first_of
from skep.fleet.api import Offer
from skep.rpc.messages import AnswerBody, AskBody
from skep.tasks.model import Renew, Renewed, Report, Reported, Run, TaskHold
from skep.tasks.task_types import check_arguments

log = logging.getLogger(__name__)

#: the part of a lease after which a worker stops what it runs, so that it has stopped when the lease is over
_MARGIN = 0.7
#: and the part after which commands are ended, even if this process stands still
_LAST_MARGIN = 0.85
_RENEWALS = 5
_REMEMBERED = 10_000
#: before something that the coordinator could not answer is asked again
_PAUSE_SECONDS = 1.0
#: before a lease that has ended when it is granted is asked for again
_LATE_SECONDS = 0.05
_EXPIRED = "its lease ended: the worker could not renew it"


class TaskFailed(SkepError):
    """A task's own failure: the reason is told, and a code where a command had one."""

    code = "task_failed"

    def __init__(self, reason: str, exit_code: int | None = None) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


#: does one task of its kind; what it returns is the task's result
Doing = Callable[[Run], Awaitable[Any]]


class Doer:
    def __init__(
        self,
        kinds: Mapping[str, Doing],
        ask: Callable[[AskBody], Awaitable[AnswerBody]],
        offer: Callable[[], Offer],
        refusal: Callable[[Run], str],
        clock: Clock,
        lease: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        """`lease` is called with the time, by `time.monotonic`, until which commands may run."""
        self._lease = lease
        self._kinds = kinds
        self._ask = ask
        self._offer = offer
        #: why this worker will not do a task now; empty: it will
        self._refusal = refusal
        self._clock = clock
        self._tasks: dict[TaskHold, asyncio.Task[None]] = {}
        #: begun here, the newest last: a Begin may come twice, and late
        self._known: dict[TaskHold, None] = {}
        self._reports: list[Report] = []
        self._reported = asyncio.Event()
        #: without a lease nothing starts
        self._lease_until = float("-inf")
        self._renew_now = asyncio.Event()
        self._started: set[TaskHold] = set()
        #: tasks that were stopped, and why
        self._stopped: dict[TaskHold, str] = {}
        #: tasks that came while there was no lease: set when one was granted in the knowledge of them
        self._unleased: dict[TaskHold, asyncio.Event] = {}
        #: tasks whose acceptance the coordinator has not stored yet
        self._accepting: dict[TaskHold, asyncio.Event] = {}

    @property
    def running(self) -> tuple[TaskHold, ...]:
        """Including what has ended but is not yet reported."""
        unreported = ((report.task, report.attempt) for report in self._reports)
        return tuple(dict.fromkeys((*self._tasks, *unreported)))

    def begin(self, runs: Sequence[Run]) -> None:
        for run in runs:
            hold = (run.task, run.attempt)
            if hold in self._known:
                continue
            self._known[hold] = None
            if len(self._known) > _REMEMBERED:
                del self._known[next(iter(self._known))]
            if reason := self._refusal(run) if run.spec.kind in self._kinds else f"it does no {run.spec.kind}":
                self._report(Report(*hold, "SUBMITTED", reason, self._clock.now()))
            else:
                if not self._has_lease():
                    self._ask_for_lease(hold)
                self._tasks[hold] = task = asyncio.create_task(self._do(run, self._earlier(run)))
                task.add_done_callback(partial(self._over, hold))

    def _earlier(self, run: Run) -> list[asyncio.Task[None]]:
        """Attempts at the same task that were stopped and have not ended yet."""
        if run.attempt == 1:
            return []
        return [task for (name, _), task in self._tasks.items() if name == run.task]

    def stop(self, tasks: Sequence[TaskHold], why: str = "it was stopped") -> None:
        for hold in tasks:
            # once: a second one would break off what the first makes it clear away
            if (task := self._tasks.get(hold)) and hold not in self._stopped:
                self._stopped[hold] = why
                task.cancel()

    async def run(self) -> None:
        """Until cancelled; then everything that runs is stopped."""
        try:
            await first_of(self._send(), self._renew(), self._expire())
        finally:
            running = list(self._tasks.values())
            self.stop(list(self._tasks), "its worker is stopping")
            await asyncio.gather(*running, return_exceptions=True)

    async def _do(self, run: Run, earlier: Sequence[asyncio.Task[None]]) -> None:
        hold = (run.task, run.attempt)
        if earlier:
            await asyncio.wait(earlier)
        await self._leased(hold)
        self._report(Report(*hold, "ACCEPTED", "", self._clock.now()))
        if run.spec.at_most_once:
            self._accepting[hold] = accepted = asyncio.Event()
            await accepted.wait()
            await self._leased(hold)
        self._report(Report(*hold, "RUNNING", "", self._clock.now()))
        self._started.add(hold)
        try:
            check_arguments(run.spec)  # again: a worker trusts no message
            result = await self._kinds[run.spec.kind](run)
        except TaskFailed as error:
            ended = Report(*hold, "FAILED", error.message, self._clock.now(), error.exit_code)
        except SkepError as error:
            ended = Report(*hold, "FAILED", error.message, self._clock.now())
        except Exception as error:
            log.exception("task %s of kind %s failed", run.task, run.spec.kind)
            ended = Report(*hold, "FAILED", f"{type(error).__name__}: {error}", self._clock.now())
        else:
            code = 0 if run.spec.kind == "command" else None
            ended = Report(*hold, "FINISHED", "", self._clock.now(), code, result)
        self._report(ended)

    def _over(self, hold: TaskHold, task: asyncio.Task[None]) -> None:
        """Here and not in `_do`: what is stopped before its first step never gets there."""
        del self._tasks[hold]
        self._started.discard(hold)
        self._unleased.pop(hold, None)
        self._accepting.pop(hold, None)
        why = self._stopped.pop(hold, "it was stopped")
        if task.cancelled():
            self._report(Report(*hold, "SUBMITTED", why, self._clock.now()))

    def _has_lease(self) -> bool:
        return asyncio.get_running_loop().time() < self._lease_until

    def _ask_for_lease(self, hold: TaskHold) -> asyncio.Event:
        self._unleased[hold] = granted = asyncio.Event()
        self._renew_now.set()
        return granted

    async def _leased(self, hold: TaskHold) -> None:
        """Returns when the task may start. Where there was no lease when it came, the coordinator may have given it to
        another worker since: then only a lease counts that was granted in the knowledge of this task."""
        while True:
            if granted := self._unleased.get(hold):
                await granted.wait()
                del self._unleased[hold]
            if self._has_lease():
                return
            self._ask_for_lease(hold)

    def _report(self, *reports: Report) -> None:
        self._reports += reports
        self._reported.set()

    async def _send(self) -> None:
        while True:
            await self._reported.wait()
            self._reported.clear()
            batch = tuple(self._reports)
            answer = await self._answer(Reported(batch))
            del self._reports[: len(batch)]
            if self._reports:
                self._reported.set()
            self.stop(answer.stop)
            self._note_accepted(batch, answer.stop)
            self.begin(answer.begin)

    def _note_accepted(self, reports: Sequence[Report], refused: Sequence[TaskHold]) -> None:
        for report in reports:
            hold = (report.task, report.attempt)
            if report.state == "ACCEPTED" and hold not in refused and (accepting := self._accepting.pop(hold, None)):
                accepting.set()

    async def _renew(self) -> None:
        while True:
            self._renew_now.clear()
            asked, began, known = asyncio.get_running_loop().time(), time.monotonic(), self.running
            answer = await self._answer(Renew(self._offer(), known))
            if self._lease:
                await self._lease(began + answer.lease * _LAST_MARGIN)
            self.stop(answer.stop)
            self._lease_until = asked + answer.lease * _MARGIN
            if not self._has_lease():  # asked before the link was away, perhaps, and answered after it
                await asyncio.sleep(_LATE_SECONDS)
                continue
            for hold in known:
                if granted := self._unleased.get(hold):
                    granted.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(answer.lease / _RENEWALS):
                    await self._renew_now.wait()

    async def _answer(self, body: Reported | Renew) -> Renewed:
        """Asked until there is one: a coordinator in trouble is no reason to forget what was done."""
        while True:
            try:
                answer = await self._ask(body)
            except SkepError as error:
                log.warning("the coordinator cannot answer: %s", error.message)
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                if isinstance(answer, Renewed):
                    return answer
                raise SkepError(f"the coordinator answers a {type(body).__name__} with {type(answer).__name__}")

    async def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(1.0, max(0.05, self._lease_until - loop.time())) if self._started else 0.25)
            expired = () if self._has_lease() else self._started - self._stopped.keys()
            if expired:  # those that have not started may stay, and wait for the next lease
                log.warning("the lease is over: %d task(s) are stopped", len(expired))
                self.stop(sorted(expired), _EXPIRED)
