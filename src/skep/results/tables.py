"""The tables of results. What a curve is made of is stored once for all its results, in `series`."""

import hashlib

import msgspec

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

SERIES = (
    "INSERT INTO series (id, benchmark, source, ref, group_name, metric, machine, unit) "
    "VALUES (:id, :benchmark, :source, :ref, :group, :metric, :machine, :unit) "
    "ON CONFLICT (id) DO UPDATE SET unit = excluded.unit WHERE series.unit IS NULL AND excluded.unit IS NOT NULL"
)
PLACES = 50
UNITS = f"SELECT id, unit FROM series WHERE id IN ({', '.join(f':n{n}' for n in range(PLACES))})"  # noqa: S608
RESULT = (
    "INSERT INTO result (id, series, task, attempt, number, context, kind, value, samples, tags, commit_id, made_at, "
    "at) VALUES (:id, :series, :task, :attempt, :number, :context, :kind, :value, :samples, :tags, :commit, :made_at, "
    ":at) ON CONFLICT (id) DO NOTHING"
)
TAG = (
    "INSERT INTO result_tag (result, name, value) VALUES (:result, :name, :value) ON CONFLICT (result, name) DO NOTHING"
)


def series_number(series: Series) -> int:
    """Made from the key, so that nobody has to look it up; the unit is no part of it."""
    key = msgspec.structs.astuple(series)[:-1]
    return int.from_bytes(hashlib.blake2b("\0".join(key).encode(), digest_size=8).digest(), "big") >> 1
