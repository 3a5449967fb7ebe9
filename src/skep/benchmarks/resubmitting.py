"""Generators that were never begun, or have ended: the message ResubmitBenchmark."""

from functools import partial

from skep.benchmarks.tables import benchmark_of, channel, spec_of
from skep.clock import Clock
from skep.engines.db.base import Database, Tx, Value, update
from skep.errors import NotFound
from skep.model.caller import SYSTEM
from skep.model.ids import new_id
from skep.model.task import ContextSpec, TaskSpec
from skep.sources.service import Sources
from skep.tasks.compose import compose
from skep.tasks.moves import WORK
from skep.tasks.owners import Owners
from skep.tasks.storing import create
from skep.tasks.tables import GENERATORLESS_SQL

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
