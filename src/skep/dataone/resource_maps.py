"""Which objects belong together, as resource maps say. A map may come before its members, and name series."""

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from urllib.parse import unquote

import msgspec
from lxml import etree

from skep.dataone.encoding import LONGEST
from skep.dataone.record import Relations, superseded
from skep.dataone.science_reader import LINKS, SAFE, Element
from skep.dataone.store import Store
from skep.dataone.tables import BACKLOG, WAIT, Stored, confided
from skep.dataone.types import SystemMetadata
from skep.storage.database import Database, Tx, among

# Resource maps (OAI-ORE in RDF/XML): which objects belong together, and which of them document which.
#
# Read as it streams in: of a map with tens of thousands of members no more is kept than their names.

MOST_STATEMENTS = 500_000
#: of one kind, of what follows from statements
_MOST_DERIVED = 100_000
_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
#: predicates by name, whatever their namespace says: (kind, is the subject the object)
_LINKS = {
    "aggregates": ("member", False),
    "isAggregatedBy": ("member", True),
    "documents": ("documents", False),
    "isDocumentedBy": ("documents", True),
    "hasPart": ("hasPart", False),
    "isPartOf": ("hasPart", True),
    "wasDerivedFrom": ("derived", False),
    "wasGeneratedBy": ("made", False),
    "used": ("used", False),
    "wasInformedBy": ("informed", False),
    "wasAssociatedWith": ("user", False),
    "qualifiedAssociation": ("association", False),
    "hadPlan": ("plan", False),
    "type": ("class", False),
}
#: of PROV and ProvONE: what makes others
_CLASSES = ("http://www.w3.org/ns/prov#", "http://purl.dataone.org/provone/")
#: paths of resolve and object URLs, behind which a name stands in one segment
_CALLS = ("/resolve/", "/object/", "/meta/")


Pairs = Collection[tuple[str, str]]


class ResourceMap(msgspec.Struct):
    members: list[str]
    #: by kind, which is one of `fields.LINKS`: who is linked to whom
    links: dict[str, list[tuple[str, str]]]


def resource_map(chunks: Iterable[bytes]) -> ResourceMap:
    """ValueError when it is no RDF/XML, or holds entities or too much."""
    names: dict[str, str] = {}
    links: dict[str, dict[tuple[str, str], None]] = {kind: {} for kind, _ in _LINKS.values()}
    said = 0
    try:
        for node in _nodes(chunks):
            subject = _name(node)
            if (class_ := node.tag[1:].replace("}", "")).startswith(_CLASSES):
                links["class"][subject, class_] = None
            for property in node:
                word = etree.QName(property).localname
                if word == "identifier" and property.text:
                    names[subject] = property.text.strip()
                elif word in _LINKS and (other := _target(property)):
                    kind, turned = _LINKS[word]
                    links[kind][(other, subject) if turned else (subject, other)] = None
                said += 1
            if said > MOST_STATEMENTS:
                raise ValueError(f"the map says more than {MOST_STATEMENTS} things")
    except etree.XMLSyntaxError as error:
        raise ValueError(f"the map is no XML: {error}") from None
    named = {kind: [(pid(names, one), pid(names, other)) for one, other in pairs] for kind, pairs in links.items()}
    members = dict.fromkeys(member for _, member in named["member"] if _possible(member))
    derived = {
        kind: list(dict.fromkeys(pair for pair in pairs if all(map(_possible, pair))))
        for kind, pairs in _derived(named).items()
    }
    return ResourceMap(list(members), derived)


def _possible(name: str) -> bool:
    """No object has a longer name, or one that holds a NUL; and not every database could keep it."""
    return len(name) <= LONGEST and "\0" not in name


def _derived(said: Mapping[str, Pairs]) -> dict[str, Pairs]:
    """What follows from the statements of a map: an execution stands between data, programs and people."""
    plans = _joined(said["association"], said["plan"])
    sources, after = said["derived"], [(old, new) for new, old in said["derived"]]
    return {
        "documents": said["documents"],
        "hasPart": said["hasPart"],
        "prov_wasDerivedFrom": sources,
        "prov_hasSources": _joined(said["documents"], sources),
        "prov_hasDerivations": _joined(said["documents"], after),
        "prov_wasGeneratedBy": said["made"],
        "prov_generatedByProgram": _joined(said["made"], plans),
        "prov_generatedByUser": _joined(said["made"], said["user"]),
        "prov_usedByExecution": [(data, run) for run, data in said["used"]],
        "prov_usedByProgram": _joined([(data, run) for run, data in said["used"]], plans),
        "prov_usedByUser": _joined([(data, run) for run, data in said["used"]], said["user"]),
        "prov_wasExecutedByExecution": [(program, run) for run, program in plans],
        "prov_wasExecutedByUser": _joined([(program, run) for run, program in plans], said["user"]),
        "prov_wasInformedBy": said["informed"],
        "prov_instanceOfClass": [pair for pair in said["class"] if pair[1].startswith(_CLASSES)],
    }


def _joined(left: Pairs, right: Pairs) -> Pairs:
    """(a, c) where there is a b with (a, b) and (b, c)."""
    if not left or not right:
        return []
    after: dict[str, list[str]] = {}
    for one, other in right:
        after.setdefault(one, []).append(other)
    pairs = ((one, far) for one, other in left for far in after.get(other, ()))
    return list(islice(pairs, _MOST_DERIVED))


def pid(names: dict[str, str], uri: str) -> str:
    """What the map itself calls it, else the name in its URL, else the URI."""
    if uri in names:
        return names[uri]
    path = next((uri.partition(call)[2] for call in _CALLS if call in uri), "")
    return unquote(path) or uri


def _nodes(chunks: Iterable[bytes]) -> Iterable[Element]:
    """Everything that is said something about. What was read goes: the parser would keep it."""
    parser = etree.XMLPullParser(events=("start", "end"), **SAFE, remove_comments=True, remove_pis=True)
    depth = 0
    for chunk in chunks:
        parser.feed(chunk)
        for event, element in parser.read_events():
            depth += 1 if event == "start" else -1
            if event == "start":
                if depth == 1 and element.getroottree().docinfo.internalDTD is not None:
                    raise ValueError("the map declares entities, which are not read")
                continue
            if depth % 2 == 1 and isinstance(element.tag, str):
                yield element
            if depth == 1:
                element.clear()
                while element.getprevious() is not None:
                    del element.getparent()[0]
    parser.close()


def _name(node: Element) -> str:
    return str(node.get(f"{_RDF}about") or node.get(f"{_RDF}ID") or node.get(f"{_RDF}nodeID") or "")


def _target(property: Element) -> str:
    """The resource it names, or describes in place."""
    named = property.get(f"{_RDF}resource") or property.get(f"{_RDF}nodeID")
    return str(named or (_name(property[0]) if len(property) else ""))


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
