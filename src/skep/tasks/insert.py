"""New tasks of a context become rows, inside the transaction of whoever submits them."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from skep.engines.db.base import Statement, Tx, Value
from skep.errors import BadInput
from skep.model.ids import new_ids
from skep.model.task import TaskSpec
from skep.tasks.moves import WORK, context_channel
from skep.tasks.tables import bucket_of, class_of, line

_TASK = (
    "INSERT INTO task (id, context, name, kind, class, exclusive, bucket, state, attempt, failures, retries, "
    "backoff, worker, needs_left, dependents, not_before, deadline, abort_by, reason, moves, spec, created_at) "
    "VALUES (:id, :context, :name, :kind, :class, :exclusive, :bucket, :state, 0, 0, :retries, :backoff, "
    ":worker, :needs_left, :dependents, :not_before, :deadline, :abort_by, :reason, :moves, :spec, :created_at)"
)
_CLASS = (
    "INSERT INTO task_class (id, kind, selector, source, holder, exclusive, context, together, priority, reason, "
    "used_at) VALUES (:id, :kind, :selector, :source, :holder, :exclusive, :context, :together, :priority, '', :now) "
    "ON CONFLICT (id) DO UPDATE SET used_at = excluded.used_at"
)


async def insert(
    tx: Tx,
    context: str,
    tasks: Sequence[TaskSpec],
    now: float,
    *,
    together: bool = False,
    known: Mapping[str, str] = MappingProxyType({}),
    admit: bool = False,
    also: Sequence[Statement] = (),
) -> list[str]:
    """Ids in the order of `tasks`. `known`: name -> id of what the context has already. `admit`: they wait at once,
    without a dispatcher that would see to it. `also` is done with them."""
    ids = new_ids("tsk", now, len(tasks))
    by_name = {**known, **dict(zip((task.name for task in tasks), ids, strict=True))}
    left = await _needs(tx, tasks, by_name, known)
    dependents: dict[str, int] = {}
    for task in tasks:
        for need in task.needs:
            dependents[need.task] = dependents.get(need.task, 0) + 1
    classes = [class_of(task, context, together) for task in tasks]
    started = line("CREATED", 0, "client", "", now) + line("SUBMITTED", 0, "client", "", now)
    if admit:
        started += line("WAITING", 0, "dispatcher", "", now)
    rows: list[dict[str, Value]] = [
        {
            "id": id,
            "context": context,
            "name": task.name,
            "kind": task.kind,
            "class": row["id"],
            "exclusive": task.exclusive,
            "bucket": bucket_of(context),
            "state": "WAITING" if admit else "SUBMITTED",
            "retries": task.retries,
            "backoff": task.backoff,
            "worker": "",
            "needs_left": left[task.name],
            "dependents": dependents.get(task.name, 0),
            "not_before": 0.0,
            "deadline": None if task.timeout is None else now + task.timeout,
            "abort_by": "",
            "reason": "",
            "moves": started,
            "spec": msgspec.json.encode(task),
            "created_at": now,
        }
        for id, task, row in zip(ids, tasks, classes, strict=True)
    ]
    # in one order everywhere, or two transactions could wait for each other
    alike = [{**row, "now": now} for _, row in sorted({row["id"]: row for row in classes}.items())]
    if len(rows) == 1:
        await tx.several([*also, (_CLASS, alike[0]), (_TASK, rows[0])])
    else:
        await tx.several(also)
        await tx.many(_CLASS, alike)
        await tx.many(_TASK, rows)
    tx.ring(WORK)
    tx.ring(context_channel(context))
    return ids


async def _needs(tx: Tx, tasks: Sequence[TaskSpec], ids: Mapping[str, str], known: Mapping[str, str]) -> dict[str, int]:
    """Task -> how many of its needs are still to come. A need that can no longer be met is refused."""
    ended: dict[str, str] = {}
    for name in {need.task for task in tasks for need in task.needs if need.task in known}:
        rows = await tx.rows(
            "UPDATE task SET dependents = dependents + 1 WHERE id = :id RETURNING state, ended_at", id=known[name]
        )
        if rows[0]["ended_at"] is not None:
            ended[name] = rows[0]["state"]
    left: dict[str, int] = {}
    rows_of_needs: list[dict[str, Value]] = []
    for task in tasks:
        open_needs = {need.task: need.rule for need in task.needs if need.task not in ended}
        for need in task.needs:
            if need.rule == "finished" and ended.get(need.task, "FINISHED") != "FINISHED":
                raise BadInput(f"task {task.name!r} needs {need.task!r}, which is {ended[need.task]}")
        left[task.name] = len(open_needs)
        rows_of_needs += [
            {"target": ids[name], "task": ids[task.name], "rule": rule} for name, rule in open_needs.items()
        ]
    await tx.many("INSERT INTO need (target, task, rule) VALUES (:target, :task, :rule)", rows_of_needs)
    return left
