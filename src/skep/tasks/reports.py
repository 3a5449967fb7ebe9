"""What workers say of their tasks: reports become moves, and a freed place is filled in the same transaction."""

from collections.abc import Collection, Sequence

import msgspec

from skep.clock import Clock
from skep.engines.db.base import Database, Row, Tx
from skep.model.task import Report, Run, TaskHold
from skep.tasks.moves import COLUMNS, WORK, Moving, store, store_with
from skep.tasks.placing import DECLINED_SECONDS, Placer, run_of
from skep.tasks.states import ACTIVE, retry_pause
from skep.tasks.tables import ACTIVE_SQL

RESULT_LIMIT = 1_000_000
_ONE = (
    f"SELECT {COLUMNS} FROM task JOIN member "  # noqa: S608
    f"ON member.id = task.worker WHERE task.id = :id AND task.{ACTIVE_SQL} AND member.id = :member "
    "AND member.boot = :boot FOR UPDATE"
)


class Reports:
    def __init__(self, db: Database, clock: Clock, placer: Placer) -> None:
        self._db = db
        self._clock = clock
        self._placer = placer

    async def report(self, member: str, boot: int, reports: Sequence[Report]) -> tuple[list[TaskHold], list[Run]]:
        """Durable on return: what is no longer this worker's and has to stop, and what it may begin instead."""
        now = self._clock.now()

        async def work(tx: Tx) -> tuple[list[TaskHold], list[Run]]:
            tasks = await _reported(tx, member, boot, {report.task for report in reports})
            stale: dict[TaskHold, None] = {}
            for report in reports:
                task = tasks.get(report.task)
                if task is None or task.attempt != report.attempt or not self._apply(task, report, now):
                    stale[report.task, report.attempt] = None
            return list(stale), await self._store(tx, member, [task for task in tasks.values() if task.moved], now)

        return await self._db.write(work)

    async def _store(self, tx: Tx, member: str, moved: list[Moving], now: float) -> list[Run]:
        """What the worker begins in the places that became free."""
        freed = [task for task in moved if task.state not in ACTIVE]
        following = self._placer.next(member, freed, now) if freed else None
        woken, rows = False, list[Row]()
        if following and len(moved) == 1 and moved[0].has_ended and not moved[0].dependents:
            rows = await store_with(tx, moved[0], following, now)
        else:
            woken = await store(tx, moved, now)
            if following:
                rows = await tx.rows(following[0], **following[1])
        begin = [run_of(row) for row in rows]
        if freed and not begin:
            begin = await self._placer.refill(tx, member, now)
        if woken or len(begin) < len(freed) or any(task.state == "WAITING" for task in freed):
            tx.ring(WORK)
        return begin

    def _apply(self, task: Moving, report: Report, now: float) -> bool:
        at = min(report.at or now, now)
        if report.state == "SUBMITTED":
            return self._back(task, report.reason, at, now)
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

    def _back(self, task: Moving, reason: str, at: float, now: float) -> bool:
        """Declined; or, once it was accepted, given up without being its fault."""
        if task.state != "SCHEDULED":
            lose(task, reason or "its worker gave it up", now, self._clock.random())
            return True
        self._placer.rest(task.worker, now)
        task.move("SUBMITTED", "worker", reason or "declined", at)
        task.not_before = now + DECLINED_SECONDS * (1.0 + self._clock.random())
        return task.move("WAITING", "dispatcher", f"declined: {reason}", now)

    async def runs(self, member: str) -> tuple[list[Run], set[TaskHold]]:
        """What the worker should begin, and everything it should be doing."""
        rows = await self._db.read(
            "SELECT id, attempt, context, name, state, failures, retries, "
            "CASE WHEN state = 'SCHEDULED' THEN spec END AS spec FROM task "
            "WHERE worker = :worker AND state IN ('SCHEDULED', 'ACCEPTED', 'RUNNING') ORDER BY id",
            worker=member,
        )
        begin = [run_of(row) for row in rows if row["state"] == "SCHEDULED"]
        return begin, {(row["id"], row["attempt"]) for row in rows}

    async def returned(self, tx: Tx, member: str, running: Collection[TaskHold]) -> None:
        """Part of the worker's joining: it has only these, so the others of its tasks go back to the queue."""
        now, kept = self._clock.now(), set(running)
        tasks = [task for task in await _active(tx, member) if (task.id, task.attempt) not in kept]
        for task in tasks:
            lose(task, f"{member} began anew without it", now, self._clock.random())
        await store(tx, tasks, now)


async def _active(tx: Tx, member: str) -> list[Moving]:
    sql = f"SELECT {COLUMNS} FROM task WHERE worker = :worker AND {ACTIVE_SQL} ORDER BY id FOR UPDATE"  # noqa: S608
    return [Moving(**row) for row in await tx.rows(sql, worker=member)]


async def _reported(tx: Tx, member: str, boot: int, ids: set[str]) -> dict[str, Moving]:
    """With the worker's row locked, so that its places are given away by one transaction at a time.

    Nothing, if another process of this worker has come since.
    """
    if len(ids) > 1:
        known = await tx.rows("SELECT id FROM member WHERE id = :id AND boot = :boot FOR UPDATE", id=member, boot=boot)
        return {task.id: task for task in await _active(tx, member) if task.id in ids} if known else {}
    rows = await tx.rows(_ONE, id=min(ids, default=""), member=member, boot=boot)
    return {row["id"]: Moving(**row) for row in rows}


def fail(task: Moving, reason: str, at: float, now: float, random: float) -> bool:
    """A try has failed: another one later, or the end."""
    task.failures += 1
    if task.failures > task.retries:
        return task.move("FAILED", "worker", reason, at)
    task.not_before = now + retry_pause(task.backoff, task.failures, random)
    left = task.retries - task.failures + 1
    return task.move("WAITING", "dispatcher", f"{reason}; {left} more tr{'ies' if left > 1 else 'y'}", now)


def lose(task: Moving, reason: str, now: float, random: float) -> None:
    """Its worker is lost. Never accepted: as if never placed; else one of its `lost_worker_retries` is used."""
    if task.state == "SCHEDULED":
        task.move("WAITING", "dispatcher", reason, now)
        return
    task.lost_workers += 1
    if task.at_most_once:
        task.move("FAILED", "dispatcher", f"{reason}; it may run at most once, and may have started", now)
    elif task.lost_workers > task.lost_worker_retries:
        why = f"its worker was lost {task.lost_workers} time(s), and lost_worker_retries is {task.lost_worker_retries}"
        task.move("FAILED", "dispatcher", f"{reason}; {why}", now)
    else:
        task.not_before = now + retry_pause(task.backoff, task.lost_workers, random)
        task.move("WAITING", "dispatcher", reason, now)
