"""New tasks of a context become rows, inside the transaction of whoever submits them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from skep.engines.db.base import Statement, Tx, Value, inserting
from skep.errors import BadInput
from skep.model.ids import new_ids
from skep.model.task import TaskSpec, TaskState
from skep.tasks.moves import WORK
from skep.tasks.states import lost_worker_retries
from skep.tasks.tables import bucket_of, class_of, line

_USED = "ON CONFLICT (id) DO UPDATE SET used_at = excluded.used_at"
_CLASS = inserting("task_class", (*class_of(TaskSpec(), "", False), "reason", "used_at"), _USED)


class Rows(NamedTuple):
    """New tasks as they are stored."""

    classes: list[dict[str, Value]]
    tasks: list[dict[str, Value]]
    needs: list[dict[str, Value]]


def rows_of(
    context: str,
    tasks: Sequence[TaskSpec],
    now: float,
    *,
    together: bool = False,
    known: Mapping[str, str] = MappingProxyType({}),
    ended: Mapping[str, str] = MappingProxyType({}),
    state: TaskState = "SUBMITTED",
) -> Rows:
    """Pure. `known`: name -> id of what the context has already, `ended`: those of them that have, and how."""
    ids = new_ids("tsk", now, len(tasks))
    by_name = {**known, **dict(zip((task.name for task in tasks), ids, strict=True))}
    dependents = Counter(need.task for task in tasks for need in task.needs)
    classes = [class_of(task, context, together) for task in tasks]
    alike = [{**row, "reason": "", "used_at": now} for _, row in sorted({row["id"]: row for row in classes}.items())]
    bucket, started = bucket_of(context), _started(state, now)
    found = Rows(alike, [], [])
    for id, task, row in zip(ids, tasks, classes, strict=True):
        needs = _open_needs(task, ended)
        found.needs.extend({"target": by_name[name], "task": id, "rule": rule} for name, rule in needs.items())
        found.tasks.append(
            {
                "id": id,
                "context": context,
                "name": task.name,
                "kind": task.kind,
                "source": task.source,
                "class": row["id"],
                "exclusive": task.exclusive,
                "bucket": bucket,
                "state": state,
                "attempt": 0,
                "failures": 0,
                "retries": task.retries,
                "lost_workers": 0,
                "lost_worker_retries": lost_worker_retries(task),
                "at_most_once": int(task.at_most_once),
                "backoff": task.backoff,
                "worker": "",
                "needs_left": len(needs),
                "dependents": dependents[task.name],
                "not_before": 0.0,
                "deadline": None if task.timeout is None else now + task.timeout,
                "abort_by": "",
                "reason": "",
                "moves": started,
                "spec": msgspec.json.encode(task),
                "created_at": now,
            }
        )
    return found


def _started(state: TaskState, now: float) -> str:
    lines = [line("CREATED", 0, "client", "", now)]
    if state != "CREATED":
        lines.append(line("SUBMITTED", 0, "client", "", now))
    if state == "WAITING":
        lines.append(line("WAITING", 0, "dispatcher", "", now))
    return "".join(lines)


def _open_needs(task: TaskSpec, ended: Mapping[str, str]) -> dict[str, str]:
    """Those that are still to come. One that can no longer be met is refused."""
    for need in task.needs:
        if need.rule == "finished" and ended.get(need.task, "FINISHED") != "FINISHED":
            raise BadInput(f"task {task.name!r} needs {need.task!r}, which is {ended[need.task]}")
    return {need.task: need.rule for need in task.needs if need.task not in ended}


async def depend(tx: Tx, tasks: Sequence[TaskSpec], known: Mapping[str, str]) -> dict[str, str]:
    """Tasks of a running context get dependents. Name -> state of those that have ended already."""
    ended: dict[str, str] = {}
    for name in sorted({need.task for task in tasks for need in task.needs if need.task in known}):
        rows = await tx.rows(
            "UPDATE task SET dependents = dependents + 1 WHERE id = :id RETURNING state, ended_at", id=known[name]
        )
        if rows[0]["ended_at"] is not None:
            ended[name] = rows[0]["state"]
    return ended


async def insert(tx: Tx, rows: Rows, also: Sequence[Statement] = ()) -> None:
    """`also` is done with them: what happens most often, one task, takes one statement."""
    task = inserting("task", rows.tasks[0])
    if len(rows.tasks) == 1 and not rows.needs:
        await tx.several([*also, (_CLASS, rows.classes[0]), (task, rows.tasks[0])])
    else:
        await tx.several(also)
        await tx.many(_CLASS, rows.classes)
        await tx.many(task, rows.tasks)
        await tx.many(inserting("need", ("target", "task", "rule")), rows.needs)
    tx.ring(WORK)
