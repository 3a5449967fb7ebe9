"""The dispatcher: events become messages, messages become actions, one after the other.

Whatever happens rings one bell; the loop looks what there is to do among the tasks that are this coordinator's own, and
does it in order. It keeps nothing between two turns, so a lost ring costs time at most, and locks nothing but rows.
"""

import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial

import msgspec

from skep.clock import Clock
from skep.engines.db.base import Database, Tx
from skep.tasks.candidates import READY_SQL
from skep.tasks.moves import COLUMNS, WORK, Moving, count_ended, store
from skep.tasks.news import News
from skep.tasks.owners import Owners
from skep.tasks.placing import Placer, runs_channel
from skep.tasks.states import ACTIVE
from skep.tasks.sweep import Sweep
from skep.tasks.tables import ACTIVE_SQL, GENERATORLESS_SQL, UNENDED_SQL

log = logging.getLogger(__name__)

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
