"""Workers as people who write tasks see them: what each offers and runs, and which of them a selector chooses."""

from collections import Counter

from skep.clock import Clock
from skep.engines.db.base import Database, Row
from skep.fleet.events import DOWN, UNSTABLE_SECONDS
from skep.fleet.service import Fleet
from skep.model.answers import TaskLoad, WorkerMatch, WorkerView
from skep.model.caller import Caller
from skep.tasks.candidates import facts_of, worker_of
from skep.tasks.placement import Class, able
from skep.tasks.selector import parse
from skep.tasks.tables import ACTIVE_SQL, TASK_COLUMNS, TASK_VISIBLE_SQL, task_of

#: tasks shown with their worker
_SHOWN = 100
_MINUTE = 60.0


class Workers:
    def __init__(self, db: Database, clock: Clock, fleet: Fleet) -> None:
        self._db = db
        self._clock = clock
        self._fleet = fleet

    async def select(self, caller: Caller, selector: str) -> list[WorkerMatch]:
        """BadInput points at the place where the selector cannot be read."""
        caller.need("read")
        wanted = parse(selector)
        holders = {source: await self._holder(caller, source) for source in wanted.held}
        matches = []
        running = await self._running()
        for member, offer in await self._fleet.workers():
            holds = frozenset(source for source, holder in holders.items() if holder == member.id)
            reason = wanted.refusal({**facts_of(member.id, offer, holds), "tasks": float(running[member.id])})
            if member.state != "alive":
                silent = "it is silent, and in its grace" if member.state == "grace" else f"it is {member.state}"
                reason = silent + (f"; {reason}" if reason else "")
            matches.append(WorkerMatch(member.id, not reason, reason))
        return matches

    async def load(self, caller: Caller, label: str = "") -> TaskLoad:
        """What there is for workers with this label to do, as far as those that were ever there tell what they can."""
        caller.need("read")
        known = [one for one in await self._fleet.workers() if not label or label in one[1].labels]
        # to a worker that mirrors any source may come, and with it what only its holder does
        workers = [worker_of(one.id, offer, frozenset({""} if offer.mirror else ())) for one, offer in known]
        rows = await self._db.read(
            "SELECT task_class.kind, selector, holder, count(*) AS n FROM task "
            "JOIN task_class ON task_class.id = task.class WHERE state = 'WAITING' AND needs_left = 0 "
            "GROUP BY task_class.kind, selector, holder"
        )
        ready = [row["n"] for row in rows if not workers or able(_alike(row), workers)]
        since = self._clock.now() - _MINUTE
        ended = "SELECT COALESCE(sum(tasks), 0) AS n FROM context WHERE ended_at > :since"
        (done,) = await self._db.read(ended, since=since)
        running = await self._running()
        return TaskLoad(sum(ready), sum(running[worker.id] for worker in workers), int(done["n"]))

    async def _running(self) -> Counter[str]:
        rows = await self._db.read(
            f"SELECT worker, count(*) AS n FROM task WHERE {ACTIVE_SQL} GROUP BY worker"  # noqa: S608
        )
        return Counter({row["worker"]: int(row["n"]) for row in rows})

    async def _holder(self, caller: Caller, source: str) -> str | None:
        """By id or name; whoever may not see a source does not learn that it is there."""
        rows = await self._db.read(
            "SELECT holding.member, source.visibility FROM holding JOIN source ON source.id = holding.source "
            "WHERE source.id = :source OR source.name = :source",
            source=source,
        )
        return rows[0]["member"] if rows and caller.sees(rows[0]["visibility"]) else None

    async def drain(self, caller: Caller, worker: str, *, on: bool = True) -> None:
        """Empty it, so that it can be stopped for good; or with `on=False` do not."""
        caller.need("admin")
        await self._fleet.drain(worker, on=on, by=caller)

    async def forget(self, caller: Caller, worker: str) -> None:
        caller.need("admin")
        await self._fleet.forget(worker, by=caller)

    async def list(self, caller: Caller) -> list[WorkerView]:
        caller.need("read")
        views = []
        more = {
            row["id"]: row
            for row in await self._db.read(
                "SELECT id, draining, (SELECT count(*) FROM holding WHERE holding.member = member.id) AS holds, "
                "(SELECT count(*) FROM source_replica WHERE source_replica.member = member.id) AS replicas, "
                "(SELECT count(*) FROM member_event WHERE member = id AND what = :down AND at > :since) AS downs "
                "FROM member WHERE role = 'worker'",
                down=DOWN,
                since=self._clock.now() - UNSTABLE_SECONDS,
            )
        }
        for member, offer in await self._fleet.workers():
            rows = await self._db.read(
                f"SELECT {TASK_COLUMNS} FROM task_seen WHERE worker = :worker AND {ACTIVE_SQL} "  # noqa: S608
                f"AND {TASK_VISIBLE_SQL} ORDER BY id LIMIT :most",
                worker=member.id,
                private=int(caller.sees("private")),
                most=_SHOWN,
            )
            row = more.get(member.id, {"holds": 0, "draining": 0, "replicas": 0, "downs": 0})
            running, counts = [task_of(one) for one in rows], (row["replicas"], row["downs"])
            views.append(WorkerView(member, offer, running, row["holds"], bool(row["draining"]), *counts))
        return views


def _alike(row: Row) -> Class:
    """Waiting tasks, as far as it matters who may do them."""
    return Class(0, row["kind"], row["selector"], "", bool(row["holder"]), "none", "", False, 0)
