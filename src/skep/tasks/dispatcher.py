"""The dispatcher: events become messages, messages become actions, one after the other.

Whatever happens rings one bell; the loop looks what there is to do among the tasks that are this coordinator's own, and
does it in order. It keeps nothing between two turns, so a lost ring costs time at most, and locks nothing but rows.
"""

import logging

import msgspec

from skep.clock import Clock
from skep.engines.db.base import Database, Tx
from skep.tasks.candidates import READY_SQL
from skep.tasks.moves import COLUMNS, WORK, Moving, store
from skep.tasks.owners import Owners
from skep.tasks.placing import Placer, runs_channel
from skep.tasks.states import ACTIVE
from skep.tasks.sweep import Sweep
from skep.tasks.tables import ACTIVE_SQL, UNENDED_SQL

log = logging.getLogger(__name__)

_AT_ONCE = 1000
_LONGEST_NAP = 60.0
_SWEEP_EVERY = 30.0


class NewTask(msgspec.Struct, frozen=True):
    """Tasks were submitted."""


class CheckSchedulability(msgspec.Struct, frozen=True):
    """Something changed that may let waiting tasks run: a worker came, a task left, a need was met, a pause is over.

    It becomes ScheduleTask and RunContext messages (placing.py), in the order of priority and waiting.
    """


class AbortTask(msgspec.Struct, frozen=True):
    """Somebody wants tasks to end."""


class LoseTask(msgspec.Struct, frozen=True):
    """The lease of a worker may be over."""


class ExpireTask(msgspec.Struct, frozen=True):
    """Tasks whose time is over."""


Message = AbortTask | ExpireTask | LoseTask | NewTask | CheckSchedulability
#: what there is to do, in the order in which it is done
_DUE: dict[str, Message] = {
    "abort": AbortTask(),
    "expire": ExpireTask(),
    "lose": LoseTask(),
    "new": NewTask(),
    "waiting": CheckSchedulability(),
}


class Dispatcher:
    def __init__(self, db: Database, clock: Clock, owners: Owners, placer: Placer, lease: float, keep: float) -> None:
        self._db = db
        self._clock = clock
        self._owners = owners
        self._placer = placer
        self._lease = lease
        self.sweep = Sweep(db, clock, owners, lease, keep)

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
            f"SELECT (SELECT 1 FROM task WHERE abort_by <> '' AND {owned} LIMIT 1) AS abort, "  # noqa: S608
            f"(SELECT 1 FROM task WHERE deadline <= :now AND ended_at IS NULL AND {owned} LIMIT 1) AS expire, "
            f"(SELECT 1 FROM member WHERE last_alive < :silent AND {active} LIMIT 1) AS lose, "
            f"(SELECT 1 FROM task WHERE state = 'SUBMITTED' AND {owned} LIMIT 1) AS new, "
            f"(SELECT 1 FROM task WHERE {READY_SQL} AND {owned} LIMIT 1) AS waiting, "
            "(SELECT min(not_before) FROM task WHERE state = 'WAITING' AND not_before > 0 "
            "AND not_before > :now) AS later, "
            "(SELECT min(deadline) FROM task WHERE deadline > :now AND ended_at IS NULL) AS deadline, "
            f"(SELECT min(last_alive) FROM member WHERE last_alive >= :silent AND {active}) AS heard",
            now=now,
            silent=now - self._lease,
        )
        row = rows[0]
        due = [row["later"], row["deadline"], row["heard"] and row["heard"] + self._lease]
        messages = [message for name, message in _DUE.items() if row[name]]
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

    async def act(self, message: Message) -> bool:
        """True: there may be more of the same."""
        now = self._clock.now()
        match message:
            case NewTask():
                return await self._db.write(lambda tx: self._placer.admit(tx, now)) >= _AT_ONCE
            case CheckSchedulability():
                return await self._db.write(lambda tx: self._placer.place(tx, now)) >= _AT_ONCE
            case LoseTask():
                return await self.sweep.lost() >= _AT_ONCE
            case AbortTask():
                return await self._end("abort_by <> ''", {}, now) >= _AT_ONCE
            case ExpireTask():
                return await self._end("deadline <= :now", {"now": now}, now) >= _AT_ONCE

    async def _end(self, condition: str, params: dict[str, float], now: float) -> int:
        where = f"{condition} AND {UNENDED_SQL} AND {self._owners.sql}"

        async def work(tx: Tx) -> int:
            rows = await tx.rows(
                f"SELECT {COLUMNS} FROM task WHERE {where} ORDER BY id LIMIT :most FOR UPDATE",  # noqa: S608
                most=_AT_ONCE,
                **params,
            )
            tasks = [Moving(row) for row in rows]
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


async def _ring(tx: Tx) -> None:
    tx.ring(WORK)
