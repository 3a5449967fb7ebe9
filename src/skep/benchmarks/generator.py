"""What generators are told and what they submit.

A generator is a task that lives as long as its benchmark. It keeps nothing: what it generated, what it saved and what
is wanted of it are rows here, and each context is stored with the state saved for the next turn. So wherever it is
killed, the next one goes on from there.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import msgspec

from skep.base.caller import SYSTEM, Caller
from skep.base.clock import Clock
from skep.base.errors import BadInput, Conflict, NotFound
from skep.base.ids import new_id
from skep.base.loops import racing
from skep.benchmarks.api import Commit, Generated, Span, Turn, Want
from skep.benchmarks.change_points import Finding
from skep.benchmarks.service import benchmark_of, channel, spec_of
from skep.sources.service import Sources
from skep.storage.database import Database, Row, Tx, Value, insert, one_row, update
from skep.tasks.contexts import compose
from skep.tasks.model import Call, ContextSpec, TaskSpec
from skep.tasks.placer import Owners
from skep.tasks.store import create
from skep.tasks.transitions import ACTIVE_SQL, GENERATORLESS_SQL, WORK, ended_channel
from skep.topics.service import CHANGES, Topics

# Generators that were never begun, or have ended: the message ResubmitBenchmark.

KIND = "benchmark"
#: how often in a row a generator that fails is begun again
MOST_RESUBMITS = 10
_LONGEST_PAUSE = 60.0
_MISSING_SECONDS = 30.0
_AT_ONCE = 100
_DUE = f"{GENERATORLESS_SQL} AND benchmark.resubmit_at <= :now"


class Resubmitting:
    def __init__(self, db: Database, clock: Clock, sources: Sources, owners: Owners) -> None:
        self._db = db
        self._clock = clock
        self._sources = sources
        self._owners = owners

    async def resubmit(self) -> bool:
        """The message ResubmitBenchmark: generators that were never begun, or have ended. True: there may be more."""
        rows = await self._db.read(
            f"SELECT id, source, spec FROM benchmark WHERE {_DUE} AND {self._owners.sql} LIMIT :most",  # noqa: S608
            now=self._clock.now(),
            most=_AT_ONCE,
        )
        for row in rows:
            source = row["source"] or await self._source(spec_of(bytes(row["spec"])).source)
            await self._db.write(partial(self._begin, id=row["id"], source=source))
        return len(rows) == _AT_ONCE

    async def _source(self, name: str) -> str:
        """Empty: there is none of this name yet."""
        try:
            return (await self._sources.show(SYSTEM, name)).id
        except NotFound:
            return ""

    async def _begin(self, tx: Tx, id: str, source: str) -> None:
        now = self._clock.now()
        rows = await tx.rows(f"SELECT * FROM benchmark WHERE id = :id AND {_DUE} FOR UPDATE", id=id, now=now)  # noqa: S608
        if not rows:
            return
        benchmark = benchmark_of(rows[0])
        spec, resubmits = benchmark.spec, benchmark.resubmits
        if not source:
            why = f"there is no source {spec.source!r} yet"
            await update(tx, "benchmark", "id", id=id, resubmit_at=now + _MISSING_SECONDS, reason=why)
            return
        last = await tx.rows("SELECT state, reason, worker FROM task WHERE context = :id", id=benchmark.generator)
        worker = ""
        if last:
            state, worker = last[0]["state"], last[0]["worker"]
            resubmits += 1
            if state == "FINISHED":
                await give_up(tx, id, "finished", benchmark.reason)
                return
            if state == "ABORTED":
                await give_up(tx, id, "paused", f"its generator was {last[0]['reason']}")
                return
            if not spec.resubmit or resubmits > MOST_RESUBMITS:
                await give_up(tx, id, "failed", f"its generator failed {resubmits} times: {last[0]['reason']}")
                return
        others = await tx.rows(
            "SELECT id FROM member WHERE role = 'worker' AND state = 'alive' AND id <> :worker LIMIT 1", worker=worker
        )
        # what its own code does may be the machine's fault; what we do needs the mirror
        elsewhere = f'id != "{worker}"' if worker and others and spec.code else ""
        task = TaskSpec("generate", KIND, source="" if spec.code else source, selector=elsewhere)
        context = ContextSpec(f"benchmark {spec.name}", (task,), properties={"skep.benchmark": spec.name})
        made = await create(
            tx, new_id("ctx", now), context, compose(context, internal=True), f"benchmark:{spec.name}", "", now
        )
        # the next one, should this fail as well
        again = now + min(_LONGEST_PAUSE, 2.0**resubmits - 1.0)
        # what the one before said of a wish; else it was why there is none
        reason = benchmark.reason if last else ""
        begun: dict[str, Value] = {"generator": made, "source": source, "resubmits": resubmits}
        await update(tx, "benchmark", "id", id=id, resubmit_at=again, reason=reason, **begun)


async def give_up(tx: Tx, id: str, state: str, reason: str) -> None:
    await update(tx, "benchmark", "id", id=id, state=state, reason=reason)
    tx.ring(channel(id))
    tx.ring(WORK)


_HOUR = 3600.0
_MOST_TASKS = 1000
#: contexts that a generator is told of, the newest
MOST = 10_000
_LARGEST_STATE = 100_000
#: a benchmark of whose newest contexts so many failed is given up
_RECENT, _LEAST_RECENT, _FAILING = 20, 10, 0.9
#: caller, source, NEW and OLD -> commits
History = Callable[[Caller, str, str, str], Awaitable[list[Commit]]]
_OWN = (
    "SELECT benchmark.* FROM task JOIN benchmark ON benchmark.generator = task.context WHERE task.id = :task "  # noqa: S608
    f"AND task.attempt = :attempt AND task.worker = :member AND task.{ACTIVE_SQL}"
)


class Generating:
    def __init__(
        self,
        db: Database,
        clock: Clock,
        topics: Topics,
        sources: Sources,
        finding: Finding,
        history: History,
    ) -> None:
        self._db = db
        self._clock = clock
        self._topics = topics
        self._sources = sources
        self._finding = finding
        self._history = history

    async def answer(self, member: str, call: Call) -> dict[str, Any]:
        """Of a generator; another attempt at it, or another task, is refused."""
        own: dict[str, Value] = {"task": call.task, "attempt": call.attempt, "member": member}
        rows = await self._db.read(_OWN, **own)
        gone = Conflict(f"attempt {call.attempt} of task {call.task} generates for no benchmark any more")
        row = one_row(rows, gone)
        body = call.value if isinstance(call.value, dict) else {}
        match call.name:
            case "next":
                await self._told(row, body)
                turn = await self._turn(row["id"], body.get("stamp", ""), call.wait)
                return msgspec.to_builtins(turn)  # type: ignore[no-any-return]
            case "submit":
                return {"context": await self._db.write(lambda tx: self._submit(tx, own, _generated(body)))}
            case "results":
                return {"results": await self._finding.results(row, body)}
            case "history":
                old, _, new = str(body.get("revs", "")).rpartition("..")
                return {"commits": msgspec.to_builtins(await self._history(SYSTEM, row["source"], new, old))}
            case _:
                raise NotFound(f"a generator cannot ask for {call.name!r}")

    async def _told(self, row: Row, body: dict[str, Any]) -> None:
        """Open steps that are as narrow as they get, ranges that may hold one, and wishes that are fulfilled."""
        await self._finding.tell(row, list(body.get("narrow", ())))
        said = [await self._finding.suspect(row, ref, old, new) for ref, old, new in body.get("bisect", ())]
        if fulfilled := body.get("fulfilled"):

            async def work(tx: Tx) -> None:
                found = await tx.rows("SELECT wants FROM benchmark WHERE id = :id FOR UPDATE", id=row["id"])
                # by what they are: after a disconnection this is told twice
                wants = msgspec.json.decode(found[0]["wants"]) if found else []
                await tx.rows(
                    "UPDATE benchmark SET wants = :wants, reason = COALESCE(NULLIF(:said, ''), reason) WHERE id = :id",
                    wants=msgspec.json.encode([want for want in wants if want not in fulfilled]),
                    said="; ".join(filter(None, said)),
                    id=row["id"],
                )

            await self._db.write(work)

    async def _turn(self, id: str, stamp: str, wait: float) -> Turn:
        """As soon as it is another one than that with `stamp`, or `wait` is over."""
        until = self._clock.now() + wait
        while True:
            async with AsyncExitStack() as stack:
                bells = [await stack.enter_async_context(self._db.listen(channel(id)))]
                bells.append(await stack.enter_async_context(self._topics.listen(CHANGES)))
                for row in await self._running(id):
                    bells.append(await stack.enter_async_context(self._db.listen(ended_channel(row["context"]))))
                await self._settle(id)
                turn = await self._look(id)
                left = until - self._clock.now()
                if turn.stamp != stamp or left <= 0:
                    return turn
                async with racing(*(bell.wait(left) for bell in bells)):
                    continue

    async def _running(self, id: str) -> list[Row]:
        return await self._db.read(
            "SELECT generated.key, generated.context, COALESCE(context.state, 'FAILED') AS state FROM generated "
            "LEFT JOIN context ON context.id = generated.context "
            "WHERE generated.benchmark = :id AND generated.state = 'RUNNING'",
            id=id,
        )

    async def _settle(self, id: str) -> None:
        """Contexts that have ended: first steps are looked for, so that a kill between both does no harm."""
        ended = [row for row in await self._running(id) if row["state"] != "RUNNING"]
        if not ended:
            return
        await self._finding.look(await self._row(id))

        async def work(tx: Tx) -> None:
            found = await tx.rows("SELECT recent, failed FROM benchmark WHERE id = :id FOR UPDATE", id=id)
            recent, failed = str(found[0]["recent"]), int(found[0]["failed"])
            for one in ended:
                moved = await tx.rows(
                    "UPDATE generated SET state = :state WHERE benchmark = :id AND key = :key AND state = 'RUNNING' "
                    "RETURNING key",
                    state=one["state"],
                    id=id,
                    key=one["key"],
                )
                if moved:
                    recent += "x" if one["state"] == "FAILED" else "."
                    failed += one["state"] == "FAILED"
            recent = recent[-_RECENT:]
            good = "resubmits = 0, " if "." in recent else ""
            await tx.rows(
                f"UPDATE benchmark SET {good}recent = :recent, failed = :failed WHERE id = :id",  # noqa: S608
                recent=recent,
                failed=failed,
                id=id,
            )
            if len(recent) >= _LEAST_RECENT and recent.count("x") >= _FAILING * len(recent):
                newest = ended[-1]["context"]
                why = f"{recent.count('x')} of its last {len(recent)} contexts failed; the newest is {newest}"
                await give_up(tx, id, "failed", why)

        await self._db.write(work)

    async def _row(self, id: str) -> Row:
        rows = await self._db.read("SELECT * FROM benchmark WHERE id = :id", id=id)
        return one_row(rows, NotFound(f"the benchmark {id} was removed"))

    async def _look(self, id: str) -> Turn:
        row = await self._row(id)
        if row["state"] != "running":
            raise Conflict(f"the benchmark is {row['state']}: {row['reason']}")
        generated = await self._db.read(
            "SELECT key, state, at FROM generated WHERE benchmark = :id ORDER BY at DESC LIMIT :most", id=id, most=MOST
        )
        spec, now = spec_of(bytes(row["spec"])), self._clock.now()
        source = await self._sources.show(SYSTEM, row["source"])
        tips = {ref: await self._tip(row["source"], ref) for ref in spec.refs or (source.default_branch,)}
        spans = await self._finding.open(id)
        turn = Turn(
            spec.name,
            spec,
            row["source"],
            msgspec.json.decode(row["saved"]),
            sum(one["state"] == "RUNNING" for one in generated) < spec.parallel
            and sum(one["at"] > now - _HOUR for one in generated) < spec.per_hour,
            {one["key"]: one["state"] for one in generated},
            row["resubmits"],
            {ref: tip for ref, tip in tips.items() if tip},
            source.default_branch,
            tuple(Span(step.id, step.ref, step.previous, step.commit) for step in spans),
            msgspec.json.decode(row["wants"], type=tuple[Want, ...]),
        )
        return turn.stamped()

    async def _tip(self, source: str, ref: str) -> str:
        rows = await self._db.read(
            "SELECT version FROM entry WHERE source = :source AND name = :name", source=source, name=f"refs/heads/{ref}"
        )
        return str(rows[0]["version"] or "") if rows else ""

    async def _submit(self, tx: Tx, own: dict[str, Value], asked: Generated) -> str:
        """One transaction: the context, its key, and what the generator saved. A repeat is the same context."""
        rows = await tx.rows(f"{_OWN} FOR UPDATE", **own)
        if not rows or rows[0]["state"] != "running":
            raise Conflict("another generator has taken over, or the benchmark was stopped")
        row, now = rows[0], self._clock.now()
        known = await tx.rows(
            "SELECT context FROM generated WHERE benchmark = :id AND key = :key", id=row["id"], key=asked.key
        )
        if known:
            return str(known[0]["context"])
        given = {**asked.spec.properties, "skep.benchmark": row["name"], "skep.source": row["source"]}
        spec = msgspec.structs.replace(asked.spec, properties=given)
        tasks, once = compose(spec), f"benchmark:{row['id']}:{asked.key}"
        id = await create(tx, new_id("ctx", now), spec, tasks, f"benchmark:{row['name']}", once, now)
        await insert(tx, "generated", benchmark=row["id"], key=asked.key, context=id, state="RUNNING", at=now)
        await tx.rows(
            "UPDATE benchmark SET contexts = contexts + 1, saved = :saved WHERE id = :id",
            saved=msgspec.json.encode(asked.state),
            id=row["id"],
        )
        return id


def _generated(body: dict[str, Any]) -> Generated:
    try:
        asked = msgspec.convert(body, Generated)
    except msgspec.ValidationError as error:
        raise BadInput(
            f"this is no context: {error}", hint="docs/benchmarks.md shows what a generator submits"
        ) from None
    if not 0 < len(asked.key) <= 500 or len(asked.spec.tasks) > _MOST_TASKS:
        raise BadInput(f"a context has a key of 1 to 500 characters and at most {_MOST_TASKS:,} tasks")
    if len(msgspec.json.encode(asked.state)) > _LARGEST_STATE:
        raise BadInput(f"the state of a generator may have {_LARGEST_STATE:,} bytes", hint="results hold more")
    return asked
