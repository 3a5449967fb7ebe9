"""Moves of tasks inside one transaction, and what follows from them: dependents, contexts, what is told."""

import hashlib
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from skep.sources.catalogue import seen
from skep.storage.database import Row, Statement, Tx, struct_of
from skep.tasks.model import Actor, Context, ContextState, Move, Task, TaskSpec, TaskState
from skep.topics import outbox
from skep.topics.outbox import News

# Which moves a task may make, and who makes them. Pure; the one table that everything else asks.
#
# CREATED > SUBMITTED                                    client
# SUBMITTED > WAITING | SCHEDULED, WAITING > SCHEDULED   dispatcher
# SCHEDULED > ACCEPTED | SUBMITTED (declined)            worker
# ACCEPTED > RUNNING > FINISHED | FAILED                 worker
# ACCEPTED > FAILED                                      worker
# SCHEDULED > WAITING                                    dispatcher: its worker is lost, and had not accepted it
# ACCEPTED | RUNNING > WAITING                           dispatcher: it failed and `retries` has one left; or its
#                                                        worker is lost and `lost_worker_retries` has one left
# ACCEPTED | RUNNING > FAILED                            dispatcher: its worker is lost, and no retry is left
# WAITING | SCHEDULED | ACCEPTED | RUNNING > FAILED      dispatcher: it can never run, or its time is over
# FAILED | ABORTED > SUBMITTED                           person: retry, except of what ran and may run at most once
# any that has not ended > ABORTED                       person; dispatcher: what it needs has failed
#
# Two budgets, counted apart. A try that fails counts in `failures`, against `retries`. A try that ends because its
# worker
# died, restarted or could not renew its lease counts in `lost_workers`, against `lost_worker_retries`. A task that may
# run at most once has neither: from ACCEPTED on it is never placed again. Its worker starts it only after ACCEPTED is
# stored, so as long as it is SCHEDULED it has not started, and may be placed again.

ENDED: frozenset[TaskState] = frozenset({"FINISHED", "FAILED", "ABORTED"})
#: with a worker
ACTIVE: frozenset[TaskState] = frozenset({"SCHEDULED", "ACCEPTED", "RUNNING"})

_MOVES: dict[tuple[TaskState, TaskState], frozenset[Actor]] = {
    ("CREATED", "SUBMITTED"): frozenset({"client"}),
    ("SUBMITTED", "WAITING"): frozenset({"dispatcher"}),
    ("SUBMITTED", "SCHEDULED"): frozenset({"dispatcher"}),
    ("WAITING", "SCHEDULED"): frozenset({"dispatcher"}),
    ("WAITING", "FAILED"): frozenset({"dispatcher"}),
    ("SCHEDULED", "ACCEPTED"): frozenset({"worker"}),
    ("SCHEDULED", "SUBMITTED"): frozenset({"worker"}),
    ("SCHEDULED", "WAITING"): frozenset({"dispatcher"}),
    ("SCHEDULED", "FAILED"): frozenset({"dispatcher"}),
    ("ACCEPTED", "RUNNING"): frozenset({"worker"}),
    ("ACCEPTED", "WAITING"): frozenset({"dispatcher"}),
    ("ACCEPTED", "FAILED"): frozenset({"worker", "dispatcher"}),
    ("RUNNING", "FINISHED"): frozenset({"worker"}),
    ("RUNNING", "FAILED"): frozenset({"worker", "dispatcher"}),
    ("RUNNING", "WAITING"): frozenset({"dispatcher"}),
    ("FAILED", "SUBMITTED"): frozenset({"person"}),
    ("ABORTED", "SUBMITTED"): frozenset({"person"}),
    **{
        (state, "ABORTED"): frozenset({"person", "dispatcher"})
        for state in ("CREATED", "SUBMITTED", "WAITING", "SCHEDULED", "ACCEPTED", "RUNNING")
    },
}


#: where a submission says nothing else: a worker that dies is not the task's fault, unless it happens again and again
LOST_WORKER_RETRIES = 5


def lost_worker_retries(task: TaskSpec) -> int:
    """How often it is started again after its worker was lost."""
    if task.lost_worker_retries is not None:
        return task.lost_worker_retries
    return 0 if task.at_most_once else LOST_WORKER_RETRIES


def legal(old: TaskState, new: TaskState, by: Actor) -> bool:
    return by in _MOVES.get((old, new), ())


def state_of_counts(left: int, failed: int) -> ContextState:
    if left:
        return "RUNNING"
    return "FAILED" if failed else "FINISHED"


def retry_pause(backoff: float, failures: int, random: float) -> float:
    """Seconds before the next try after `failures` of them: doubled each time, at most an hour, spread by a fifth."""
    return min(3600.0, backoff * 2.0 ** max(0, min(failures, 40) - 1)) * (0.9 + 0.2 * random)


# The tables of tasks and contexts, and rows <-> structs.

#: tasks, contexts and duties are divided among coordinators by these
BUCKETS = 64

STEPS = [
    """
    CREATE TABLE context (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, description TEXT NOT NULL, cause TEXT NOT NULL, once TEXT UNIQUE,
        state TEXT NOT NULL, stage TEXT NOT NULL, properties TEXT NOT NULL, templates BYTEA NOT NULL,
        together BIGINT NOT NULL, bucket BIGINT NOT NULL, tasks BIGINT NOT NULL, unended BIGINT NOT NULL,
        failed BIGINT NOT NULL, abort_by TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL, ended_at DOUBLE PRECISION
    );
    CREATE INDEX context_ended ON context (ended_at) WHERE ended_at IS NOT NULL;
    CREATE INDEX context_stage ON context (stage) WHERE stage <> 'whole';
    CREATE INDEX context_abort ON context (bucket) WHERE abort_by <> '';
    CREATE TABLE task_class (
        id BIGINT PRIMARY KEY, kind TEXT NOT NULL, selector TEXT NOT NULL, source TEXT NOT NULL, holder BIGINT NOT NULL,
        exclusive TEXT NOT NULL, context TEXT NOT NULL, together BIGINT NOT NULL, priority BIGINT NOT NULL,
        reason TEXT NOT NULL, used_at DOUBLE PRECISION NOT NULL
    );
    CREATE TABLE task (
        id TEXT PRIMARY KEY, context TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL, source TEXT NOT NULL,
        class BIGINT NOT NULL,
        exclusive TEXT NOT NULL, bucket BIGINT NOT NULL, state TEXT NOT NULL, attempt BIGINT NOT NULL,
        failures BIGINT NOT NULL, retries BIGINT NOT NULL, lost_workers BIGINT NOT NULL,
        lost_worker_retries BIGINT NOT NULL, at_most_once BIGINT NOT NULL, backoff DOUBLE PRECISION NOT NULL,
        worker TEXT NOT NULL,
        needs_left BIGINT NOT NULL, dependents BIGINT NOT NULL, not_before DOUBLE PRECISION NOT NULL,
        deadline DOUBLE PRECISION, abort_by TEXT NOT NULL, reason TEXT NOT NULL, moves TEXT NOT NULL,
        spec BYTEA NOT NULL, result BYTEA, code BIGINT, created_at DOUBLE PRECISION NOT NULL,
        ended_at DOUBLE PRECISION
    );
    CREATE INDEX task_context ON task (context, id);
    CREATE INDEX task_unended ON task (id) WHERE ended_at IS NULL;
    CREATE INDEX task_failed ON task (id) WHERE state = 'FAILED';
    CREATE INDEX task_aborted ON task (id) WHERE state = 'ABORTED';
    CREATE INDEX task_created ON task (context) WHERE state = 'CREATED';
    CREATE INDEX task_new ON task (bucket) WHERE state = 'SUBMITTED';
    CREATE INDEX task_ready ON task (class, not_before, id) WHERE state = 'WAITING' AND needs_left = 0;
    CREATE INDEX task_later ON task (not_before) WHERE state = 'WAITING' AND not_before > 0;
    CREATE INDEX task_active ON task (worker) WHERE state IN ('SCHEDULED', 'ACCEPTED', 'RUNNING');
    CREATE INDEX task_abort ON task (bucket) WHERE abort_by <> '';
    CREATE INDEX task_deadline ON task (deadline) WHERE deadline IS NOT NULL AND ended_at IS NULL;
    CREATE TABLE need (
        target TEXT NOT NULL, task TEXT NOT NULL, rule TEXT NOT NULL, PRIMARY KEY (target, task)
    );
    CREATE INDEX need_task ON need (task);
    CREATE TABLE output (
        task TEXT NOT NULL, attempt BIGINT NOT NULL, n BIGINT NOT NULL, stream TEXT NOT NULL,
        at DOUBLE PRECISION NOT NULL, body BYTEA NOT NULL, PRIMARY KEY (task, attempt, n)
    );
    CREATE TABLE news (id TEXT PRIMARY KEY, subject TEXT NOT NULL, body BYTEA NOT NULL);
    CREATE TABLE archive (
        task TEXT NOT NULL, attempt BIGINT NOT NULL, blob TEXT NOT NULL, PRIMARY KEY (task, attempt)
    );
    CREATE TABLE repair (kind TEXT PRIMARY KEY, n BIGINT NOT NULL);
    CREATE VIEW task_seen AS SELECT task.id, task.context, task.name, task.kind, task.source, task.state, task.attempt,
        task.failures, task.lost_workers, task.worker, task.created_at, task.ended_at, task.not_before, task.code, CASE
        WHEN task.state <> 'WAITING' THEN task.reason
        WHEN task.needs_left > 0 THEN 'waits for ' || task.needs_left || ' other task(s)'
        WHEN task.not_before > 0 THEN task.reason ELSE task_class.reason END AS reason
        FROM task LEFT JOIN task_class ON task_class.id = task.class
    """
]
ACTIVE_SQL = "state IN ('SCHEDULED', 'ACCEPTED', 'RUNNING')"
UNENDED_SQL = "state NOT IN ('FINISHED', 'FAILED', 'ABORTED')"
TASK_VISIBLE_SQL = seen("task_seen.source")
#: a context with a task that is not for everybody is not either
CONTEXT_VISIBLE_SQL = (
    "(:private = 1 OR NOT EXISTS (SELECT 1 FROM task WHERE task.context = context.id "  # noqa: S608
    f"AND NOT {seen('task.source')}))"
)
#: benchmarks that should have a generator and have none
GENERATORLESS_SQL = (
    "benchmark.state = 'running' AND NOT EXISTS "
    "(SELECT 1 FROM context WHERE context.id = benchmark.generator AND context.state = 'RUNNING')"
)

_spec = msgspec.json.Decoder(TaskSpec).decode
_moves = msgspec.json.Decoder(tuple[TaskState, int, Actor, str, float]).decode


def bucket_of(context: str) -> int:
    return zlib.crc32(context.encode()) % BUCKETS


def class_of(task: TaskSpec, context: str, together: bool) -> dict[str, Any]:
    """The row of what a placement has to know: tasks that are alike to it share one, however many they are."""
    row: dict[str, Any] = {
        "kind": task.program,
        "selector": task.selector,
        "source": task.source,
        "holder": int(task.holder),
        "exclusive": task.exclusive,
        "context": context if together or task.exclusive == "context" else "",
        "together": int(together),
        "priority": task.priority,
    }
    digest = hashlib.blake2b(repr(sorted(row.items())).encode(), digest_size=8).digest()
    return {"id": int.from_bytes(digest, "big") >> 1, **row}


def line(state: TaskState, attempt: int, by: Actor, reason: str, at: float) -> str:
    """One line of the reason log, as it is appended."""
    return msgspec.json.encode((state, attempt, by, reason, round(at, 6))).decode() + "\n"


def moves_of(text: str) -> list[Move]:
    return [Move(*_moves(one)) for one in text.splitlines()]


def spec_of(row: Row) -> TaskSpec:
    return _spec(row["spec"])


def task_of(row: Row) -> Task:
    return struct_of(Task, row)


#: what task_of reads
TASK_COLUMNS = ", ".join(Task.__struct_fields__)


def context_of(row: Row) -> Context:
    properties = msgspec.json.decode(row["properties"], type=dict[str, str])
    return struct_of(Context, row, left=row["unended"], properties=properties, together=bool(row["together"]))


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
    rows, _, counted, _ = await tx.several([also, (_UPDATE, task.params()), count, outbox.statement(_ended(task), now)])
    tx.ring(outbox.CHANNEL)
    await outbox.put(tx, await _after(tx, task.context, counted, now), now)
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
    await outbox.put(tx, told, now)


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
