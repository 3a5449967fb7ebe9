"""The tables of tasks and contexts, and rows <-> structs."""

import hashlib
import zlib
from typing import Any

import msgspec

from skep.engines.db.base import Row, struct_of
from skep.model.task import Actor, Context, Move, Task, TaskSpec, TaskState
from skep.sources.tables import seen

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
