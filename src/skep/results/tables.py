"""The tables of results. What a curve is made of is stored once for all its results, in `series`."""

import hashlib

import msgspec

from skep.engines.db.base import inserting
from skep.model.result import Series

STEPS = [
    """
    CREATE TABLE series (
        id BIGINT PRIMARY KEY, benchmark TEXT NOT NULL, source TEXT NOT NULL, ref TEXT NOT NULL,
        group_name TEXT NOT NULL, metric TEXT NOT NULL, machine TEXT NOT NULL, unit TEXT
    );
    CREATE INDEX series_benchmark ON series (benchmark, metric);
    CREATE INDEX series_source ON series (source);
    CREATE TABLE result (
        id TEXT PRIMARY KEY, series BIGINT NOT NULL, task TEXT NOT NULL, attempt BIGINT NOT NULL,
        number BIGINT NOT NULL, context TEXT NOT NULL, kind TEXT NOT NULL, value DOUBLE PRECISION NOT NULL,
        samples TEXT NOT NULL, tags TEXT NOT NULL, commit_id TEXT NOT NULL, made_at DOUBLE PRECISION NOT NULL,
        at DOUBLE PRECISION NOT NULL
    );
    CREATE INDEX result_series ON result (series, made_at, id);
    CREATE INDEX result_task ON result (task, attempt);
    CREATE INDEX result_context ON result (context);
    CREATE INDEX result_at ON result (at, id);
    CREATE TABLE result_tag (
        result TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (result, name)
    );
    CREATE INDEX result_tag_value ON result_tag (name, value)
    """
]

SERIES = inserting(
    "series",
    ("id", "benchmark", "source", "ref", "group_name", "metric", "machine", "unit"),
    "ON CONFLICT (id) DO UPDATE SET unit = excluded.unit WHERE series.unit IS NULL AND excluded.unit IS NOT NULL",
)
TAG = inserting("result_tag", ("result", "name", "value"), "ON CONFLICT (result, name) DO NOTHING")


def series_number(series: Series) -> int:
    """Made from the key, so that nobody has to look it up; the unit is no part of it."""
    key = msgspec.structs.astuple(series)[:-1]
    return int.from_bytes(hashlib.blake2b("\0".join(key).encode(), digest_size=8).digest(), "big") >> 1
