"""The tables of lists and how their rows become nouns."""

import json

from skep.engines.db.base import Row, struct_of
from skep.model.source_list import ListedSource, ListProblem, SourceList

STEPS = [
    """
    CREATE TABLE list (
        id TEXT PRIMARY KEY, kind TEXT NOT NULL, url TEXT NOT NULL UNIQUE, source TEXT, forks BIGINT NOT NULL,
        archived BIGINT NOT NULL, visibility TEXT NOT NULL, state TEXT NOT NULL, version TEXT NOT NULL,
        confirmed TEXT NOT NULL, waiting BIGINT NOT NULL, failure TEXT NOT NULL, added_at DOUBLE PRECISION NOT NULL,
        read_at DOUBLE PRECISION, next_read DOUBLE PRECISION NOT NULL
    );
    CREATE TABLE list_file (
        list TEXT NOT NULL, file TEXT NOT NULL, stamp TEXT NOT NULL, entries BIGINT NOT NULL, PRIMARY KEY (list, file)
    );
    CREATE TABLE list_problem (
        list TEXT NOT NULL, file TEXT NOT NULL, n BIGINT NOT NULL, line BIGINT NOT NULL, message TEXT NOT NULL,
        PRIMARY KEY (list, file, n)
    );
    CREATE TABLE listed (
        list TEXT NOT NULL, file TEXT NOT NULL, name TEXT NOT NULL, line BIGINT NOT NULL, canonical TEXT NOT NULL,
        url TEXT NOT NULL, labels TEXT NOT NULL, settings TEXT NOT NULL, workers TEXT NOT NULL,
        visibility TEXT NOT NULL, fingerprint TEXT NOT NULL, source TEXT NOT NULL, gone BIGINT NOT NULL,
        PRIMARY KEY (list, file, name)
    );
    CREATE INDEX listed_source ON listed (source);
    CREATE INDEX listed_gone ON listed (list) WHERE gone = 1
    """
]

#: sources that only entries which are gone still name, of those that lists have added
LOST = """
    SELECT count(DISTINCT former.source) AS n FROM listed former JOIN source ON source.id = former.source
    WHERE former.list = :list AND former.gone = 1 AND source.by_list = 1 AND source.state <> 'removed'
    AND NOT EXISTS (SELECT 1 FROM listed living WHERE living.source = former.source AND living.gone = 0)
"""


def list_of(row: Row) -> SourceList:
    counts = {name: int(row[name] or 0) for name in ("entries", "problems")}
    return struct_of(SourceList, row, forks=bool(row["forks"]), archived=bool(row["archived"]), **counts)


def listed_of(row: Row) -> ListedSource:
    lists = {name: tuple(json.loads(row[name])) for name in ("labels", "workers")}
    return struct_of(ListedSource, row, settings=json.loads(row["settings"]), gone=bool(row["gone"]), **lists)


def problem_of(row: Row) -> ListProblem:
    return ListProblem(row["file"], row["line"], row["message"])
