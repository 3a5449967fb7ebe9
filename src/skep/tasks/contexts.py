"""Contexts: tasks that belong together. What people and programs ask for; the dispatcher does the rest."""

import asyncio
import json
from collections.abc import Sequence
from functools import partial

import msgspec

from skep.access.audit import note
from skep.clock import Clock
from skep.engines.db.base import Database, Tx, one_row
from skep.errors import BadInput, Conflict, NotFound
from skep.model.answers import Page
from skep.model.caller import SYSTEM, Caller
from skep.model.ids import new_id
from skep.model.task import Context, ContextSpec, ContextView, Task, TaskSpec
from skep.tasks.compose import compose
from skep.tasks.insert import depend, insert, rows_of
from skep.tasks.moves import COLUMNS, WORK, Moving, context_channel, ended_channel, reopen
from skep.tasks.placing import Placer
from skep.tasks.storing import SEEN_SQL, clear, context_row, create, fill, leave
from skep.tasks.tables import CONTEXT_VISIBLE_SQL, STEPS, TASK_COLUMNS, context_of, moves_of, spec_of, task_of

#: tasks shown with their context
SHOWN = 1000
#: with more tasks than this a context is checked in a thread, so that nobody else waits for it
_MANY = 1000
#: tasks added at once: they are one transaction, and seen together
MOST_ADDED = 10_000
_templates = msgspec.json.Decoder(dict[str, TaskSpec]).decode


class Contexts:
    def __init__(self, db: Database, clock: Clock, placer: Placer) -> None:
        self._db = db
        self._clock = clock
        self._placer = placer

    async def start(self) -> None:
        await self._db.migrate("tasks", STEPS)

    async def submit(
        self, caller: Caller, spec: ContextSpec, *, cause: str = "", once: str = "", internal: bool = False
    ) -> Context:
        """`once` names an occasion: a second submission for the same one answers with the context of the first.

        `internal`: the server submits work of its own, of kinds that are refused from callers."""
        caller.need("write")
        many = len(spec.tasks) > _MANY
        composed = partial(compose, spec, internal=internal)
        tasks, now = await asyncio.to_thread(composed) if many else composed(), self._clock.now()

        cause = cause or f"person:{caller.subject}"
        id = new_id("ctx", now)
        if many:
            rows = await asyncio.to_thread(rows_of, id, tasks, now, state="CREATED")
            id = await fill(self._db, context_row(id, spec, cause, once, now), rows)
            await self._db.write(lambda tx: note(tx, now, caller, "context.submit", id))
            return await self._context(id)

        async def work(tx: Tx) -> str:
            admit = at_once and self._placer.owns(id)
            made = await create(tx, id, spec, tasks, cause, once, now, admit=admit)
            await note(tx, now, caller, "context.submit", made)
            if admit:
                await self._placer.place(tx, now)
            return made

        with self._placer.at_once() as at_once:
            made = await self._db.write(work)
        return await self._context(made)

    async def add(
        self, caller: Caller, context: str, tasks: Sequence[TaskSpec], *, internal: bool = False
    ) -> list[str]:
        """More tasks for a context that is still running; answers with their ids. A task may do so for its own."""
        caller.need("write")
        if len(tasks) > MOST_ADDED:
            raise BadInput(f"{len(tasks):,} tasks are too many to add at once", hint=f"add {MOST_ADDED:,} at a time")
        now = self._clock.now()

        async def work(tx: Tx) -> list[str]:
            rows = await tx.rows(f"SELECT * FROM context WHERE id = :id AND {SEEN_SQL} FOR UPDATE", id=context)  # noqa: S608
            row = one_row(rows, _unknown(context))
            if row["state"] != "RUNNING" or row["abort_by"]:
                state = row["state"] if row["state"] != "RUNNING" else "being cancelled"
                raise Conflict(f"context {context} is {state}", hint="submit another context")
            if row["together"]:
                raise BadInput("a context whose tasks are placed together takes no more of them")
            tasks_there = await tx.rows("SELECT id, name FROM task WHERE context = :id", id=context)
            known = {one["name"]: one["id"] for one in tasks_there}
            properties, templates = json.loads(row["properties"]), _templates(row["templates"])
            spec = ContextSpec(row["name"], tuple(tasks), properties=properties, templates=templates)
            added = compose(spec, known, internal=internal)
            new = rows_of(context, added, now, known=known, ended=await depend(tx, added, known))
            await insert(tx, new)
            await tx.rows(
                "UPDATE context SET tasks = tasks + :n, unended = unended + :n WHERE id = :id",
                n=len(added),
                id=context,
            )
            tx.ring(context_channel(context))
            return [str(row["id"]) for row in new.tasks]

        return await self._db.write(work)

    async def extend(self, caller: Caller, context: str, tasks: Sequence[TaskSpec]) -> bool:
        """`add` of the server's own tasks, done once: False when the context has tasks of these names already."""
        rows = await self._db.read("SELECT name FROM task WHERE context = :id", id=context)
        if {task.name for task in tasks} <= {row["name"] for row in rows}:
            return False
        await self.add(caller, context, tasks, internal=True)
        return True

    async def show(self, caller: Caller, id: str, *, after: str = "", limit: int = SHOWN) -> ContextView:
        caller.need("read")
        context = await self._context(id, caller)
        rows = await self._db.read(
            f"SELECT {TASK_COLUMNS} FROM task_seen WHERE context = :id AND id > :after ORDER BY id LIMIT :limit",  # noqa: S608
            id=id,
            after=after,
            limit=limit,
        )
        tasks = [task_of(row) for row in rows]
        return ContextView(context, tasks, await self._needs(id, tasks))

    async def _needs(self, context: str, tasks: Sequence[Task]) -> dict[str, list[str]]:
        """As they were submitted: those that were met before a task was added are no rows."""
        if not tasks:
            return {}
        rows = await self._db.read(
            "SELECT name, spec FROM task WHERE context = :id AND id >= :first AND id <= :last",
            id=context,
            first=tasks[0].id,
            last=tasks[-1].id,
        )
        needs = {row["name"]: [need.task for need in spec_of(row).needs] for row in rows}
        return {name: wanted for name, wanted in needs.items() if wanted}

    async def cancel(self, caller: Caller, id: str, reason: str = "") -> Context:
        """Everything in it that has not ended is aborted."""
        caller.need("write")
        await self._context(id, caller)

        async def work(tx: Tx) -> None:
            await abort_context(tx, id, caller, reason)
            await note(tx, self._clock.now(), caller, "context.cancel", id)

        await self._db.write(work)
        return await self._context(id)

    async def retry(self, caller: Caller, id: str) -> Context:
        """What FAILED or was ABORTED is submitted again. What FINISHED stays, and so does what may run at most once and
        may have started, with all that needs it."""
        caller.need("write")
        await self._context(id, caller)
        now = self._clock.now()

        async def work(tx: Tx) -> None:
            one_row(await tx.rows("SELECT id FROM context WHERE id = :id FOR UPDATE", id=id), _unknown(id))
            rows = await tx.rows(
                f"SELECT {COLUMNS} FROM task WHERE context = :id AND state IN ('FAILED', 'ABORTED') FOR UPDATE",  # noqa: S608
                id=id,
            )
            if not rows:
                raise Conflict(f"no task of context {id} has failed", hint="there is nothing to retry")
            spent = await _spent(tx, id)
            again = [Moving(**row) for row in rows if row["id"] not in spent]
            if not again:
                raise Conflict(
                    f"what failed in context {id} may run at most once, or needs such a task",
                    hint="submit another context",
                )
            await reopen(tx, id, again, caller.subject, now)
            await note(tx, now, caller, "context.retry", id)

        await self._db.write(work)
        return await self._context(id)

    async def wait(self, caller: Caller, id: str, timeout: float) -> Context:
        """Until it has ended, or `timeout` passed: then its state is still RUNNING."""
        caller.need("read")
        until = self._clock.now() + timeout
        async with self._db.listen(ended_channel(id)) as bell:
            while True:
                context = await self._context(id, caller)
                left = until - self._clock.now()
                if context.state != "RUNNING" or left <= 0:
                    return context
                await bell.wait(min(left, 30.0))

    async def remove(self, caller: Caller, id: str) -> None:
        """With its tasks and their output; only when it has ended."""
        caller.need("write")

        async def work(tx: Tx) -> None:
            if not await leave(tx, id):
                raise Conflict(f"context {id} is still running", hint="cancel it first")
            await note(tx, self._clock.now(), caller, "context.remove", id)

        await self._context(id, caller)
        await self._db.write(work)
        await clear(self._db, id)

    async def _context(self, id: str, caller: Caller = SYSTEM) -> Context:
        rows = await self._db.read(
            f"SELECT * FROM context WHERE id = :id AND {SEEN_SQL} AND {CONTEXT_VISIBLE_SQL}",  # noqa: S608
            id=id,
            private=int(caller.sees("private")),
        )
        return context_of(one_row(rows, _unknown(id)))

    async def list(
        self, caller: Caller, *, page: str = "", limit: int = 100, state: str = "", cause: str = ""
    ) -> Page[Context]:
        """The newest first. `cause` is the beginning of one: `person`, `change:BATCH`."""
        caller.need("read")
        rows = await self._db.read(
            f"SELECT * FROM context WHERE {SEEN_SQL} AND (:page = '' OR id < :page) "  # noqa: S608
            "AND (:state = '' OR state = :state) AND substr(cause, 1, length(:cause)) = :cause "
            f"AND {CONTEXT_VISIBLE_SQL} ORDER BY id DESC LIMIT :limit",
            page=page,
            state=state,
            cause=cause,
            private=int(caller.sees("private")),
            limit=limit + 1,
        )
        items = [context_of(row) for row in rows[:limit]]
        return Page(items, items[-1].id if len(rows) > limit else "")


async def abort_context(tx: Tx, id: str, caller: Caller, reason: str) -> None:
    """A wish that the dispatcher fulfils."""
    by = f"{caller.subject}: {reason}" if reason else caller.subject
    await tx.rows("UPDATE context SET abort_by = :by WHERE id = :id AND state = 'RUNNING'", by=by, id=id)
    tx.ring(WORK)


async def _spent(tx: Tx, context: str) -> set[str]:
    """Tasks that must not start again and have not finished, and those that can therefore never run."""
    rows = await tx.rows(
        "SELECT id, moves FROM task WHERE context = :id AND at_most_once = 1 AND state IN ('FAILED', 'ABORTED')",
        id=context,
    )
    spent = {row["id"] for row in rows if any(move.state == "ACCEPTED" for move in moves_of(row["moves"]))}
    if not spent:
        return spent
    needs = await tx.rows(
        "SELECT need.task, need.target FROM need JOIN task ON task.id = need.target "
        "WHERE task.context = :id AND need.rule = 'finished'",
        id=context,
    )
    while more := {row["task"] for row in needs if row["target"] in spent} - spent:
        spent |= more
    return spent


def _unknown(id: str) -> NotFound:
    return NotFound(f"there is no context {id!r}", hint="`skep context list` shows those there are")
