"""The tables of benchmarks, and rows <-> structs."""

from functools import lru_cache

import msgspec

from skep.engines.db.base import Row, struct_of
from skep.model.benchmark import Benchmark, BenchmarkSpec, Step

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
