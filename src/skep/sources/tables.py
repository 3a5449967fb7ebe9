"""The tables of the catalogue and how their rows become nouns."""

import json

import msgspec

from skep.engines.db.base import Row, Tx, struct_of
from skep.model.source import Change, Failure, Progress, Source, SourceSettings

STEPS = [
    """
    CREATE TABLE source (
        id TEXT PRIMARY KEY, number BIGINT NOT NULL UNIQUE, kind TEXT NOT NULL, name TEXT NOT NULL, url TEXT NOT NULL,
        state TEXT NOT NULL, visibility TEXT NOT NULL, labels TEXT NOT NULL, settings TEXT NOT NULL,
        size BIGINT NOT NULL, epoch BIGINT NOT NULL, accepted TEXT NOT NULL,
        default_branch TEXT NOT NULL, added_at DOUBLE PRECISION NOT NULL, last_looked DOUBLE PRECISION,
        last_fetched DOUBLE PRECISION, last_changed DOUBLE PRECISION, next_poll DOUBLE PRECISION,
        failure TEXT, failures BIGINT NOT NULL, indexed_commit TEXT, indexed_at DOUBLE PRECISION,
        by_list BIGINT NOT NULL, revision BIGINT NOT NULL
    );
    CREATE INDEX source_name ON source (name);
    CREATE INDEX source_state ON source (state, id);
    CREATE INDEX source_indexed ON source (indexed_at);
    CREATE INDEX source_revision ON source (revision, number);
    CREATE TABLE source_count (id BIGINT PRIMARY KEY, number BIGINT NOT NULL);
    INSERT INTO source_count (id, number) VALUES (0, 0), (1, 0);
    CREATE TABLE url (canonical TEXT PRIMARY KEY, source TEXT NOT NULL);
    CREATE INDEX url_source ON url (source);
    CREATE TABLE former_name (name TEXT PRIMARY KEY, source TEXT NOT NULL);
    CREATE INDEX former_name_source ON former_name (source);
    CREATE TABLE delivery (id TEXT PRIMARY KEY, at DOUBLE PRECISION NOT NULL);
    CREATE INDEX delivery_at ON delivery (at);
    CREATE TABLE entry (
        source TEXT NOT NULL, name TEXT NOT NULL, seq BIGINT NOT NULL, version TEXT, PRIMARY KEY (source, name)
    );
    CREATE TABLE batch (id TEXT PRIMARY KEY, source TEXT NOT NULL, at DOUBLE PRECISION NOT NULL);
    CREATE TABLE change (
        id TEXT PRIMARY KEY, source TEXT NOT NULL, entry TEXT NOT NULL, seq BIGINT NOT NULL, old TEXT, new TEXT,
        batch TEXT NOT NULL, first BIGINT NOT NULL, at DOUBLE PRECISION NOT NULL
    );
    CREATE INDEX change_source ON change (source, at)
    """,
    "ALTER TABLE change ADD COLUMN visibility TEXT NOT NULL DEFAULT 'public'",
    "ALTER TABLE source ADD COLUMN indexed_tips TEXT",
]

INSERT_SOURCE = """
    INSERT INTO source (id, number, kind, name, url, visibility, labels, settings, size, added_at, by_list,
        state, epoch, accepted, default_branch, failures, revision)
    VALUES (:id, :number, :kind, :name, :url, :visibility, :labels, :settings, :size, :now, :by_list,
        'new', 1, '', '', 0, (SELECT number FROM source_count WHERE id = 1))
"""
INSERT_URL = "INSERT INTO url (canonical, source) VALUES (:canonical, :id)"


#: what a source's row says of who sees it under which name changes with this
REVISED = "revision = (SELECT number FROM source_count WHERE id = 1)"


async def revise(tx: Tx) -> None:
    """Before rows are inserted or REVISED. Whoever revises waits for whoever did before: revisions commit in order,
    so that who has seen one has seen all below it."""
    await tx.rows("UPDATE source_count SET number = number + 1 WHERE id = 1")


def seen(source: str) -> str:
    """For WHERE: who may not see private sources (`:private` is 0) sees what is about none, or about a public one. What
    is about one that is gone is not for everybody either. `source` is a column with an id or a name."""
    public = f"source.visibility = 'public' AND (source.id = {source} OR source.name = {source})"
    return f"(:private = 1 OR {source} = '' OR EXISTS (SELECT 1 FROM source WHERE {public}))"  # noqa: S608


def source_of(row: Row, progress: Progress | None = None) -> Source:
    return struct_of(
        Source,
        row,
        labels=tuple(json.loads(row["labels"])),
        settings=msgspec.json.decode(row["settings"], type=SourceSettings),
        failure=msgspec.json.decode(row["failure"], type=Failure) if row["failure"] else None,
        progress=progress,
        holder="",
        replicas=(),
    )


def change_of(row: Row) -> Change:
    return struct_of(Change, row, first=bool(row["first"]))
