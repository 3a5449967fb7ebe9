"""Contexts: tasks that belong together. What people and programs ask for; the dispatcher does the rest."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import Any

import msgspec

from skep.access.audit import note
from skep.base.answers import Page
from skep.base.caller import SYSTEM, Caller
from skep.base.clock import Clock
from skep.base.errors import BadInput, Conflict, NotFound
from skep.base.ids import new_id
from skep.spaces import batch
from skep.spaces.api import Typed
from skep.spaces.service import Spaces
from skep.storage.database import Database, Tx, one_row
from skep.tasks.model import Call, Context, ContextSpec, ContextView, Task, TaskSpec
from skep.tasks.placer import Placer
from skep.tasks.selector import parse
from skep.tasks.store import SEEN_SQL, clear, context_row, create, depend, fill, insert, leave, rows_of, space_of
from skep.tasks.task_types import check_kind
from skep.tasks.transitions import (
    ACTIVE_SQL,
    COLUMNS,
    CONTEXT_VISIBLE_SQL,
    STEPS,
    TASK_COLUMNS,
    WORK,
    Moving,
    context_channel,
    context_of,
    ended_channel,
    moves_of,
    reopen,
    spec_of,
    task_of,
)

# From a submitted ContextSpec to tasks: templates filled in, properties inherited, needs checked. Pure.

MOST_TASKS = 100_000
#: tasks of one context that are placed all at once or not at all
MOST_TOGETHER = 256
_NAME = re.compile(r"[\w][\w .:/+@-]{0,199}")
_MOST_RETRIES = 100
_LONGEST = 10**8
_HIGHEST = 10**6
#: fields that are joined with the template's instead of replacing them
_JOINED = ("properties", "environment", "arguments")


def compose(spec: ContextSpec, known: Mapping[str, str] | None = None, *, internal: bool = False) -> list[TaskSpec]:
    """`known` are tasks the context has already (name -> id): new ones may need them and must not bear their names.

    `internal`: the server submits this for itself, so kinds that no caller may submit are allowed."""
    if not _NAME.fullmatch(spec.name):
        raise BadInput(f"{spec.name[:80]!r} is no name for a context", hint="letters, digits, spaces and . : / + @ -")
    if len(spec.tasks) + len(known or ()) > MOST_TASKS:
        raise BadInput(f"a context of {len(spec.tasks)} tasks; at most {MOST_TASKS} are allowed")
    if not spec.tasks:
        raise BadInput("a context without tasks would never end", hint="give at least one task")
    tasks = [_filled(task, spec, number) for number, task in enumerate(spec.tasks, 1)]
    for task in tasks:
        check_kind(task, internal=internal)
    names = {task.name for task in tasks}
    if len(names) < len(tasks) or names & set(known or ()):
        seen: set[str] = set(known or ())
        twice = next(task.name for task in tasks if task.name in seen or seen.add(task.name))  # type: ignore[func-returns-value]  # add answers None, which goes on
        raise BadInput(f"two tasks are called {twice!r}", hint="each task of a context has its own name")
    if spec.together and len(tasks) > MOST_TOGETHER:
        raise BadInput(f"{len(tasks)} tasks placed together; at most {MOST_TOGETHER} are allowed")
    if spec.together and any(task.needs for task in tasks):
        raise BadInput("tasks placed together cannot need each other", hint="let them wait at a checkpoint or a latch")
    _check_needs(tasks, names | set(known or ()))
    return tasks


def _filled(task: TaskSpec, spec: ContextSpec, number: int) -> TaskSpec:
    own: dict[str, Any] = msgspec.to_builtins(task)
    own.pop("template", None)
    base: dict[str, Any] = {}
    if task.template:
        if task.template not in spec.templates:
            raise BadInput(f"there is no template {task.template!r}", hint=f"there are: {', '.join(spec.templates)}")
        base = msgspec.to_builtins(spec.templates[task.template])
    joined = {field: {**base.get(field, {}), **own.get(field, {})} for field in _JOINED}
    joined["properties"] = {**spec.properties, **joined["properties"]}
    merged = {**base, **own, **joined}
    if merged.get("kind", "command") != "command" and merged.get("source"):
        merged["holder"] = True  # what Skep itself does with a source, it does with its mirror
    merged["name"] = merged.get("name") or f"task-{number}"
    return _checked(msgspec.convert(merged, TaskSpec))


def _checked(task: TaskSpec) -> TaskSpec:
    if not _NAME.fullmatch(task.name):
        raise BadInput(f"{task.name[:80]!r} is no name for a task", hint="letters, digits, spaces and . : / + @ -")
    if task.kind == "command" and not task.package and not (task.argv and task.argv[0]):
        raise BadInput(
            f"task {task.name!r} says nothing to run", hint="give argv, a package, or the kind of a built-in task"
        )
    if task.package.count("/") != 2 and (task.package or task.command):
        raise BadInput(f"task {task.name!r}: {task.package!r} is no package", hint="GROUP/NAME/VERSION")
    if task.kind != "command" and (task.argv or task.package):
        raise BadInput(f"task {task.name!r} of kind {task.kind!r} takes no argv", hint="give arguments instead")
    if any("\0" in word for word in (*task.argv, *task.environment, *task.environment.values())):
        raise BadInput(f"task {task.name!r}: a zero byte cannot be passed to a program")
    for pattern in task.results:
        if not pattern or pattern.startswith("/") or ".." in pattern.split("/"):
            raise BadInput(f"task {task.name!r}: {pattern!r} is no pattern of files in its folder")
    if not 0 <= task.retries <= _MOST_RETRIES:
        raise BadInput(f"task {task.name!r}: {task.retries} retries; 0 to {_MOST_RETRIES} are allowed")
    _check_lost_workers(task)
    if not 0 <= task.backoff <= _LONGEST or not (task.timeout is None or 0 < task.timeout <= _LONGEST):
        raise BadInput(f"task {task.name!r}: backoff and timeout are positive numbers of seconds, at most {_LONGEST}")
    if abs(task.priority) > _HIGHEST:
        raise BadInput(f"task {task.name!r}: priority {task.priority}; -{_HIGHEST} to {_HIGHEST} are allowed")
    if len({need.task for need in task.needs}) < len(task.needs):
        raise BadInput(f"task {task.name!r} needs the same task twice")
    if task.holder and not task.source:
        raise BadInput(f"task {task.name!r} wants the holder of a source but names none", hint="give its source")
    parse(task.selector)
    return task


def _check_lost_workers(task: TaskSpec) -> None:
    lost = task.lost_worker_retries or 0
    if not 0 <= lost <= _MOST_RETRIES:
        raise BadInput(f"task {task.name!r}: lost_worker_retries is {lost}; 0 to {_MOST_RETRIES} are allowed")
    if task.at_most_once and (task.retries or lost):
        field, value = ("retries", task.retries) if task.retries else ("lost_worker_retries", lost)
        raise BadInput(
            f"task {task.name!r} may run at most once, but {field} is {value}",
            hint=f"leave out {field}, or at_most_once",
        )


def _check_needs(tasks: Sequence[TaskSpec], names: set[str]) -> None:
    """Every need exists and none leads back to where it came from."""
    needs = {task.name: {need.task for need in task.needs} for task in tasks}
    for name, wanted in needs.items():
        if missing := wanted - names:
            raise BadInput(f"task {name!r} needs {min(missing)!r}, which is not in its context")
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        circle = sorted(set(error.args[1]))
        raise BadInput(f"tasks need each other in a circle: {', '.join(circle[:10])}") from None


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


# What a running task asks of its context: checkpoints, latches, state, more tasks. Kept in the space `context:ID`.
#
# A checkpoint is set once, a latch counts down to 0, a key of the state is whatever was set last. Only an attempt that
# is
# still the task's own may ask.

_ANY_TEXT, _ANY_COUNT = Typed("str"), Typed("int")
_OWN = f"SELECT context, spec FROM task WHERE id = :id AND attempt = :attempt AND worker = :worker AND {ACTIVE_SQL}"  # noqa: S608


class Calls:
    def __init__(self, db: Database, spaces: Spaces, contexts: Contexts) -> None:
        self._db = db
        self._spaces = spaces
        self._contexts = contexts

    async def answer(self, member: str, call: Call) -> dict[str, Any]:
        context = await self._context(member, call)
        space = space_of(context)
        match call.verb:
            case "checkpoint.set":
                await self._db.write(lambda tx: _set_once(tx, space, call.name, _packed(call)))
                return {}
            case "checkpoint.get":
                return await self._value(space, "checkpoint", call)
            case "state.set":
                fields = ("state", call.name, _packed(call))
                await self._spaces.replace(SYSTEM, space, ("state", call.name, _ANY_TEXT), fields)
                return {}
            case "state.get":
                return await self._value(space, "state", call)
            case "latch.set":
                return {"count": await self._db.write(lambda tx: _set_latch(tx, space, call.name, _count(call)))}
            case "latch.down":
                return {"count": await self._db.write(lambda tx: _down(tx, space, call.name))}
            case "latch.get":
                return await self._latch(space, call)
            case "task.add":
                return {"id": (await self._contexts.add(SYSTEM, context, [_spec(call)]))[0]}
            case _:
                raise NotFound(f"a task cannot ask for {call.verb!r}")

    async def doing(self, member: str, task: str, attempt: int) -> TaskSpec:
        """What the member was given; of nothing else may it ask."""
        rows = await self._db.read(_OWN, id=task, attempt=attempt, worker=member)
        return spec_of(rows[0]) if rows else TaskSpec(kind="")

    async def is_part(self, member: str, context: str) -> bool:
        """It was given a task of this context, and has not ended it."""
        sql = f"SELECT id FROM task WHERE context = :context AND worker = :worker AND {ACTIVE_SQL} LIMIT 1"  # noqa: S608
        return bool(await self._db.read(sql, context=context, worker=member))

    async def _context(self, member: str, call: Call) -> str:
        rows = await self._db.read(_OWN, id=call.task, attempt=call.attempt, worker=member)
        over = Conflict(f"attempt {call.attempt} of task {call.task} is over", hint="another one may be running")
        return str(one_row(rows, over)["context"])

    async def _value(self, space: str, noun: str, call: Call) -> dict[str, Any]:
        found = await self._spaces.query(SYSTEM, space, (noun, call.name, _ANY_TEXT), wait=call.wait)
        return {"set": found is not None, "value": msgspec.json.decode(str(found.fields[2])) if found else None}

    async def _latch(self, space: str, call: Call) -> dict[str, Any]:
        if call.wait:
            await self._spaces.query(SYSTEM, space, ("latch", call.name, 0), wait=call.wait)
        found = await self._spaces.query(SYSTEM, space, ("latch", call.name, _ANY_COUNT))
        return {"count": found.fields[2] if found else None}


async def _set_once(tx: Tx, space: str, name: str, value: str) -> None:
    await batch.numbers(tx, space, 0)  # two at once must not both find nothing
    found = await batch.first(tx, space, ("checkpoint", name, _ANY_TEXT))
    if found is None:
        await batch.put(tx, space, ("checkpoint", name, value))
    elif found.fields[2] != value:
        raise Conflict(f"checkpoint {name!r} is set already, to something else", hint="a checkpoint is set once")


async def _set_latch(tx: Tx, space: str, name: str, count: int) -> int:
    await batch.replace(tx, space, ("latch", name, _ANY_COUNT), ("latch", name, count))
    return count


async def _down(tx: Tx, space: str, name: str) -> int:
    await batch.numbers(tx, space, 0)
    found = await batch.first(tx, space, ("latch", name, _ANY_COUNT))
    if found is None:
        raise Conflict(f"latch {name!r} was never set", hint="set its count first")
    return await _set_latch(tx, space, name, max(0, int(found.fields[2]) - 1))


def _packed(call: Call) -> str:
    if not isinstance(call.value, dict) or "value" not in call.value:
        raise BadInput('the body should be {"value": …}')
    return msgspec.json.encode(call.value["value"]).decode()


def _count(call: Call) -> int:
    count = call.value.get("count") if isinstance(call.value, dict) else None
    if type(count) is not int or not 0 <= count < 2**31:
        raise BadInput('the body should be {"count": N}, N being 0 or more')
    return count


def _spec(call: Call) -> TaskSpec:
    try:
        return msgspec.convert(call.value, TaskSpec)
    except msgspec.ValidationError as error:
        raise BadInput(f"this is no task: {error}", hint="docs/tasks.md lists the fields") from None
