"""Moves of tasks inside one transaction, and what follows from them: dependents, contexts, what is told."""

from collections.abc import Iterable, Sequence

import msgspec

from skep.engines.db.base import Row, Statement, Tx
from skep.model.task import Actor, ContextState, TaskState
from skep.tasks import news
from skep.tasks.news import News
from skep.tasks.states import ENDED, legal, state_of_counts
from skep.tasks.tables import UNENDED_SQL, line

#: rung when the dispatcher should look: new tasks, free workers, wishes to abort
WORK = "tasks"

_UPDATE = (
    "UPDATE task SET state = :state, worker = :worker, attempt = :attempt, failures = :failures, "
    "lost_workers = :lost_workers, "
    "not_before = :not_before, reason = :reason, moves = moves || :lines, result = COALESCE(:result, result), "
    "code = COALESCE(:code, code), ended_at = :ended_at, abort_by = :abort_by WHERE id = :id"
)


def context_channel(context: str) -> str:
    """Rung for everything that happens in it."""
    return f"context:{context}"


def ended_channel(context: str) -> str:
    """Rung when it has ended: most who wait care for nothing else."""
    return f"ended:{context}"


class _Stored(msgspec.Struct, eq=False):
    """What has to be known of a task."""

    id: str
    context: str
    name: str
    class_id: int
    state: TaskState
    attempt: int
    failures: int
    retries: int
    lost_workers: int
    lost_worker_retries: int
    at_most_once: int
    backoff: float
    worker: str
    not_before: float
    reason: str
    dependents: int
    abort_by: str


#: of a row that becomes a Moving
COLUMNS = ", ".join(f"task.{name}" for name in _Stored.__struct_fields__).replace("class_id", "class AS class_id")


class Moving(_Stored, eq=False):
    """One task on its way through a transaction. Illegal moves are refused, each legal one leaves its line."""

    began: TaskState | None = None
    at: float = 0.0
    lines: str = ""
    result: bytes | None = None
    code: int | None = None

    def move(self, state: TaskState, by: Actor, reason: str, at: float) -> bool:
        if not legal(self.state, state, by):
            return False
        self.lines += line(state, self.attempt, by, reason, at)
        self.began = self.began or self.state
        self.state, self.reason, self.at = state, reason, at
        if state in ("WAITING", "SUBMITTED"):
            self.worker = ""
        return True

    @property
    def moved(self) -> bool:
        return bool(self.lines)

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED and self.began is not None and self.began not in ENDED

    def params(self) -> dict[str, str | int | float | bytes | None]:
        ended = self.state in ENDED
        return {
            "id": self.id,
            "state": self.state,
            "worker": self.worker,
            "attempt": self.attempt,
            "failures": self.failures,
            "lost_workers": self.lost_workers,
            "not_before": self.not_before,
            "reason": self.reason,
            "lines": self.lines,
            "result": self.result,
            "code": self.code,
            "ended_at": self.at if ended else None,
            "abort_by": "" if ended else self.abort_by,
        }


async def store(tx: Tx, tasks: Iterable[Moving], now: float) -> bool:
    """Write what moved and all that follows from it. True: tasks became ready that nobody has looked at yet."""
    moved = [task for task in tasks if task.moved]
    await tx.many(_UPDATE, [task.params() for task in moved])
    ended = [task for task in moved if task.has_ended]
    woken, waiting = False, [task for task in ended if task.dependents]
    while waiting:
        freed, aborted = await _dependents(tx, waiting, now)
        woken = woken or freed
        await tx.many(_UPDATE, [task.params() for task in aborted])
        ended += aborted
        waiting = [task for task in aborted if task.dependents]
    await count_ended(tx, [_ended(task) for task in ended], now)
    return woken


async def store_with(tx: Tx, task: Moving, also: Statement, now: float) -> list[Row]:
    """`store` for one task that has ended and that none depends on, and something beside it that is not about it.

    Answers with the rows of that. What happens most often takes one statement.
    """
    count = _counted(task.context, 1, int(task.state != "FINISHED"))
    rows, _, counted, _ = await tx.several([also, (_UPDATE, task.params()), count, news.statement(_ended(task), now)])
    tx.ring(news.CHANNEL)
    await news.put(tx, await _after(tx, task.context, counted, now), now)
    return rows


async def _dependents(tx: Tx, ended: Sequence[Moving], now: float) -> tuple[bool, list[Moving]]:
    """Those that were waiting for these: one need less, or no hope any more."""
    freed: list[dict[str, str]] = []
    hopeless: dict[str, Moving] = {}
    for task in ended:
        for row in await tx.rows("SELECT task, rule FROM need WHERE target = :id", id=task.id):
            if task.state == "FINISHED" or row["rule"] == "ended":
                freed.append({"id": row["task"]})
            elif row["task"] not in hopeless:
                found = await tx.rows(
                    f"SELECT {COLUMNS} FROM task WHERE id = :id AND {UNENDED_SQL} FOR UPDATE",  # noqa: S608
                    id=row["task"],
                )
                hopeless |= {one["id"]: Moving(**one) for one in found}
                if found:
                    why = f"needs {task.name}, which is {task.state}"
                    hopeless[row["task"]].move("ABORTED", "dispatcher", why, now)
    freed.sort(key=lambda row: row["id"])  # in one order everywhere, or two transactions could wait for each other
    await tx.many("UPDATE task SET needs_left = needs_left - 1 WHERE id = :id", freed)
    return bool(freed), list(hopeless.values())


async def count_ended(tx: Tx, ended: Sequence[News], now: float) -> None:
    """The contexts of tasks that have ended, and the news of both."""
    counts: dict[str, list[int]] = {}
    for task in ended:
        count = counts.setdefault(task.more["context"], [0, 0])
        count[0] += 1
        count[1] += task.state != "FINISHED"
    told = list(ended)
    for context in sorted(counts):  # in one order everywhere, or two transactions could wait for each other
        sql, params = _counted(context, *counts[context])
        told += await _after(tx, context, await tx.rows(sql, **params), now)
    await news.put(tx, told, now)


def _counted(context: str, n: int, failed: int) -> Statement:
    sql = (
        "UPDATE context SET unended = unended - :n, failed = failed + :failed WHERE id = :id "
        "RETURNING unended, failed, cause"
    )
    return sql, {"id": context, "n": n, "failed": failed}


async def _after(tx: Tx, context: str, counted: Sequence[Row], now: float) -> list[News]:
    """What there is to tell of a context some of whose tasks have ended."""
    tx.ring(context_channel(context))
    if not counted or counted[0]["unended"]:
        return []
    state = state_of_counts(0, counted[0]["failed"])
    await end_context(tx, context, state, now)
    return [News("context", context, state, {"cause": counted[0]["cause"]})]


def _ended(task: Moving) -> News:
    return News("task", task.id, task.state, {"context": task.context, "reason": task.reason})


async def end_context(tx: Tx, context: str, state: ContextState, now: float) -> None:
    await tx.rows("UPDATE context SET state = :state, ended_at = :now WHERE id = :id", state=state, now=now, id=context)
    tx.ring(ended_channel(context))


async def reopen(tx: Tx, context: str, tasks: Sequence[Moving], subject: str, now: float) -> None:
    """Ended tasks are submitted again, each with all its retries; those that need another wait for it again."""
    for task in tasks:
        task.failures, task.lost_workers, task.not_before = 0, 0, 0.0
        task.move("SUBMITTED", "person", f"{subject} wants it again", now)
    await tx.many(_UPDATE, [task.params() for task in tasks])
    await tx.rows(
        "UPDATE task SET deadline = NULL, needs_left = (SELECT count(*) FROM need JOIN task AS target "
        "ON target.id = need.target WHERE need.task = task.id AND target.state <> 'FINISHED' "
        "AND NOT (need.rule = 'ended' AND target.state IN ('FAILED', 'ABORTED'))) "
        "WHERE context = :context AND state = 'SUBMITTED'",
        context=context,
    )
    await tx.rows(
        "UPDATE context SET state = 'RUNNING', ended_at = NULL, unended = unended + :n, failed = failed - :n "
        "WHERE id = :id",
        n=len(tasks),
        id=context,
    )
    tx.ring(WORK)
    tx.ring(context_channel(context))
