"""How contexts are stored and removed: in one transaction, or piece by piece where others would wait for that.

A large context is `filling` until all its tasks are stored, and nobody sees it before. Then it is `filled`, its tasks
are CREATED, and the dispatcher admits them, some at a time, until it is `whole`. One that is to be removed is
`leaving`, and nobody sees it any more. What a kill leaves filling or leaving is removed by the sweep.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from skep.base.errors import BadInput, Conflict
from skep.base.ids import new_ids
from skep.storage.database import Database, Statement, Tx, Value, inserting
from skep.tasks.model import ContextSpec, TaskSpec, TaskState
from skep.tasks.transitions import WORK, bucket_of, class_of, line, lost_worker_retries

# New tasks of a context become rows, inside the transaction of whoever submits them.

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


#: tasks stored or removed in one transaction
PIECE = 1000
#: one that is filled for longer was given up
FILLING_SECONDS = 600.0
SEEN_SQL = "stage IN ('whole', 'filled')"
_ONCE = "ON CONFLICT (once) DO NOTHING RETURNING id"


async def create(
    tx: Tx,
    id: str,
    spec: ContextSpec,
    tasks: Sequence[TaskSpec],
    cause: str,
    once: str,
    now: float,
    *,
    admit: bool = False,
) -> str:
    """The context's id; with `once`, that of the one that is there already. `admit`: its tasks wait at once, without a
    dispatcher that would see to it."""
    row = context_row(id, spec, cause, once, now)
    create = inserting("context", row, _ONCE)
    if once and not await tx.rows(create, **row):
        known = await tx.rows("SELECT id FROM context WHERE once = :once", once=once)
        return str(known[0]["id"])
    rows = rows_of(id, tasks, now, together=spec.together, state="WAITING" if admit else "SUBMITTED")
    await insert(tx, rows, [] if once else [(create, row)])
    return id


def context_row(id: str, spec: ContextSpec, cause: str, once: str, now: float) -> dict[str, Value]:
    return {
        "id": id,
        "name": spec.name,
        "description": spec.description,
        "cause": cause,
        "once": once or None,
        "state": "RUNNING",
        "stage": "whole",
        "properties": json.dumps(spec.properties),
        "templates": msgspec.json.encode(spec.templates),
        "together": int(spec.together),
        "bucket": bucket_of(id),
        "tasks": len(spec.tasks),
        "unended": len(spec.tasks),
        "failed": 0,
        "abort_by": "",
        "created_at": now,
    }


async def fill(db: Database, context: dict[str, Value], rows: Rows) -> str:
    """The context's id, once it is stored whole; with `once`, that of the one that is there already."""
    id = str(context["id"])
    filling = {**context, "once": None, "stage": "filling"}
    await db.write(lambda tx: tx.rows(inserting("context", filling), **filling))
    needs: dict[Value, list[dict[str, Value]]] = {}
    for need in rows.needs:
        needs.setdefault(need["task"], []).append(need)
    for start in range(0, len(rows.tasks), PIECE):
        tasks = rows.tasks[start : start + PIECE]
        piece = Rows(
            [] if start else rows.classes, tasks, [need for task in tasks for need in needs.get(task["id"], ())]
        )
        await db.write(partial(_add, id=id, piece=piece))
    finish = partial(_finish, id=id, once=context["once"])
    try:
        made = await db.write(finish)
    except Conflict:  # another for the same occasion was finished in the same moment, and is seen now
        made = await db.write(finish)
    if made != id:
        await clear(db, id)
    return made


async def _add(tx: Tx, id: str, piece: Rows) -> None:
    if not await tx.rows("SELECT id FROM context WHERE id = :id AND stage = 'filling' FOR UPDATE", id=id):
        raise Conflict("storing it took too long, so it was given up", hint="submit fewer tasks at once")
    await insert(tx, piece)


async def _finish(tx: Tx, id: str, once: Value) -> str:
    known = await tx.rows("SELECT id FROM context WHERE once = :once", once=once) if once else []
    stage = "leaving" if known else "filled"
    own = None if known else once
    await tx.rows("UPDATE context SET stage = :stage, once = :once WHERE id = :id", stage=stage, once=own, id=id)
    tx.ring(WORK)
    return str(known[0]["id"]) if known else id


async def admit(tx: Tx, owned: str, now: float) -> int:
    """Some tasks of a filled context begin to wait; how many."""
    found = await tx.rows(f"SELECT id FROM context WHERE stage = 'filled' AND {owned} LIMIT 1 FOR UPDATE")  # noqa: S608
    if not found:
        return 0
    at = msgspec.json.encode(round(now, 6)).decode()
    rows = await tx.rows(
        "UPDATE task SET state = 'WAITING', moves = moves || :lines WHERE id IN (SELECT id FROM task "
        "WHERE context = :id AND state = 'CREATED' LIMIT :most) RETURNING id",
        id=found[0]["id"],
        lines=f'["SUBMITTED",0,"client","",{at}]\n["WAITING",0,"dispatcher","",{at}]\n',
        most=PIECE,
    )
    if len(rows) < PIECE:
        await tx.rows("UPDATE context SET stage = 'whole' WHERE id = :id", id=found[0]["id"])
    return len(rows) or 1


async def leave(tx: Tx, id: str) -> bool:
    """From now on nobody sees it. False: it is still running."""
    gone = await tx.rows(
        "UPDATE context SET stage = 'leaving', once = NULL WHERE id = :id AND state <> 'RUNNING' RETURNING id", id=id
    )
    return bool(gone)


async def clear(db: Database, id: str) -> None:
    """A context that is `leaving` goes, with its tasks, their output and its space."""
    while await db.write(lambda tx: _clear(tx, id)):
        continue


async def _clear(tx: Tx, id: str) -> bool:
    tasks = await tx.rows("SELECT id FROM task WHERE context = :id ORDER BY id LIMIT :most", id=id, most=PIECE)
    if tasks:
        some = "(SELECT id FROM task WHERE context = :id AND id <= :last)"
        last = tasks[-1]["id"]
        await tx.rows(f"DELETE FROM output WHERE task IN {some}", id=id, last=last)  # noqa: S608
        await tx.rows(f"DELETE FROM need WHERE task IN {some}", id=id, last=last)  # noqa: S608
        await tx.rows("DELETE FROM task WHERE context = :id AND id <= :last", id=id, last=last)
    if len(tasks) == PIECE:
        return True
    await tx.rows("DELETE FROM tuple WHERE space = :space", space=space_of(id))
    await tx.rows("DELETE FROM space WHERE name = :space", space=space_of(id))
    await tx.rows("DELETE FROM context WHERE id = :id", id=id)
    return False


def space_of(context: str) -> str:
    """Where its checkpoints, latches and state are."""
    return f"context:{context}"
