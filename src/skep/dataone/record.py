"""An object as a record of the index. Pure."""

from collections.abc import Collection, Mapping
from zlib import crc32

from skep.dataone.encoding import encode
from skep.dataone.science_reader import TEXTS, Read
from skep.dataone.tables import Stored, readers
from skep.dataone.types import PUBLIC, Permission, SystemMetadata
from skep.storage.records.base import Record, Value

_BASE32 = "0123456789bcdefghjkmnpqrstuvwxyz"
_GEOHASH = 9


#: field -> names of other objects, in order
Relations = dict[str, dict[str, None]]


def record(one: Stored, read: Read, related: Relations, base: str) -> Record:
    """`base`: of our own API, as others reach it."""
    meta = one.meta
    values: dict[str, Value | list[Value] | None] = {
        **read.fields,
        **{f"{name}Text": read.fields.get(name) for name in TEXTS.values()},
        "titlestr": read.fields.get("title"),
        "datePublished": read.fields.get("pubDate"),
        "note": list(read.notes),
        **_system(meta),
        **_policies(meta),
        **_geohash(read.fields),
        "formatType": one.kind,
        "dataUrl": f"{base}/cn/v2/resolve/{encode(meta.identifier)}",
        **{name: list(others) for name, others in related.items()},
        "readers": [PUBLIC] if meta.public else list(readers(meta)),
        "state": state(meta),
        "place": crc32(meta.identifier.encode()),
    }
    return Record(meta.identifier, {name: value for name, value in values.items() if value not in (None, [], "")})


def state(meta: SystemMetadata) -> str:
    """Rises with every change that we know of."""
    return str(meta.serial_version)


def _system(meta: SystemMetadata) -> Mapping[str, Value | list[Value] | None]:
    return {
        "identifier": meta.identifier,
        "seriesId": meta.series_id,
        "fileName": meta.file_name,
        "mediaType": meta.media_type.name if meta.media_type else None,
        "formatId": meta.format_id,
        "size": meta.size,
        "checksum": meta.checksum.value,
        "checksumAlgorithm": meta.checksum.algorithm,
        "submitter": meta.submitter,
        "rightsHolder": meta.rights_holder,
        "authoritativeMN": meta.authoritative_member_node,
        "datasource": meta.origin_member_node,
        "obsoletes": meta.obsoletes,
        "obsoletedBy": meta.obsoleted_by,
        "archived": bool(meta.archived),
        "serialVersion": meta.serial_version,
        "dateUploaded": _seconds(meta.date_uploaded),
        "dateModified": _seconds(meta.date_sys_metadata_modified),
        "updateDate": _seconds(meta.date_sys_metadata_modified),
        "replicaMN": [one.replica_member_node for one in meta.replica],
        "replicationStatus": [one.replication_status for one in meta.replica],
        "replicaVerifiedDate": [one.replica_verified / 1000 for one in meta.replica],
    }


def _policies(meta: SystemMetadata) -> Mapping[str, Value | list[Value] | None]:
    policy = meta.replication_policy
    return {
        "isPublic": meta.public,
        "readPermission": _allowed(meta, "read"),
        "writePermission": _allowed(meta, "write"),
        "changePermission": _allowed(meta, "changePermission"),
        "replicationAllowed": policy.replication_allowed if policy else None,
        "numberReplicas": policy.number_replicas if policy else None,
        "preferredReplicationMN": list(policy.preferred_member_node) if policy else None,
        "blockedReplicationMN": list(policy.blocked_member_node) if policy else None,
    }


def _allowed(meta: SystemMetadata, permission: Permission) -> list[Value]:
    rules = meta.access_policy.allow if meta.access_policy else ()
    return list(dict.fromkeys(one for rule in rules if permission in rule.permission for one in rule.subject))


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _geohash(fields: Mapping[str, Value | list[Value]]) -> dict[str, Value | list[Value] | None]:
    """Of the middle of the box, in nine steps."""
    sides = [fields.get(f"{side}BoundCoord") for side in ("south", "north", "west", "east")]
    south, north, west, east = (side if isinstance(side, float) else None for side in sides)
    if south is None or north is None or west is None or east is None:
        return {}
    across = east - west if east >= west else east + 360 - west  # over the date line
    middle = west + across / 2
    whole = geohash((south + north) / 2, middle - 360 if middle > 180 else middle)
    return {f"geohash_{length}": whole[:length] for length in range(1, _GEOHASH + 1)}


#: three bits of one direction and two of the other, in turn
_LETTERS = "".join(
    _BASE32[(a & 4) << 2 | (b & 2) << 2 | (a & 2) << 1 | (b & 1) << 1 | a & 1] for a in range(8) for b in range(4)
)


def geohash(latitude: float, longitude: float) -> str:
    along = min(int((longitude + 180) / 360 * (1 << 23)), (1 << 23) - 1)
    across = min(int((latitude + 90) / 180 * (1 << 22)), (1 << 22) - 1)
    letters, one, other, left, beside = "", along, across, 23, 22
    for _ in range(_GEOHASH):
        left, beside = left - 3, beside - 2
        letters += _LETTERS[(one >> left & 7) * 4 + (other >> beside & 3)]
        one, other, left, beside = other, one, beside, left
    return letters


def superseded(maps: Mapping[str, SystemMetadata]) -> Collection[str]:
    """Those of which a newer version is here as well: their links say nothing more. In a circle none is newer."""
    after = {name: meta.obsoleted_by for name, meta in maps.items() if meta.obsoleted_by in maps}
    circling, passed = set[str](), dict[str, str]()
    for start in after:
        name: str | None = start
        while name in after and name not in passed:
            passed[name], name = start, after[name]
        while name in after and passed[name] == start and name not in circling:
            circling.add(name)
            name = after[name]
    return after.keys() - circling
