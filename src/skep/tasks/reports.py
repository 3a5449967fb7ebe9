"""What workers say of their tasks: reports become moves, and a freed place is filled in the same transaction."""

from collections.abc import Collection, Sequence

import msgspec

from skep.clock import Clock
from skep.engines.db.base import Database, Tx
from skep.model.task import Report, Run
from skep.tasks.moves import WORK, Moving, store
from skep.tasks.owners import Owners
from skep.tasks.placing import active_of, place
from skep.tasks.states import retry_pause
from skep.tasks.tables import spec_of
from skep.topics.service import Topics

#: a worker that declined is not asked for the same task again before
_DECLINED_SECONDS = 1.0
RESULT_LIMIT = 1_000_000

#: what a worker has: task -> attempt
Holdings = Collection[tuple[str, int]]


class Reports:
    def __init__(self, db: Database, clock: Clock, topics: Topics, owners: Owners, lease: float) -> None:
        self._db = db
        self._clock = clock
        self._topics = topics
        self._owners = owners
        self._lease = lease

    async def report(self, member: str, reports: Sequence[Report]) -> list[tuple[str, int]]:
        """Durable on return. Answers with those that are no longer this worker's: it has to stop them."""
        now = self._clock.now()

        async def work(tx: Tx) -> list[tuple[str, int]]:
            tasks = await active_of(tx, member)
            stale: list[tuple[str, int]] = []
            for report in reports:
                task = tasks.get(report.task)
                if task is None or task.attempt != report.attempt or not self._apply(task, report, now):
                    stale.append((report.task, report.attempt))
            woken = await store(tx, self._topics, tasks.values(), now)
            freed = any(task.worker != member or task.has_ended for task in tasks.values())
            if freed:
                await self._refill(tx, member, now)
            if woken or any(task.state == "WAITING" for task in tasks.values()):
                tx.ring(WORK)
            return stale

        return await self._db.write(work)

    async def _refill(self, tx: Tx, member: str, now: float) -> None:
        """The place that became free is given away here and now: one commit for the end and the next beginning."""
        given = await place(tx, now, self._clock.random, owned=self._owners.sql, since=now - self._lease, only=member)
        if not given:
            tx.ring(WORK)  # what waits may want a whole worker, or belong to another coordinator

    def _apply(self, task: Moving, report: Report, now: float) -> bool:
        at = min(report.at or now, now)
        if report.state == "SUBMITTED":
            if not task.move("SUBMITTED", "worker", report.reason or "declined", at):
                return False
            task.not_before = now + _DECLINED_SECONDS * (0.5 + self._clock.random())
            return task.move("WAITING", "dispatcher", f"declined: {report.reason}", now)
        if report.state == "FAILED":
            task.code = report.code
            return fail(task, report.reason or "failed", at, now, self._clock.random())
        if not task.move(report.state, "worker", report.reason, at):
            # a repeat of what is known is no reason to stop it
            return task.state == report.state
        task.code = report.code
        if report.result is not None:
            task.result = msgspec.json.encode(report.result)
            if len(task.result) > RESULT_LIMIT:
                task.result = msgspec.json.encode({"error": f"the result has more than {RESULT_LIMIT} bytes"})
        return True

    async def runs(self, member: str) -> tuple[list[Run], set[tuple[str, int]]]:
        """What the worker should begin, and everything it should be doing."""
        rows = await self._db.read(
            "SELECT id, attempt, context, name, state, failures, retries, "
            "CASE WHEN state = 'SCHEDULED' THEN spec END AS spec FROM task "
            "WHERE worker = :worker AND state IN ('SCHEDULED', 'ACCEPTED', 'RUNNING') ORDER BY id",
            worker=member,
        )
        begin = [
            Run(row["id"], row["attempt"], row["context"], row["name"], spec_of(row), row["failures"] >= row["retries"])
            for row in rows
            if row["state"] == "SCHEDULED"
        ]
        return begin, {(row["id"], row["attempt"]) for row in rows}

    async def returned(self, member: str, running: Holdings, reason: str) -> int:
        """The worker came (back) and has only these: the others of its tasks go back to the queue."""
        now, kept = self._clock.now(), set(running)

        async def work(tx: Tx) -> int:
            tasks = [task for task in (await active_of(tx, member)).values() if (task.id, task.attempt) not in kept]
            for task in tasks:
                lose(task, reason, now, self._clock.random())
            await store(tx, self._topics, tasks, now)
            tx.ring(WORK)
            return len(tasks)

        return await self._db.write(work)


def fail(task: Moving, reason: str, at: float, now: float, random: float) -> bool:
    """A try has failed: another one later, or the end."""
    task.failures += 1
    if task.failures > task.retries:
        return task.move("FAILED", "worker", reason, at)
    task.not_before = now + retry_pause(task.backoff, task.failures, random)
    left = task.retries - task.failures + 1
    return task.move("WAITING", "dispatcher", f"{reason}; {left} more tr{'ies' if left > 1 else 'y'}", now)


def lose(task: Moving, reason: str, now: float, random: float) -> None:
    """Its worker is gone. Never accepted: as if never placed; else it counts as a try, and some are always left."""
    if task.state == "SCHEDULED":
        task.move("WAITING", "dispatcher", reason, now)
        return
    task.failures += 1
    if task.failures > max(task.retries, LOST_TRIES):
        task.move("FAILED", "dispatcher", f"{reason}, {task.failures} times", now)
    else:
        task.not_before = now + retry_pause(task.backoff, task.failures, random)
        task.move("WAITING", "dispatcher", reason, now)


#: a worker that dies is not the task's fault, unless it happens again and again
LOST_TRIES = 5
