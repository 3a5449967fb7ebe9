"""What other rooms ask of the catalogue's tables."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from skep.engines.db.base import Database, Row, Tx
from skep.errors import BadInput
from skep.model.caller import Visibility
from skep.model.source import Held, Source, SourceSettings
from skep.sources.base import Addresses
from skep.sources.tables import source_of

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
