"""The scan for irregular tasks: what no event will ever move again. It repairs through the same moves, and counts."""

import logging
from collections.abc import Awaitable, Callable

from skep.clock import Clock
from skep.engines.db.base import Database, Tx, insert, update
from skep.tasks.moves import COLUMNS, WORK, Moving, end_context, store
from skep.tasks.owners import Owners
from skep.tasks.reports import lose
from skep.tasks.states import state_of_counts
from skep.tasks.storing import FILLING_SECONDS, clear, leave
from skep.tasks.tables import ACTIVE_SQL, UNENDED_SQL

log = logging.getLogger(__name__)
_AT_ONCE = 1000


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
            most=_AT_ONCE,
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
