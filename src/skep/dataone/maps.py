"""Which objects belong together, as resource maps say. A map may come before its members, and name series."""

from collections.abc import Collection, Mapping

from skep.dataone.fields import LINKS
from skep.dataone.record import Relations, superseded
from skep.dataone.science.ore import ResourceMap
from skep.dataone.store import Store
from skep.dataone.tables import BACKLOG, WAIT, Stored, confided
from skep.dataone.types import SystemMetadata
from skep.engines.db.base import Database, Tx, among

STEPS = [
    """
    CREATE TABLE resource_map (map TEXT PRIMARY KEY, state TEXT NOT NULL);
    CREATE TABLE relation (
        map TEXT NOT NULL, kind TEXT NOT NULL, one TEXT NOT NULL, other TEXT NOT NULL,
        PRIMARY KEY (map, kind, one, other)
    );
    CREATE INDEX relation_one ON relation (one, kind);
    CREATE INDEX relation_other ON relation (other, kind)
    """,
    # what private maps say was for everybody before
    """
    INSERT INTO backlog (work, pid, at) SELECT 'index', map, 0 FROM resource_map JOIN sysmeta ON sysmeta.pid = map
        WHERE public = 0 ON CONFLICT (work, pid) DO NOTHING
    """,
    # without a key: three names of 800 letters are more than an index holds, and `put` writes nothing twice
    """
    CREATE TABLE relation_now (map TEXT NOT NULL, kind TEXT NOT NULL, one TEXT NOT NULL, other TEXT NOT NULL);
    INSERT INTO relation_now (map, kind, one, other) SELECT map, kind, one, other FROM relation;
    DROP TABLE relation;
    ALTER TABLE relation_now RENAME TO relation;
    CREATE INDEX relation_map ON relation (map, kind);
    CREATE INDEX relation_one ON relation (one, kind);
    CREATE INDEX relation_other ON relation (other, kind)
    """,
]
#: of a relation: `one` is a member of the map; other kinds are those of `fields.LINKS`
_MEMBER = "member"
_MAPS = "resourceMap"
#: by kind: which end of it has the other one in which field
_SIDES = {
    kind: [(side, far, field) for side, far, field in (("one", "other", kind), ("other", "one", back)) if field]
    for kind, back in LINKS.items()
}


class Maps:
    def __init__(self, db: Database, store: Store) -> None:
        self._db = db
        self._store = store

    async def start(self) -> None:
        await self._db.migrate("resource_map", STEPS)

    async def states(self, maps: Collection[str]) -> dict[str, str]:
        places, names = among(maps)
        rows = await self._db.read(f"SELECT map, state FROM resource_map WHERE map IN ({places})", **names)  # noqa: S608
        return {row["map"]: row["state"] for row in rows}

    async def put(self, map: str, state: str, said: ResourceMap | None, now: float) -> None:
        """What the map says from now on (None: nothing). Everybody whose record that changes is indexed again."""
        rows = [(_MEMBER, member, "") for member in said.members] if said else []
        rows += [(kind, *pair) for kind, pairs in said.links.items() for pair in pairs] if said else []

        async def work(tx: Tx) -> None:
            # first, as it locks: another process may read the same map now
            await tx.rows(
                "INSERT INTO resource_map (map, state) VALUES (:map, :state)"
                " ON CONFLICT (map) DO UPDATE SET state = excluded.state",
                map=map,
                state=state,
            )
            old = await tx.rows("DELETE FROM relation WHERE map = :map RETURNING one, other", map=map)
            await tx.many(
                "INSERT INTO relation (map, kind, one, other) VALUES (:map, :kind, :one, :other)",
                [{"map": map, "kind": kind, "one": one, "other": other} for kind, one, other in rows],
            )
            if said is None:
                await tx.rows("DELETE FROM resource_map WHERE map = :map", map=map)
            touched = {row[side] for row in old for side in ("one", "other")} | {
                name for _, *pair in rows for name in pair
            }
            await tx.many(WAIT, [{"work": "index", "pid": pid, "now": now} for pid in sorted(touched - {"", map})])
            tx.ring(BACKLOG)

        await self._db.write(work)

    async def members(self, map: str, limit: int) -> list[str]:
        sql = "SELECT one FROM relation WHERE map = :map AND kind = :kind LIMIT :limit"
        rows = await self._db.read(sql, map=map, kind=_MEMBER, limit=limit)
        return [row["one"] for row in rows]

    async def relations(self, objects: Collection[Stored]) -> dict[str, Relations]:
        """By identifier. What is said of a series is said of its newest version; what a map says is for its readers."""
        if not objects:
            return {}
        names = {one.meta.identifier: one.meta.identifier for one in objects}
        series = {one.meta.series_id for one in objects if one.meta.series_id}
        found = await self._rows({*names, *series})
        for name in series & {row[side] for row in found for side in ("one", "other")}:
            if head := await self._store.head(name):
                names[name] = head
        stored = await self._store.get_many({row["map"] for row in found}) if found else {}
        linked = await self._store.linked(stored) if stored else {}
        maps = {name: one.meta for name, one in linked.items() if not one.meta.archived}
        metas = {one.meta.identifier: one.meta for one in objects}
        related: dict[str, Relations] = {pid: {} for pid in metas}
        for row in found:
            map, member = maps.get(row["map"]), metas.get(names.get(row["one"], ""))
            if row["kind"] == _MEMBER and map and member and confided(map, member):
                related[member.identifier].setdefault(_MAPS, {})[row["map"]] = None
        chains: dict[str, list[str]] = {}
        for one in related.values():
            for old in await self._outdated({name: maps[name] for name in one.get(_MAPS, ())}, chains):
                del one[_MAPS][old]
        for row in found:
            for side, far, field in _SIDES.get(row["kind"], ()):
                near = related.get(names.get(row[side], ""), {})
                if row["map"] in near.get(_MAPS, ()):
                    near.setdefault(field, {})[row[far]] = None
        return related

    async def _outdated(self, maps: Mapping[str, SystemMetadata], chains: dict[str, list[str]]) -> Collection[str]:
        """Those of which a newer version is among them; `chains`: what is known to come after each."""
        old = {*superseded(maps)}
        for name in maps.keys() - old if len(maps) > 1 else ():
            # (the next version may not be among them, and the one after it is)
            if (after := maps[name].obsoleted_by) and after not in maps:
                if name not in chains:
                    versions = await self._store.versions(name)
                    chains[name] = versions[versions.index(name) + 1 :]
                if not maps.keys().isdisjoint(chains[name]):
                    old.add(name)
        return old

    async def _rows(self, ids: Collection[str]) -> list[dict[str, str]]:
        places, names = among(ids)
        sides = " UNION ".join(
            f"SELECT map, kind, one, other FROM relation WHERE {side} IN ({places})"  # noqa: S608
            for side in ("one", "other")
        )
        return [dict(row) for row in await self._db.read(f"{sides} ORDER BY map, one, other", **names)]
