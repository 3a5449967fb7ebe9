"""Benchmarks: which there are, and what people want of them. What generates their contexts is in `generating`."""

from collections.abc import Sequence

import msgspec

from skep.access.audit import note
from skep.benchmarks.checking import check
from skep.benchmarks.tables import STEPS, benchmark_of, channel, step_of
from skep.clock import Clock
from skep.engines.db.base import Database, Row, Tx, Value, insert, one_row, update
from skep.errors import BadInput, Conflict, NotAllowed, NotFound
from skep.model.answers import Page
from skep.model.benchmark import Benchmark, BenchmarkSpec, BenchmarkState, Step, Want
from skep.model.caller import SYSTEM, Caller
from skep.model.ids import new_id
from skep.sources.service import Sources
from skep.tasks.contexts import abort_context
from skep.tasks.moves import WORK
from skep.tasks.tables import bucket_of

MOST_BENCHMARKS = 1_000
_MOST_WANTS = 100
#: as of tasks: what is about a private source is not for everybody
_VISIBLE = (
    "(:private = 1 OR EXISTS (SELECT 1 FROM source WHERE source.id = benchmark.source AND visibility = 'public'))"
)
#: a benchmark before anything was done for it
_NEW: dict[str, Value] = {
    "state": "running",
    "reason": "",
    "generator": "",
    "recent": "",
    "saved": b"{}",
    "wants": b"[]",
}
_NEW |= dict.fromkeys(("resubmits", "resubmit_at", "contexts", "failed"), 0)
_wants = msgspec.json.Decoder(list[Want]).decode


class Benchmarks:
    def __init__(self, db: Database, clock: Clock, sources: Sources) -> None:
        self._db = db
        self._clock = clock
        self._sources = sources

    async def start(self, file: Sequence[BenchmarkSpec] = ()) -> None:
        """`file` are the benchmarks of `skep.toml`: those there are no longer go; their results stay."""
        await self._db.migrate("benchmarks", STEPS)
        specs = {spec.name: spec for spec in file}
        if len(specs) < len(file):
            raise BadInput("two benchmarks of skep.toml have the same name", hint=", ".join(sorted(specs)))
        for spec in file:
            check(spec)

        async def work(tx: Tx) -> None:
            known = {row["name"]: row for row in await tx.rows("SELECT * FROM benchmark FOR UPDATE")}
            for name, row in known.items():
                if row["origin"] == "file" and name not in specs:
                    await self._remove(tx, row)
            for name, spec in specs.items():
                if name not in known:
                    await self._insert(tx, spec, "", "file", True)
                elif benchmark_of(known[name]).spec != spec:
                    await update(
                        tx, "benchmark", "name", name=name, spec=msgspec.json.encode(spec), source="", origin="file"
                    )
                    await self._restart(tx, known[name], "running")

        await self._db.write(work)

    async def add(self, caller: Caller, spec: BenchmarkSpec) -> Benchmark:
        caller.need("write")
        check(spec)
        source = await self._sources.show(caller, spec.source)

        async def work(tx: Tx) -> None:
            if (await tx.rows("SELECT count(*) AS n FROM benchmark"))[0]["n"] >= MOST_BENCHMARKS:
                raise Conflict(f"there are {MOST_BENCHMARKS:,} benchmarks already", hint="remove some")
            if not await self._insert(tx, spec, source.id, "api", caller.sees("private")):
                raise Conflict(f"there is a benchmark {spec.name!r} already", hint="remove it, or choose another name")
            await note(tx, self._clock.now(), caller, "benchmark.add", spec.name)

        await self._db.write(work)
        return await self.show(caller, spec.name)

    async def show(self, caller: Caller, name: str) -> Benchmark:
        caller.need("read")
        return benchmark_of(await self._row(caller, name))

    async def switch(self, caller: Caller, name: str, state: BenchmarkState) -> Benchmark:
        """`paused`: what is being measured ends, and nothing begins. `running`: from where it stood."""
        caller.need("write")
        row = await self._row(caller, name)

        async def work(tx: Tx) -> None:
            await self._restart(tx, row, state, caller)
            await note(tx, self._clock.now(), caller, f"benchmark.{state}", name)

        await self._db.write(work)
        return await self.show(caller, name)

    async def want(self, caller: Caller, name: str, want: Want) -> Benchmark:
        """Measure what it would not measure by itself, or not yet."""
        caller.need("write")
        row = await self._row(caller, name)
        if benchmark_of(row).spec.code:
            raise BadInput(f"what {name!r} measures is said by its own code")
        if want.bisect and ".." not in want.revs:
            raise BadInput(f"{want.revs[:80]!r} is no range", hint="a bisect needs OLD..NEW")
        wish = msgspec.structs.replace(want, round=int(self._clock.now()) if want.again else 1)

        async def work(tx: Tx) -> None:
            locked = await tx.rows("SELECT state, wants FROM benchmark WHERE id = :id FOR UPDATE", id=row["id"])
            wants = _wants(locked[0]["wants"])
            if len(wants) >= _MOST_WANTS:
                raise Conflict(f"{len(wants)} wishes of {name!r} are waiting already", hint="wait for them")
            await update(tx, "benchmark", "id", id=row["id"], wants=msgspec.json.encode([*wants, wish]), reason="")
            if locked[0]["state"] != "running":
                await self._restart(tx, row, "running", caller)
            tx.ring(channel(row["id"]))
            await note(tx, self._clock.now(), caller, "benchmark.want", f"{name} {want.revs}")

        await self._db.write(work)
        return await self.show(caller, name)

    async def remove(self, caller: Caller, name: str) -> None:
        """What it measured stays."""
        caller.need("write")
        row = await self._row(caller, name)
        if row["origin"] == "file":
            raise NotAllowed(f"benchmark {name!r} comes from skep.toml", hint="remove it there and start Skep again")

        async def work(tx: Tx) -> None:
            await self._remove(tx, row)
            await note(tx, self._clock.now(), caller, "benchmark.remove", name)

        await self._db.write(work)

    async def steps(self, caller: Caller, name: str, *, limit: int = 100) -> list[Step]:
        """The newest commits first."""
        caller.need("read")
        row = await self._row(caller, name)
        rows = await self._db.read(
            "SELECT body, state FROM step WHERE benchmark = :id ORDER BY made_at DESC LIMIT :limit",
            id=row["id"],
            limit=limit,
        )
        return [step_of(one) for one in rows]

    async def _insert(self, tx: Tx, spec: BenchmarkSpec, source: str, origin: str, private: bool) -> bool:
        now = self._clock.now()
        id = new_id("bmk", now)
        given: dict[str, Value] = {"id": id, "name": spec.name, "source": source, "origin": origin, "created_at": now}
        given |= {"private": int(private), "spec": msgspec.json.encode(spec), "bucket": bucket_of(id)}
        tx.ring(WORK)
        return bool(await insert(tx, "benchmark", "ON CONFLICT (name) DO NOTHING RETURNING id", **given, **_NEW))

    async def _restart(self, tx: Tx, row: Row, state: BenchmarkState, caller: Caller = SYSTEM) -> None:
        """Its generator ends; while it is `running`, the dispatcher begins another one."""
        if row["generator"]:
            await abort_context(tx, row["generator"], caller, f"the benchmark is {state} again")
        anew: dict[str, Value] = {"reason": "", "generator": "", "resubmits": 0, "resubmit_at": 0, "recent": ""}
        await update(tx, "benchmark", "id", id=row["id"], state=state, **anew)
        tx.ring(WORK)

    async def _remove(self, tx: Tx, row: Row) -> None:
        await self._restart(tx, row, "paused")
        contexts = await tx.rows(
            "SELECT context FROM generated WHERE benchmark = :id AND state = 'RUNNING'", id=row["id"]
        )
        for one in contexts:
            await abort_context(tx, one["context"], SYSTEM, "the benchmark was removed")
        for table in ("step", "generated"):
            await tx.rows(f"DELETE FROM {table} WHERE benchmark = :id", id=row["id"])  # noqa: S608
        await tx.rows("DELETE FROM benchmark WHERE id = :id", id=row["id"])

    async def _row(self, caller: Caller, name: str) -> Row:
        rows = await self._db.read(
            f"SELECT * FROM benchmark WHERE name = :name AND {_VISIBLE}",  # noqa: S608
            name=name,
            private=int(caller.sees("private")),
        )
        missing = NotFound(f"there is no benchmark {name[:80]!r}", hint="`skep benchmark list` shows those there are")
        return one_row(rows, missing)

    async def list(self, caller: Caller, *, page: str = "", limit: int = 100) -> Page[Benchmark]:
        caller.need("read")
        rows = await self._db.read(
            f"SELECT * FROM benchmark WHERE name > :page AND {_VISIBLE} ORDER BY name LIMIT :limit",  # noqa: S608
            page=page,
            private=int(caller.sees("private")),
            limit=limit + 1,
        )
        items = [benchmark_of(row) for row in rows[:limit]]
        return Page(items, items[-1].spec.name if len(rows) > limit else "")
