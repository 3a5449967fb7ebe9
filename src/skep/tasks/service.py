"""Tasks: where each stands and why, its output, and the wish to end it."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Literal, get_args

import msgspec
from msgspec.structs import asdict

from skep.access.audit import note
from skep.clock import Clock
from skep.engines.blobs.base import Blobs
from skep.engines.db.base import Database, Tx, inserting, one_row
from skep.errors import BadInput, Conflict, NotFound
from skep.model.answers import Page
from skep.model.caller import Caller
from skep.model.task import Chunk, Stream, Task, TaskState, TaskView
from skep.tasks import archive
from skep.tasks.moves import WORK, context_channel
from skep.tasks.states import ENDED
from skep.tasks.tables import TASK_COLUMNS, TASK_VISIBLE_SQL, UNENDED_SQL, moves_of, spec_of, task_of

_CHUNKS = 256
_HIDDEN = "(hidden)"
_NAP = 30.0
_OUTPUT = ("task", "attempt", "n", "stream", "at", "body")
_WRITE = inserting("output", _OUTPUT, "ON CONFLICT (task, attempt, n) DO NOTHING")


class Tasks:
    def __init__(self, db: Database, clock: Clock, blobs: Blobs) -> None:
        self._db = db
        self._blobs = blobs
        self._clock = clock

    async def show(self, caller: Caller, id: str) -> TaskView:
        """Values of its environment only to those who could have given them."""
        caller.need("read")
        task = await self._task(caller, id)
        rows = await self._db.read("SELECT spec, moves, result FROM task WHERE id = :id", id=id)
        row = one_row(rows, _unknown(id))
        spec, result = spec_of(row), row["result"]
        if not caller.may("write"):
            spec = msgspec.structs.replace(spec, environment=dict.fromkeys(spec.environment, _HIDDEN))
        return TaskView(task, spec, moves_of(row["moves"]), None if result is None else msgspec.json.decode(result))

    async def results(self, context: str) -> dict[str, Any]:
        """What the tasks of a context answered, by name."""
        rows = await self._db.read(
            "SELECT name, result FROM task WHERE context = :id AND result IS NOT NULL ORDER BY id LIMIT 1000",
            id=context,
        )
        return {row["name"]: msgspec.json.decode(row["result"]) for row in rows}

    async def cancel(self, caller: Caller, id: str, reason: str = "") -> Task:
        """Answers once it has ended, which is soon: what runs is told to stop, and is no longer waited for."""
        caller.need("write")
        task = await self._task(caller, id)
        if task.state in ENDED:
            raise Conflict(f"task {id} is {task.state} already")

        async def work(tx: Tx) -> None:
            by = f"{caller.subject}: {reason}" if reason else caller.subject
            await tx.rows(f"UPDATE task SET abort_by = :by WHERE id = :id AND {UNENDED_SQL}", by=by, id=id)  # noqa: S608
            tx.ring(WORK)
            await note(tx, self._clock.now(), caller, "task.cancel", id)

        async with self._db.listen(context_channel(task.context)) as bell:
            await self._db.write(work)
            until = self._clock.now() + _NAP
            while (task := await self._task(caller, id)).state not in ENDED and self._clock.now() < until:
                await bell.wait(1.0)
        return task

    async def write(self, chunks: Sequence[Chunk], member: str = "") -> None:
        """Output of running tasks; a repeat is known by its number. A worker (`member`) tells only of what it runs."""

        async def work(tx: Tx) -> None:
            holds = {(one.task, one.attempt) for one in chunks}
            own = {hold for hold in holds if not member or await _has(tx, *hold, member)}
            await tx.many(_WRITE, [asdict(chunk) for chunk in chunks if (chunk.task, chunk.attempt) in own])
            for context in {chunk.context for chunk in chunks}:
                tx.ring(context_channel(context))

        await self._db.write(work, runtime=True)

    async def output(
        self,
        caller: Caller,
        id: str,
        *,
        after: int = -1,
        attempt: int | None = None,
        stream: Stream | None = None,
        newest: bool = False,
    ) -> list[Chunk]:
        """Pieces of the newest attempt (or another one) beyond number `after`, oldest first. A bounded number: the
        first of them, or the `newest`."""
        caller.need("read")
        task = await self._task(caller, id)
        attempt = task.attempt if attempt is None else attempt
        rows = await self._db.read(
            "SELECT * FROM output WHERE task = :task AND attempt = :attempt AND n > :after "  # noqa: S608
            f"AND (:stream = '' OR stream = :stream) ORDER BY n {'DESC' if newest else 'ASC'} LIMIT :limit",
            task=id,
            attempt=attempt,
            after=after,
            stream=stream or "",
            limit=_CHUNKS,
        )
        found = [archive.chunk_of(row, task.context) for row in rows]
        kept = await archive.load(self._db, self._blobs, id, attempt)  # afterwards: of what goes there none is missed
        found = archive.joined((one for one in kept if one.n > after and stream in (None, one.stream)), found)
        return found[-_CHUNKS:] if newest else found[:_CHUNKS]

    async def follow(
        self, caller: Caller, id: str, *, attempt: int = -1, after: int = -1
    ) -> AsyncGenerator[Chunk, None]:
        """Everything the task writes beyond `after` of `attempt`, until it has ended and all is told. A new attempt
        begins anew."""
        caller.need("read")
        async with self._db.listen(context_channel((await self._task(caller, id)).context)) as bell:
            while True:
                task = await self._task(caller, id)
                if task.attempt != attempt:
                    attempt, after = task.attempt, -1
                chunks = await self.output(caller, id, after=after, attempt=attempt)
                for chunk in chunks:
                    after = chunk.n
                    yield chunk
                if not chunks:
                    if task.state in ENDED:
                        return
                    await bell.wait(_NAP)

    async def _task(self, caller: Caller, id: str) -> Task:
        rows = await self._db.read(
            f"SELECT {TASK_COLUMNS} FROM task_seen WHERE id = :id AND {TASK_VISIBLE_SQL}",  # noqa: S608
            id=id,
            private=int(caller.sees("private")),
        )
        return task_of(one_row(rows, _unknown(id)))

    async def list(
        self, caller: Caller, *, state: TaskState | Literal[""] = "", worker: str = "", page: str = "", limit: int = 100
    ) -> Page[Task]:
        """The newest first."""
        caller.need("read")
        rows = await self._db.read(
            f"SELECT {TASK_COLUMNS} FROM task_seen WHERE (:page = '' OR id < :page) AND {TASK_VISIBLE_SQL} "  # noqa: S608
            f"AND {_in_state(state)} AND (:worker = '' OR worker = :worker) ORDER BY id DESC LIMIT :limit",
            page=page,
            worker=worker,
            private=int(caller.sees("private")),
            limit=limit + 1,
        )
        items = [task_of(row) for row in rows[:limit]]
        return Page(items, items[-1].id if len(rows) > limit else "")


def _in_state(state: TaskState | Literal[""]) -> str:
    """In the words of an index, so that rare ones are found among many."""
    if not state:
        return "1 = 1"
    if state not in get_args(TaskState):
        raise BadInput(f"{state!r} is no state of a task", hint=f"there are: {', '.join(get_args(TaskState))}")
    return f"state = '{state}'" if state in ENDED else f"state = '{state}' AND ended_at IS NULL"


async def _has(tx: Tx, task: str, attempt: int, member: str) -> bool:
    sql = "SELECT id FROM task WHERE id = :id AND attempt = :attempt AND worker = :worker"
    return bool(await tx.rows(sql, id=task, attempt=attempt, worker=member))


def _unknown(id: str) -> NotFound:
    return NotFound(f"there is no task {id!r}", hint="`skep task list` shows those there are")
