"""The dispatcher: events become messages, messages become actions, one after the other.

Whatever happens rings one bell; the loop looks what there is to do among the tasks that are this coordinator's own, and
does it in order. It keeps nothing between two turns, so a lost ring costs time at most, and locks nothing but rows.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import Enum
from functools import partial

import msgspec

from skep.base.clock import Clock
from skep.storage.database import Database, Row, Tx, insert, update
from skep.tasks.model import Report, Run, TaskHold
from skep.tasks.placer import DECLINED_SECONDS, READY_SQL, Owners, Placer, run_of, runs_channel
from skep.tasks.store import FILLING_SECONDS, clear, leave
from skep.tasks.transitions import (
    ACTIVE,
    ACTIVE_SQL,
    COLUMNS,
    GENERATORLESS_SQL,
    UNENDED_SQL,
    WORK,
    Moving,
    count_ended,
    end_context,
    retry_pause,
    state_of_counts,
    store,
    store_with,
)
from skep.topics.outbox import News

# What workers say of their tasks: reports become moves, and a freed place is filled in the same transaction.

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


# The scan for irregular tasks: what no event will ever move again. It repairs through the same moves, and counts.

log = logging.getLogger(__name__)
_SWEEP_AT_ONCE = 1000


class Sweep:
    def __init__(
        self, db: Database, clock: Clock, owners: Owners, lease: float, keep: float, keep_failed: float
    ) -> None:
        self._db = db
        self._clock = clock
        self._owners = owners
        self._lease = lease
        self._keep = keep
        self._keep_failed = keep_failed

    async def once(self) -> dict[str, int]:
        """Kind of irregularity -> how many were repaired."""
        found: dict[str, int] = {}
        scans: dict[str, Callable[[Tx], Awaitable[int]]] = {
            "lost_worker": self._lost,
            "met_needs": self._needs,
            "ended_context": self._contexts,
        }
        for kind, scan in scans.items():
            if count := await self._run(kind, scan):
                found[kind] = count
        await self._db.write(self._forget)
        await self._clear()
        return found

    async def lost(self) -> int:
        """Only those whose worker is lost: the clock said that it may be time."""
        return await self._run("lost_worker", self._lost)

    async def _run(self, kind: str, scan: Callable[[Tx], Awaitable[int]]) -> int:
        count = await self._db.write(lambda tx: self._repair(tx, kind, scan))
        if count:
            log.warning("repaired %d irregular task(s) or context(s): %s", count, kind)
        return count

    async def repairs(self) -> dict[str, int]:
        """All there ever were."""
        return {row["kind"]: row["n"] for row in await self._db.read("SELECT kind, n FROM repair ORDER BY kind")}

    async def _repair(self, tx: Tx, kind: str, scan: Callable[[Tx], Awaitable[int]]) -> int:
        count = await scan(tx)
        if count:
            await insert(tx, "repair", "ON CONFLICT (kind) DO UPDATE SET n = repair.n + :n", kind=kind, n=count)
            tx.ring(WORK)
        return count

    async def _lost(self, tx: Tx) -> int:
        """With a worker that was not heard of for longer than its lease: it has stopped them by itself."""
        now = self._clock.now()
        rows = await tx.rows(
            f"SELECT {COLUMNS} FROM task WHERE {ACTIVE_SQL} AND {self._owners.sql} AND NOT EXISTS "  # noqa: S608
            "(SELECT 1 FROM member WHERE member.id = task.worker AND member.last_alive >= :since) "
            "ORDER BY id LIMIT :most FOR UPDATE",
            since=now - self._lease,
            most=_SWEEP_AT_ONCE,
        )
        tasks = [Moving(**row) for row in rows]
        for task in tasks:
            lose(task, f"its worker {task.worker} is lost", now, self._clock.random())
        await store(tx, tasks, now)
        return len(tasks)

    async def _needs(self, tx: Tx) -> int:
        """Waiting for needs that have been met: cannot happen, unless somebody wrote to the tables."""
        rows = await tx.rows(
            "UPDATE task SET needs_left = 0 WHERE state = 'WAITING' AND needs_left > 0 "  # noqa: S608
            f"AND {self._owners.sql} AND NOT EXISTS (SELECT 1 FROM need JOIN task AS target ON target.id = need.target "
            f"WHERE need.task = task.id AND target.{UNENDED_SQL}) RETURNING id"
        )
        return len(rows)

    async def _contexts(self, tx: Tx) -> int:
        """Running without a task that has not ended."""
        now = self._clock.now()
        rows = await tx.rows(
            "SELECT id, (SELECT count(*) FROM task WHERE task.context = context.id AND "  # noqa: S608
            "task.state IN ('FAILED', 'ABORTED')) AS failed FROM context WHERE state = 'RUNNING' "
            f"AND stage <> 'filling' AND {self._owners.sql} AND NOT EXISTS (SELECT 1 FROM task "
            f"WHERE task.context = context.id AND task.{UNENDED_SQL})"
        )
        for row in rows:
            await update(tx, "context", "id", id=row["id"], unended=0, failed=row["failed"])
            await end_context(tx, row["id"], state_of_counts(0, row["failed"]), now)
        return len(rows)

    async def _clear(self) -> None:
        """What is leaving, and what somebody began to store and did not finish."""
        rows = await self._db.read(
            "SELECT id FROM context WHERE (stage = 'leaving' OR (stage = 'filling' AND created_at < :old)) "  # noqa: S608
            f"AND {self._owners.sql} LIMIT 100",
            old=self._clock.now() - FILLING_SECONDS,
        )
        for row in rows:
            await clear(self._db, row["id"])

    async def _forget(self, tx: Tx) -> None:
        """What nobody needs any more: contexts that ended long ago, classes that no task waits in."""
        now = self._clock.now()
        old = await tx.rows(
            "SELECT id FROM context WHERE ended_at < :any AND ((state = 'FAILED' AND ended_at < :failed) "  # noqa: S608
            f"OR (state <> 'FAILED' AND ended_at < :old)) AND {self._owners.sql} LIMIT 100",
            old=now - self._keep,
            failed=now - self._keep_failed,
            any=now - min(self._keep, self._keep_failed),
        )
        for row in old:
            await leave(tx, row["id"])
        await tx.rows(
            "UPDATE task_class SET used_at = :now WHERE used_at < :soon AND EXISTS (SELECT 1 FROM task WHERE "
            "task.class = task_class.id AND task.state = 'WAITING' AND task.needs_left = 0)",
            now=now,
            soon=now - self._keep / 2,
        )
        await tx.rows("DELETE FROM task_class WHERE used_at < :old", old=now - self._keep)


_AT_ONCE = 1000
_LONGEST_NAP = 60.0
_SWEEP_EVERY = 30.0


class Message(Enum):
    """What there is to do, in the order in which it is done; each has a column of what is looked at."""

    #: somebody wants everything in a context to end, or tasks
    AbortContext = "cancel"
    AbortTask = "abort"
    #: their time is over
    ExpireTask = "expire"
    #: the lease of a worker may be over
    LoseTask = "lose"
    #: a benchmark has no generator that runs: it is new, or its generator failed
    ResubmitBenchmark = "resubmit"
    #: tasks were submitted
    NewTask = "new"
    #: something changed that may let waiting tasks run: a worker came, a task left, a need was met, a pause is over. It
    #: becomes ScheduleTask and RunContext messages (placing.py), in the order of priority and waiting
    CheckSchedulability = "waiting"


class Dispatcher:
    def __init__(
        self,
        db: Database,
        clock: Clock,
        owners: Owners,
        placer: Placer,
        lease: float,
        keep: float,
        keep_failed: float,
        benchmarks: Callable[[], Awaitable[bool]],
    ) -> None:
        """`benchmarks` resubmits generators."""
        self._db = db
        self._benchmarks = benchmarks
        self._clock = clock
        self._owners = owners
        self._placer = placer
        self._lease = lease
        self.sweep = Sweep(db, clock, owners, lease, keep, keep_failed)

    async def run(self) -> None:
        """Until cancelled. Woken by the bell; the pauses only bound what a lost ring could cost."""
        await self.sweep.once()
        next_sweep = self._clock.now() + _SWEEP_EVERY
        async with self._db.listen(WORK) as bell:
            while True:
                self._placer.forget()
                messages, due = await self._look()
                for message in messages:
                    while await self.act(message):
                        pass
                    self._placer.forget()
                if messages:
                    _, due = await self._look()
                now = self._clock.now()
                if now >= next_sweep:
                    await self.sweep.once()
                    next_sweep = now + _SWEEP_EVERY
                await bell.wait(max(0.0, min(next_sweep, due) - now))

    async def _look(self) -> tuple[list[Message], float]:
        """What there is to do, and when something is due by the clock alone. One read: most rings find little."""
        owned, now = self._owners.sql, self._clock.now()
        active = f"EXISTS (SELECT 1 FROM task WHERE task.worker = member.id AND task.{ACTIVE_SQL})"  # noqa: S608
        rows = await self._db.read(
            f"SELECT (SELECT 1 FROM context WHERE abort_by <> '' AND {owned} LIMIT 1) AS cancel, "  # noqa: S608
            f"(SELECT 1 FROM task WHERE abort_by <> '' AND {owned} LIMIT 1) AS abort, "
            f"(SELECT 1 FROM task WHERE deadline <= :now AND ended_at IS NULL AND {owned} LIMIT 1) AS expire, "
            f"(SELECT 1 FROM member WHERE last_alive < :silent AND {active} LIMIT 1) AS lose, "
            f"(SELECT 1 FROM benchmark WHERE {GENERATORLESS_SQL} AND resubmit_at <= :now AND {owned} LIMIT 1) "
            "AS resubmit, "
            f"(SELECT min(resubmit_at) FROM benchmark WHERE {GENERATORLESS_SQL} AND resubmit_at > :now) AS again, "
            f"COALESCE((SELECT 1 FROM task WHERE state = 'SUBMITTED' AND {owned} LIMIT 1), "
            f"(SELECT 1 FROM context WHERE stage = 'filled' AND {owned} LIMIT 1)) AS new, "
            f"(SELECT 1 FROM task WHERE {READY_SQL} AND {owned} LIMIT 1) AS waiting, "
            "(SELECT min(not_before) FROM task WHERE state = 'WAITING' AND not_before > 0 "
            "AND not_before > :now) AS later, "
            "(SELECT min(deadline) FROM task WHERE deadline > :now AND ended_at IS NULL) AS deadline, "
            f"(SELECT min(last_alive) FROM member WHERE last_alive >= :silent AND {active}) AS heard",
            now=now,
            silent=now - self._lease,
        )
        row = rows[0]
        due = [row["later"], row["deadline"], row["again"], row["heard"] and row["heard"] + self._lease]
        messages = [message for message in Message if row[message.value]]
        return messages, min((at for at in due if at is not None), default=now + _LONGEST_NAP)

    async def keep(self) -> None:
        """Say that this coordinator lives; what became its own is looked at, whoever had it before."""
        async with self._db.listen("coordinator") as bell:
            while True:
                gained = await self._owners.beat()
                if gained:
                    await self.sweep.once()
                    await self._db.write(_ring)
                await bell.wait(self._owners.beat_every if self._db.shared else _LONGEST_NAP)

    async def _admit(self, now: float) -> int:
        if admitted := await self._db.write(lambda tx: self._placer.admit(tx, now)):
            return admitted
        admitted = await self._db.write(lambda tx: self._placer.admit_more(tx, now))
        if admitted:
            await self._db.write(lambda tx: self._placer.place(tx, now))
        return admitted

    async def act(self, message: Message) -> bool:
        """True: there may be more of the same."""
        now = self._clock.now()
        match message:
            case Message.NewTask:
                return await self._admit(now) > 0
            case Message.CheckSchedulability:
                return await self._db.write(lambda tx: self._placer.place(tx, now)) >= _AT_ONCE
            case Message.ResubmitBenchmark:
                return await self._benchmarks()
            case Message.LoseTask:
                return await self.sweep.lost() >= _AT_ONCE
            case Message.AbortContext:
                return await self._cancel(now)
            case Message.AbortTask:
                return await self._end("abort_by <> ''", {}, now) >= _AT_ONCE
            case Message.ExpireTask:
                return await self._end("deadline <= :now", {"now": now}, now) >= _AT_ONCE

    async def _cancel(self, now: float) -> bool:
        """One context, some of its tasks at a time, in the order of their ids."""
        rows = await self._db.read(
            f"SELECT id, abort_by FROM context WHERE abort_by <> '' AND {self._owners.sql} LIMIT 1"  # noqa: S608
        )
        last: str | None = ""
        while rows and last is not None:
            work = partial(abort_some, context=rows[0]["id"], after=last, by=rows[0]["abort_by"], now=now)
            last = await self._db.write(work)
        return bool(rows)

    async def _end(self, condition: str, params: dict[str, float], now: float) -> int:
        where = f"{condition} AND {UNENDED_SQL} AND {self._owners.sql}"

        async def work(tx: Tx) -> int:
            rows = await tx.rows(
                f"SELECT {COLUMNS} FROM task WHERE {where} ORDER BY id LIMIT :most FOR UPDATE",  # noqa: S608
                most=_AT_ONCE,
                **params,
            )
            tasks = [Moving(**row) for row in rows]
            for task in tasks:
                if task.state in ACTIVE:
                    tx.ring(runs_channel(task.worker))
                end(task, now)
            if await store(tx, tasks, now):
                tx.ring(WORK)
            return len(tasks)

        return await self._db.write(work)


def end(task: Moving, now: float) -> None:
    """By wish or by time, whichever the row says."""
    if task.abort_by:
        task.move("ABORTED", "person", f"aborted by {task.abort_by}", now)
    elif not task.move("FAILED", "dispatcher", "its time was over before it had ended", now):
        task.move("ABORTED", "dispatcher", "its time was over before it began", now)


async def abort_some(tx: Tx, context: str, after: str, by: str, now: float) -> str | None:
    """The next tasks of a context that is cancelled; the id of the last of them, None when there are no more.

    All that need each other are among them, so none has to be looked at by itself.
    """
    reason = f"aborted by {by}"
    rows = await tx.rows(
        "UPDATE task SET state = 'ABORTED', reason = :reason, abort_by = '', ended_at = :now, "  # noqa: S608
        "moves = moves || :head || attempt || :tail WHERE id IN (SELECT id FROM task WHERE context = :context "
        f"AND id > :after AND {UNENDED_SQL} ORDER BY id LIMIT :most FOR UPDATE) RETURNING id, worker",
        context=context,
        after=after,
        reason=reason,
        head='["ABORTED",',
        tail=f',"person",{msgspec.json.encode(reason).decode()},{now:.6f}]\n',
        now=now,
        most=_AT_ONCE,
    )
    for worker in {row["worker"] for row in rows} - {""}:
        tx.ring(runs_channel(worker))
    told = [News("task", row["id"], "ABORTED", {"context": context, "reason": reason}) for row in rows]
    await count_ended(tx, told, now)
    if len(rows) == _AT_ONCE:
        return max(str(row["id"]) for row in rows)
    await tx.rows("UPDATE context SET abort_by = '' WHERE id = :id", id=context)
    return None


async def _ring(tx: Tx) -> None:
    tx.ring(WORK)
