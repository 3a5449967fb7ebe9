"""The rows of the catalogue, and how they change inside somebody's transaction; their holders are told with them."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from skep.base.caller import Visibility
from skep.base.errors import BadInput
from skep.fleet.members import Fleet
from skep.sources.model import Change, Failure, Held, Progress, Source, SourceSettings
from skep.sources.source_type import Addresses
from skep.storage.database import Database, Row, Tx, insert, struct_of, upsert

# The tables of the catalogue and how their rows become nouns.

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


#: rung when anything a waiting person might look at moved
MOVED = "sources"
#: rung when the set of sources, their names or their visibility changed
CATALOGUE = "catalogue"


class Address(msgspec.Struct, frozen=True):
    canonical: str
    #: as it is asked
    url: str
    name: str


class New(msgspec.Struct, frozen=True):
    """A source that no URL leads to yet; `labels` and `settings` are JSON."""

    id: str
    address: Address
    kind: str = "git"
    visibility: Visibility = "public"
    labels: str = "[]"
    settings: str = "{}"
    size: int = 0
    #: only a list names it
    by_list: int = 0
    #: that should hold it
    workers: Sequence[str] = ()


class Catalogue:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def insert(self, tx: Tx, new: Sequence[New], now: float) -> None:
        count = await tx.rows("UPDATE source_count SET number = number + :n WHERE id = 0 RETURNING number", n=len(new))
        await revise(tx)
        rows = [
            {**msgspec.structs.asdict(one), **msgspec.structs.asdict(one.address), "number": number, "now": now}
            for number, one in enumerate(new, count[0]["number"] - len(new) + 1)
        ]
        await tx.many(INSERT_SOURCE, rows)
        await tx.many(INSERT_URL, rows)
        await self._fleet.assign_many(tx, [one.id for one in new], {one.id: one.workers for one in new if one.workers})

    async def change(
        self, tx: Tx, id: str, visibility: Visibility | None, labels: str | None, settings: str | None = None
    ) -> None:
        """None stays as it is; `labels` and `settings` are JSON."""
        await revise(tx)
        await tx.rows(
            "UPDATE source SET visibility = COALESCE(:visibility, visibility), labels = COALESCE(:labels, labels), "  # noqa: S608
            f"settings = COALESCE(:settings, settings), {REVISED} WHERE id = :id",
            visibility=visibility,
            labels=labels,
            settings=settings,
            id=id,
        )
        await self._fleet.ask(tx, "hold", id)

    async def readdress(self, tx: Tx, source: Source, address: Address) -> None:
        """A URL that no other source has."""
        await tx.rows("DELETE FROM url WHERE source = :id", id=source.id)
        await insert(tx, "url", canonical=address.canonical, source=source.id)
        await revise(tx)
        sql = f"UPDATE source SET url = :url, name = :name, {REVISED} WHERE id = :id"  # noqa: S608
        await tx.rows(sql, url=address.url, name=address.name, id=source.id)
        if address.name != source.name:
            await upsert(tx, "former_name", "name", name=source.name, source=source.id)

    async def discard(self, tx: Tx, sources: Sequence[str]) -> None:
        await self._fleet.release_many(tx, sources)
        ids = [{"id": id} for id in sources]
        for table in ("url", "former_name", "entry"):
            await tx.many(f"DELETE FROM {table} WHERE source = :id", ids)  # noqa: S608
        await revise(tx)
        await tx.many(
            f"UPDATE source SET state = 'removed', epoch = epoch + 1, {REVISED} WHERE id = :id",  # noqa: S608
            ids,
        )
        tx.ring(CATALOGUE)
        tx.ring(MOVED)


async def by_hand(tx: Tx, source: str) -> None:
    """A person asked for it: no list removes it from now on."""
    await tx.rows("UPDATE source SET by_list = 0 WHERE id = :id AND by_list = 1", id=source)


# What other rooms ask of the catalogue's tables.

_NONE = SourceSettings()
#: a source's row beside the row of its default branch
_WITH_BRANCH = "source JOIN entry ON entry.source = source.id AND entry.name = 'refs/heads/' || source.default_branch"


#: seconds of a source's past that a new holder is told of, as if it had always been so
_MEMORY = 5_184_000.0


class Named(msgspec.Struct, frozen=True, gc=False):
    id: str
    number: int
    name: str
    visibility: Visibility
    living: bool
    revision: int
    #: its own or that of a label
    priority: int = 0


class Newest(msgspec.Struct, frozen=True):
    """The newest commit known of a default branch, and when the upstream was last asked."""

    commit: str
    looked: float


async def named(
    db: Database, revision: int, number: int, limit: int, by_label: Mapping[str, SourceSettings]
) -> list[Named]:
    """Sources by when anything said of them here last changed, those after (revision, number) first."""
    rows = await db.read(
        "SELECT id, number, name, visibility, state, revision, labels, settings FROM source "
        "WHERE (revision, number) > (:revision, :number) ORDER BY revision, number LIMIT :limit",
        revision=revision,
        number=number,
        limit=limit,
    )
    return [
        Named(
            *(row["id"], row["number"], row["name"], row["visibility"], row["state"] != "removed", row["revision"]),
            _priority(row, by_label),
        )
        for row in rows
    ]


async def newest(db: Database, numbers: Collection[int]) -> dict[int, Newest]:
    """By number, of those sources that are current."""
    if not numbers:
        return {}
    integers = ", ".join(str(int(number)) for number in sorted(numbers))
    rows = await db.read(
        f"SELECT source.number, entry.version, source.last_looked FROM {_WITH_BRANCH} "  # noqa: S608
        f"WHERE source.state = 'current' AND source.number IN ({integers})"
    )
    return {row["number"]: Newest(row["version"], row["last_looked"]) for row in rows}


async def unindexed(db: Database) -> list[str]:
    """Ids of sources whose newest commit is not the one search answers from."""
    rows = await db.read(
        f"SELECT source.id FROM {_WITH_BRANCH} WHERE source.state <> 'removed' AND entry.version IS NOT NULL "  # noqa: S608
        "AND (source.indexed_commit IS NULL OR source.indexed_commit <> entry.version)"
    )
    return [row["id"] for row in rows]


async def unverified(db: Database, before: float, most: int) -> list[str]:
    """Ids of sources whose index was neither made nor compared with the mirror since then; the longest first."""
    rows = await db.read(
        "SELECT id FROM source WHERE state = 'current' AND indexed_at < :before ORDER BY indexed_at LIMIT :most",
        before=before,
        most=most,
    )
    return [row["id"] for row in rows]


async def published(db: Database, *, private: bool, most: int) -> list[Row]:
    """Rows of sources that can be cloned, by name."""
    return await db.read(
        "SELECT id, name, url, default_branch, last_changed FROM source WHERE state <> 'removed' "
        "AND last_changed IS NOT NULL AND (:private = 1 OR visibility = 'public') ORDER BY name LIMIT :most",
        private=int(private),
        most=most,
    )


async def refs_of(db: Database, ids: Sequence[str]) -> dict[str, dict[str, str]]:
    """Source -> ref -> object."""
    found: dict[str, dict[str, str]] = {}
    for row in await db.read(
        "SELECT source, name, version FROM entry WHERE version IS NOT NULL AND name <> 'HEAD' AND source IN (:ids)",
        ids=list(ids),
    ):
        found.setdefault(row["source"], {})[row["name"]] = row["version"]
    return found


async def default_branch(tx: Tx, source: str) -> str:
    """As an entry's name; empty when the source is not there."""
    rows = await tx.rows("SELECT default_branch FROM source WHERE id = :id", id=source)
    return f"refs/heads/{rows[0]['default_branch']}" if rows else ""


async def living(db: Database, id: str) -> Source | None:
    """None: it was removed."""
    rows = await db.read("SELECT * FROM source WHERE id = :id AND state <> 'removed'", id=id)
    return source_of(rows[0]) if rows else None


async def find(db: Database, kinds: Iterable[Addresses], ref: str) -> Row | None:
    """By id, then by name, then by any spelling of its URL, then by a name it had before."""
    rows = await db.read(
        "SELECT * FROM source WHERE (id = :ref OR name = :ref) AND state <> 'removed' ORDER BY id LIMIT 1", ref=ref
    )
    if rows:
        return rows[0]
    formerly = ref
    for addresses in kinds:
        try:
            canonical = addresses.canonical(ref)
        except BadInput:
            continue
        rows = await db.read(
            "SELECT source.* FROM source JOIN url ON url.source = source.id WHERE url.canonical = :canonical",
            canonical=canonical,
        )
        if rows:
            return rows[0]
        formerly = addresses.name(canonical)
    rows = await db.read(
        "SELECT source.* FROM source JOIN former_name ON former_name.source = source.id "
        "WHERE former_name.name IN (:ref, :name)",
        ref=ref,
        name=formerly,
    )
    return rows[0] if rows else None


async def settings_with_labels(
    db: Database, ids: Sequence[str], by_label: Mapping[str, SourceSettings]
) -> dict[str, SourceSettings]:
    """What sources, and their labels, say of themselves."""
    rows = await db.read("SELECT id, labels, settings FROM source WHERE id IN (:ids)", ids=list(ids))
    return {row["id"]: _settings(row, by_label) for row in rows}


def _settings(row: Row, by_label: Mapping[str, SourceSettings]) -> SourceSettings:
    settings = msgspec.json.decode(row["settings"], type=SourceSettings)
    for label in json.loads(row["labels"]):
        settings = settings.over(by_label.get(label, _NONE))
    return settings


def _priority(row: Row, by_label: Mapping[str, SourceSettings]) -> int:
    if row["settings"] == "{}" and not by_label:  # a million of them are read at start
        return 0
    return _settings(row, by_label).priority or 0


async def held(db: Database, ids: Sequence[str], by_label: Mapping[str, SourceSettings]) -> dict[str, Held]:
    """What holders need to know of sources, of those that are there: the bodies of Hold orders."""
    if not ids:
        return {}
    told: dict[str, dict[str, str]] = {}
    entries = await db.read("SELECT * FROM entry WHERE version IS NOT NULL AND source IN (:ids)", ids=list(ids))
    for entry in entries:
        told.setdefault(entry["source"], {})[entry["name"]] = entry["version"]
    rows = await db.read("SELECT * FROM source WHERE state <> 'removed' AND id IN (:ids)", ids=list(ids))
    counted = await _changes(db, [row["id"] for row in rows if row["epoch"] > 1])
    found: dict[str, Held] = {}
    for row in rows:
        source = source_of(row)
        observed = (source.last_looked or 0.0) - source.added_at if source.epoch > 1 else 0.0
        share = min(1.0, _MEMORY / max(observed, 1.0))
        found[source.id] = Held(
            *(source.id, source.number, source.kind, source.url, source.epoch, source.visibility),
            told=told.get(source.id, {}),
            settings=_settings(row, by_label),
            accepted=row["accepted"],
            size=row["size"],
            changed_at=source.last_changed or 0.0,
            changes=counted.get(source.id, 0) * share,
            observed=max(0.0, observed * share),
        )
    return found


async def _changes(db: Database, ids: list[str]) -> dict[str, int]:
    """How often sources changed since their first clone."""
    if not ids:
        return {}
    rows = await db.read(
        "SELECT source, count(DISTINCT batch) AS n FROM change WHERE first = 0 AND source IN (:ids) GROUP BY source",
        ids=ids,
    )
    return {row["source"]: int(row["n"]) for row in rows}
