"""How contexts are stored and removed: in one transaction, or piece by piece where others would wait for that.

A large context is `filling` until all its tasks are stored, and nobody sees it before. Then it is `filled`, its tasks
are CREATED, and the dispatcher admits them, some at a time, until it is `whole`. One that is to be removed is
`leaving`, and nobody sees it any more. What a kill leaves filling or leaving is removed by the sweep.
"""

import json
from collections.abc import Sequence
from functools import partial

import msgspec

from skep.engines.db.base import Database, Tx, Value, inserting
from skep.errors import Conflict
from skep.model.task import ContextSpec, TaskSpec
from skep.tasks.insert import Rows, insert, rows_of
from skep.tasks.moves import WORK
from skep.tasks.tables import bucket_of

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
