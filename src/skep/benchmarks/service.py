"""Benchmarks: which there are, and what people want of them. What generates their contexts is in `generating`."""

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from urllib.parse import urlsplit

import msgspec

from skep.access.audit import note
from skep.base.answers import Page
from skep.base.caller import SYSTEM, Caller
from skep.base.clock import Clock
from skep.base.errors import BadInput, Conflict, NotAllowed, NotFound, TooLarge
from skep.base.globs import compile_globs
from skep.base.ids import new_id
from skep.benchmarks.api import Benchmark, BenchmarkSpec, BenchmarkState, Step, Want
from skep.sources.service import Sources
from skep.storage.database import Database, Row, Tx, Value, insert, one_row, struct_of, update
from skep.tasks.contexts import abort_context
from skep.tasks.selector import parse
from skep.tasks.transitions import WORK, bucket_of

# What may be wrong with a benchmark is said when it is made. Pure.

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_LARGEST = 100_000
MOST_VARIANTS = 64
#: field -> least and most
_BOUNDS: dict[str, tuple[float, float]] = {
    "points": (0, 9_000),
    "repetitions": (1, 1000),
    "warmup": (0, 100),
    "timeout": (1, 10**7),
    "parallel": (1, 100),
    "per_hour": (1, 9_000),
    "least": (0, 10),
}


def check(spec: BenchmarkSpec) -> None:
    if not _NAME.fullmatch(spec.name):
        raise BadInput(f"{spec.name[:80]!r} is no name for a benchmark", hint="small letters, digits, and . _ - inside")
    if len(msgspec.json.encode(spec)) > _LARGEST:
        raise TooLarge(f"benchmark {spec.name!r} has more than {_LARGEST:,} bytes")
    if bool(spec.command or spec.package) == bool(spec.code):
        raise BadInput(f"benchmark {spec.name!r} needs a command, a package or code", hint="see docs/benchmarks.md")
    if any("\0" in word or not word for word in (*spec.command, *spec.build)):
        raise BadInput(f"benchmark {spec.name!r}: a word of its commands is empty or has a zero byte")
    if (spec.mode == "range") != bool(spec.range) or (spec.range and not all(ends(spec.range))):
        raise BadInput(
            f"benchmark {spec.name!r}: mode range needs a range, and no other does", hint="such as v1.0..main"
        )
    for name, (least, most) in _BOUNDS.items():
        value = getattr(spec, name)
        if not (math.isfinite(value) and least <= value <= most):
            raise BadInput(f"benchmark {spec.name!r}: {name} = {value}; {least:g} to {most:g} are allowed")
    if math.prod(map(len, spec.matrix.values())) not in range(1, MOST_VARIANTS + 1):
        raise BadInput(f"benchmark {spec.name!r}: its matrix has no or more than {MOST_VARIANTS} combinations")
    for variable in (*spec.matrix, *spec.environment):
        if not _VARIABLE.fullmatch(variable) or variable.startswith("SKEP_"):
            raise BadInput(f"{variable[:80]!r} is no variable to be set", hint="letters, digits and _; not SKEP_…")
    if spec.webhook and urlsplit(spec.webhook).scheme not in ("http", "https"):
        raise BadInput(f"webhook {spec.webhook[:80]!r} is no http or https URL")
    if spec.metrics:
        compile_globs(spec.metrics, "metrics")
    parse(spec.selector)


def ends(range: str) -> tuple[str, str]:
    """OLD and NEW of `OLD..NEW`."""
    old, _, new = range.partition("..")
    return old, new


def variants(spec: BenchmarkSpec) -> list[dict[str, str]]:
    """Every combination of the matrix."""
    return [dict(zip(spec.matrix, values, strict=True)) for values in product(*spec.matrix.values())]


# The tables of benchmarks, and rows <-> structs.

STEPS = [
    """
    CREATE TABLE benchmark (
        id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, source TEXT NOT NULL, origin TEXT NOT NULL,
        private BIGINT NOT NULL, spec BYTEA NOT NULL, bucket BIGINT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL,
        generator TEXT NOT NULL, resubmits BIGINT NOT NULL, resubmit_at DOUBLE PRECISION NOT NULL, recent TEXT NOT NULL,
        contexts BIGINT NOT NULL, failed BIGINT NOT NULL, saved BYTEA NOT NULL, wants BYTEA NOT NULL,
        created_at DOUBLE PRECISION NOT NULL
    );
    CREATE INDEX benchmark_running ON benchmark (bucket) WHERE state = 'running';
    CREATE TABLE generated (
        benchmark TEXT NOT NULL, key TEXT NOT NULL, context TEXT NOT NULL, state TEXT NOT NULL,
        at DOUBLE PRECISION NOT NULL, PRIMARY KEY (benchmark, key)
    );
    CREATE INDEX generated_running ON generated (benchmark) WHERE state = 'RUNNING';
    CREATE INDEX generated_at ON generated (benchmark, at);
    CREATE TABLE step (
        id TEXT PRIMARY KEY, benchmark TEXT NOT NULL, series TEXT NOT NULL, made_at DOUBLE PRECISION NOT NULL,
        state TEXT NOT NULL, body BYTEA NOT NULL, webhook TEXT NOT NULL, tries BIGINT NOT NULL,
        next_try DOUBLE PRECISION NOT NULL
    );
    CREATE INDEX step_benchmark ON step (benchmark, series, made_at);
    CREATE INDEX step_owed ON step (next_try) WHERE webhook <> '' AND state = 'told';
    CREATE TABLE evaluation (
        id TEXT PRIMARY KEY, task TEXT NOT NULL, benchmark TEXT NOT NULL, source TEXT NOT NULL, name TEXT NOT NULL,
        mime TEXT NOT NULL, size BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL, body BYTEA NOT NULL, UNIQUE (task, name)
    )
    """
]


@lru_cache(maxsize=1024)
def spec_of(spec: bytes) -> BenchmarkSpec:
    return msgspec.json.decode(spec, type=BenchmarkSpec)


def benchmark_of(row: Row) -> Benchmark:
    return struct_of(Benchmark, row, spec=spec_of(bytes(row["spec"])))


def step_of(row: Row) -> Step:
    return msgspec.structs.replace(msgspec.json.decode(row["body"], type=Step), state=row["state"])


def channel(benchmark: str) -> str:
    """Rung when somebody wants something of a benchmark, or a context of it has ended."""
    return f"benchmark:{benchmark}"


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
