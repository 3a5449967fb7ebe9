"""Tasks: where each stands and why, its output, and the wish to end it."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from typing import Any, Literal, get_args

import msgspec
from msgspec.structs import asdict

from skep.access.audit import note
from skep.base.answers import Page, TaskLoad, WorkerMatch, WorkerView
from skep.base.caller import Caller
from skep.base.clock import Clock
from skep.base.errors import BadInput, Conflict, NotFound
from skep.fleet.events import DOWN, UNSTABLE_SECONDS
from skep.fleet.members import Fleet
from skep.storage.blobs import Blobs
from skep.storage.database import Database, Row, Tx, Value, inserting, one_row, struct_of
from skep.tasks.model import Chunk, Stream, Task, TaskState, TaskView
from skep.tasks.placement import Class, able
from skep.tasks.placer import facts_of, worker_of
from skep.tasks.selector import parse
from skep.tasks.transitions import (
    ACTIVE_SQL,
    ENDED,
    TASK_COLUMNS,
    TASK_VISIBLE_SQL,
    UNENDED_SQL,
    WORK,
    context_channel,
    moves_of,
    spec_of,
    task_of,
)

# Output of attempts that are over: one blob for each instead of rows, kept until their context expires.

_EVERY_SECONDS = 10.0
#: unless somebody else was faster
_ARCHIVE = """
    INSERT INTO archive (task, attempt, blob) VALUES (:task, :attempt, :blob)
    ON CONFLICT (task, attempt) DO UPDATE SET blob = excluded.blob WHERE archive.blob = :before RETURNING blob
"""
_decode = msgspec.msgpack.Decoder(list[Chunk]).decode


async def keep(db: Database, blobs: Blobs) -> None:
    """For ever."""
    while True:
        while await archive_once(db, blobs) or await forget_once(db, blobs):
            continue
        await asyncio.sleep(_EVERY_SECONDS)


async def archive_once(db: Database, blobs: Blobs) -> bool:
    """One attempt; False when none is left. The blob is durable before the rows go. What a task that was given up
    writes while it is being stopped comes after that, and is put to the rest."""
    rows = await db.read(
        "SELECT output.task, output.attempt, task.context, archive.blob FROM output JOIN task ON task.id = output.task "
        "LEFT JOIN archive ON archive.task = output.task AND archive.attempt = output.attempt "
        "WHERE task.ended_at IS NOT NULL OR output.attempt < task.attempt LIMIT 1"
    )
    if not rows:
        return False
    before = rows[0]["blob"] or ""
    own: dict[str, Value] = {"task": rows[0]["task"], "attempt": rows[0]["attempt"]}
    pieces = await db.read("SELECT * FROM output WHERE task = :task AND attempt = :attempt ORDER BY n", **own)
    chunks = [chunk_of(row, rows[0]["context"]) for row in pieces]
    whole = joined(await load(db, blobs, rows[0]["task"], rows[0]["attempt"]) if before else [], chunks)
    blob = (await blobs.put(_once(msgspec.msgpack.encode(whole)))).id
    read: list[dict[str, Value]] = [{**own, "n": chunk.n} for chunk in chunks]

    async def work(tx: Tx) -> bool:
        done = bool(await tx.rows(_ARCHIVE, **own, blob=blob, before=before))
        if done:
            await tx.many("DELETE FROM output WHERE task = :task AND attempt = :attempt AND n = :n", read)
        return done

    if await db.write(work) and before not in ("", blob):
        await blobs.delete(before)
    return True


def joined(kept: Iterable[Chunk], written: Iterable[Chunk]) -> list[Chunk]:
    """Each piece once, in their order."""
    pieces = {chunk.n: chunk for chunk in (*kept, *written)}
    return [pieces[n] for n in sorted(pieces)]


def chunk_of(row: Row, context: str) -> Chunk:
    return struct_of(Chunk, row, context=context, body=bytes(row["body"]))


async def load(db: Database, blobs: Blobs, task: str, attempt: int) -> list[Chunk]:
    """Everything the attempt wrote, if it was archived."""
    sql = "SELECT blob FROM archive WHERE task = :task AND attempt = :attempt"
    missed = ""
    while (rows := await db.read(sql, task=task, attempt=attempt)) and rows[0]["blob"] != missed:
        try:
            return _decode(b"".join([piece async for piece in blobs.open(rows[0]["blob"])]))
        except NotFound:
            missed = rows[0]["blob"]  # another may have come in its place
    return []


async def forget_once(db: Database, blobs: Blobs) -> bool:
    """The output of one task that was removed."""
    rows = await db.read(
        "SELECT task, attempt, blob FROM archive WHERE NOT EXISTS (SELECT 1 FROM task WHERE task.id = archive.task) "
        "LIMIT 1"
    )
    if not rows:
        return False
    row = rows[0]
    await blobs.delete(row["blob"])
    await db.write(
        lambda tx: tx.rows(
            "DELETE FROM archive WHERE task = :task AND attempt = :attempt", task=row["task"], attempt=row["attempt"]
        )
    )
    return True


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


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
        found = [chunk_of(row, task.context) for row in rows]
        kept = await load(self._db, self._blobs, id, attempt)  # afterwards: of what goes there none is missed
        found = joined((one for one in kept if one.n > after and stream in (None, one.stream)), found)
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


# Workers as people who write tasks see them: what each offers and runs, and which of them a selector chooses.

#: tasks shown with their worker
_SHOWN = 100
_MINUTE = 60.0


class Workers:
    def __init__(self, db: Database, clock: Clock, fleet: Fleet) -> None:
        self._db = db
        self._clock = clock
        self._fleet = fleet

    async def select(self, caller: Caller, selector: str) -> list[WorkerMatch]:
        """BadInput points at the place where the selector cannot be read."""
        caller.need("read")
        wanted = parse(selector)
        holders = {source: await self._holder(caller, source) for source in wanted.held}
        matches = []
        running = await self._running()
        for member, offer in await self._fleet.workers():
            holds = frozenset(source for source, holder in holders.items() if holder == member.id)
            reason = wanted.refusal({**facts_of(member.id, offer, holds), "tasks": float(running[member.id])})
            if member.state != "alive":
                silent = "it is silent, and in its grace" if member.state == "grace" else f"it is {member.state}"
                reason = silent + (f"; {reason}" if reason else "")
            matches.append(WorkerMatch(member.id, not reason, reason))
        return matches

    async def load(self, caller: Caller, label: str = "") -> TaskLoad:
        """What there is for workers with this label to do, as far as those that were ever there tell what they can."""
        caller.need("read")
        known = [one for one in await self._fleet.workers() if not label or label in one[1].labels]
        # to a worker that mirrors any source may come, and with it what only its holder does
        workers = [worker_of(one.id, offer, frozenset({""} if offer.mirror else ())) for one, offer in known]
        rows = await self._db.read(
            "SELECT task_class.kind, selector, holder, count(*) AS n FROM task "
            "JOIN task_class ON task_class.id = task.class WHERE state = 'WAITING' AND needs_left = 0 "
            "GROUP BY task_class.kind, selector, holder"
        )
        ready = [row["n"] for row in rows if not workers or able(_alike(row), workers)]
        since = self._clock.now() - _MINUTE
        ended = "SELECT COALESCE(sum(tasks), 0) AS n FROM context WHERE ended_at > :since"
        (done,) = await self._db.read(ended, since=since)
        running = await self._running()
        return TaskLoad(sum(ready), sum(running[worker.id] for worker in workers), int(done["n"]))

    async def _running(self) -> Counter[str]:
        rows = await self._db.read(
            f"SELECT worker, count(*) AS n FROM task WHERE {ACTIVE_SQL} GROUP BY worker"  # noqa: S608
        )
        return Counter({row["worker"]: int(row["n"]) for row in rows})

    async def _holder(self, caller: Caller, source: str) -> str | None:
        """By id or name; whoever may not see a source does not learn that it is there."""
        rows = await self._db.read(
            "SELECT holding.member, source.visibility FROM holding JOIN source ON source.id = holding.source "
            "WHERE source.id = :source OR source.name = :source",
            source=source,
        )
        return rows[0]["member"] if rows and caller.sees(rows[0]["visibility"]) else None

    async def drain(self, caller: Caller, worker: str, *, on: bool = True) -> None:
        """Empty it, so that it can be stopped for good; or with `on=False` do not."""
        caller.need("admin")
        await self._fleet.drain(worker, on=on, by=caller)

    async def forget(self, caller: Caller, worker: str) -> None:
        caller.need("admin")
        await self._fleet.forget(worker, by=caller)

    async def list(self, caller: Caller) -> list[WorkerView]:
        caller.need("read")
        views = []
        more = {
            row["id"]: row
            for row in await self._db.read(
                "SELECT id, draining, (SELECT count(*) FROM holding WHERE holding.member = member.id) AS holds, "
                "(SELECT count(*) FROM source_replica WHERE source_replica.member = member.id) AS replicas, "
                "(SELECT count(*) FROM member_event WHERE member = id AND what = :down AND at > :since) AS downs "
                "FROM member WHERE role = 'worker'",
                down=DOWN,
                since=self._clock.now() - UNSTABLE_SECONDS,
            )
        }
        for member, offer in await self._fleet.workers():
            rows = await self._db.read(
                f"SELECT {TASK_COLUMNS} FROM task_seen WHERE worker = :worker AND {ACTIVE_SQL} "  # noqa: S608
                f"AND {TASK_VISIBLE_SQL} ORDER BY id LIMIT :most",
                worker=member.id,
                private=int(caller.sees("private")),
                most=_SHOWN,
            )
            row = more.get(member.id, {"holds": 0, "draining": 0, "replicas": 0, "downs": 0})
            running, counts = [task_of(one) for one in rows], (row["replicas"], row["downs"])
            views.append(WorkerView(member, offer, running, row["holds"], bool(row["draining"]), *counts))
        return views


def _alike(row: Row) -> Class:
    """Waiting tasks, as far as it matters who may do them."""
    return Class(0, row["kind"], row["selector"], "", bool(row["holder"]), "none", "", False, 0)
