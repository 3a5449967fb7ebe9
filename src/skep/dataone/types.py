"""DataONE's nouns as they travel. The fields of a struct are the elements of its document, in the schema's order.

A field's name in camel case is its element's name; markers say what is no plain element. Times are milliseconds.
"""

import hashlib
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

ATTRIBUTE = Meta(extra={"xml": "attribute"})
TEXT = Meta(extra={"xml": "text"})
#: in no document: why parts of it could not be read
ASIDE = Meta(extra={"xml": "aside"})
#: not in documents of version 1
V2 = Meta(extra={"v2": True})

Time = Annotated[int, Meta(extra={"as": "time"})]
Pid = Annotated[str, Meta(extra={"as": "pid"})]
Permission = Literal["read", "write", "changePermission"]
ReplicaStatus = Literal["queued", "requested", "completed", "failed", "invalidated"]
FormatType = Literal["DATA", "METADATA", "RESOURCE"]
PUBLIC = "public"
#: whoever says who they are
AUTHENTICATED = "authenticatedUser"
_EVERYBODY = frozenset({PUBLIC})
#: who has one of these may do it
_ENOUGH: dict[Permission, frozenset[Permission]] = {
    "read": frozenset(("read", "write", "changePermission")),
    "write": frozenset(("write", "changePermission")),
    "changePermission": frozenset(("changePermission",)),
}
#: what each name of an algorithm may be spelled like, without case and hyphens
_ALGORITHMS = {"MD5": "MD5", **{f"SHA{n}": f"SHA-{n}" for n in (1, 224, 256, 384, 512)}}


@lru_cache(100)  # an object's is asked for again and again
def _usual(algorithm: str) -> str:
    return _ALGORITHMS.get(algorithm.strip().upper().replace("-", "").replace("_", ""), algorithm)


class Doc(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A document or a part of one."""


class Checksum(Doc, frozen=True):
    value: Annotated[str, TEXT]
    algorithm: Annotated[str, ATTRIBUTE]

    @property
    def name(self) -> str:
        """The algorithm in its usual spelling; as it is where nobody knows it."""
        return _usual(self.algorithm)

    @property
    def known(self) -> bool:
        return self.name in _ALGORITHMS.values()

    @property
    def spelled(self) -> str:
        """The same for all spellings of it."""
        return f"{self.name}:{self.value.lower()}"

    def hash(self) -> Any:
        """ValueError when we cannot compute it."""
        return hashlib.new(self.name.replace("-", "").lower(), usedforsecurity=False)

    def agrees(self, other: "Checksum") -> bool | None:
        """None: they are of different algorithms, so neither says anything of the other."""
        if self.name != other.name:
            return None
        return self.value.strip().lower() == other.value.strip().lower()


class AccessRule(Doc, frozen=True):
    subject: tuple[str, ...]
    permission: tuple[Permission, ...]


class AccessPolicy(Doc, frozen=True):
    allow: tuple[AccessRule, ...] = ()


class ReplicationPolicy(Doc, frozen=True):
    replication_allowed: Annotated[bool, ATTRIBUTE] = False
    number_replicas: Annotated[int, ATTRIBUTE] = 0
    preferred_member_node: tuple[str, ...] = ()
    blocked_member_node: tuple[str, ...] = ()


class Replica(Doc, frozen=True):
    replica_member_node: str
    replication_status: ReplicaStatus
    replica_verified: Time


class MediaProperty(Doc, frozen=True):
    value: Annotated[str, TEXT]
    name: Annotated[str, ATTRIBUTE]


class MediaType(Doc, frozen=True):
    name: Annotated[str, ATTRIBUTE]
    properties: tuple[MediaProperty, ...] = field(name="property", default=())


class ObjectInfo(Doc, frozen=True):
    identifier: Pid
    format_id: str
    checksum: Checksum
    date_sys_metadata_modified: Time
    size: int


class SystemMetadata(Doc, frozen=True, kw_only=True):
    serial_version: int | None = None
    identifier: Pid
    format_id: str
    size: int
    checksum: Checksum
    submitter: str | None = None
    rights_holder: str
    access_policy: AccessPolicy | None = None
    replication_policy: ReplicationPolicy | None = None
    obsoletes: Pid | None = None
    obsoleted_by: Pid | None = None
    archived: bool | None = None
    date_uploaded: Time | None = None
    date_sys_metadata_modified: Time | None = None
    origin_member_node: str | None = None
    authoritative_member_node: str | None = None
    replica: tuple[Replica, ...] = ()
    series_id: Annotated[Pid | None, V2] = None
    media_type: Annotated[MediaType | None, V2] = None
    file_name: Annotated[str | None, V2] = None

    def may(self, permission: Permission, subjects: frozenset[str]) -> bool:
        """Write includes read, and changePermission both. Who has the rights may do everything."""
        if self.rights_holder in subjects:
            return True
        rules = self.access_policy.allow if self.access_policy else ()
        return any(
            not subjects.isdisjoint(rule.subject) and not _ENOUGH[permission].isdisjoint(rule.permission)
            for rule in rules
        )

    @property
    def public(self) -> bool:
        return self.may("read", _EVERYBODY)

    @property
    def info(self) -> ObjectInfo:
        """As lists show it."""
        date = self.date_sys_metadata_modified or 0
        return ObjectInfo(self.identifier, self.format_id, self.checksum, date, self.size)


class ObjectList(Doc, frozen=True):
    object_info: tuple[ObjectInfo, ...] = ()
    count: Annotated[int, ATTRIBUTE] = 0
    start: Annotated[int, ATTRIBUTE] = 0
    total: Annotated[int, ATTRIBUTE] = 0
    #: one strange entry must not hide the others
    unread: Annotated[tuple[str, ...], ASIDE] = ()


class Restriction(Doc, frozen=True):
    method_name: Annotated[str, ATTRIBUTE]
    subject: tuple[str, ...] = ()


class Service(Doc, frozen=True):
    name: Annotated[str, ATTRIBUTE]
    version: Annotated[str, ATTRIBUTE]
    available: Annotated[bool, ATTRIBUTE] = True
    restriction: tuple[Restriction, ...] = ()


class Services(Doc, frozen=True):
    service: tuple[Service, ...] = ()


class Schedule(Doc, frozen=True):
    """Quartz, as the node wrote it."""

    hour: Annotated[str, ATTRIBUTE] = "*"
    mday: Annotated[str, ATTRIBUTE] = "*"
    min: Annotated[str, ATTRIBUTE] = "0"
    mon: Annotated[str, ATTRIBUTE] = "*"
    sec: Annotated[str, ATTRIBUTE] = "0"
    wday: Annotated[str, ATTRIBUTE] = "?"
    year: Annotated[str, ATTRIBUTE] = "*"


class Synchronization(Doc, frozen=True):
    schedule: Schedule
    last_harvested: Time | None = None
    last_complete_harvest: Time | None = None


class NodeReplicationPolicy(Doc, frozen=True):
    max_object_size: int | None = None
    space_allocated: int | None = None
    allowed_node: tuple[str, ...] = ()
    allowed_object_format: tuple[str, ...] = ()


class Ping(Doc, frozen=True):
    success: Annotated[bool | None, ATTRIBUTE] = None
    last_success: Annotated[Time | None, ATTRIBUTE] = None


class Property(Doc, frozen=True):
    value: Annotated[str, TEXT]
    key: Annotated[str, ATTRIBUTE]
    type: Annotated[str | None, ATTRIBUTE] = None


class Node(Doc, frozen=True, kw_only=True):
    identifier: str
    name: str
    description: str = ""
    base_url: str = field(name="baseURL")
    services: Services | None = None
    synchronization: Synchronization | None = None
    node_replication_policy: NodeReplicationPolicy | None = None
    ping: Ping | None = None
    subject: tuple[str, ...] = ()
    contact_subject: tuple[str, ...] = ()
    properties: Annotated[tuple[Property, ...], V2] = field(name="property", default=())
    replicate: Annotated[bool, ATTRIBUTE] = False
    synchronize: Annotated[bool, ATTRIBUTE] = False
    type: Annotated[Literal["mn", "cn", "Monitor"], ATTRIBUTE] = "mn"
    state: Annotated[Literal["up", "down", "unknown"], ATTRIBUTE] = "up"

    @property
    def version(self) -> Literal["v1", "v2"]:
        """Of its API, as a Coordinating Node chooses it."""
        services = self.services.service if self.services else ()
        return "v2" if any(one.version == "v2" for one in services) else "v1"


class NodeList(Doc, frozen=True):
    node: tuple[Node, ...] = ()


class ObjectFormat(Doc, frozen=True):
    format_id: str
    format_name: str
    format_type: FormatType
    media_type: Annotated[MediaType | None, V2] = None
    extension: Annotated[str | None, V2] = None


class ObjectFormatList(Doc, frozen=True):
    object_format: tuple[ObjectFormat, ...] = ()
    count: Annotated[int, ATTRIBUTE] = 0
    start: Annotated[int, ATTRIBUTE] = 0
    total: Annotated[int, ATTRIBUTE] = 0


class ObjectLocation(Doc, frozen=True):
    node_identifier: str
    base_url: str = field(name="baseURL")
    version: tuple[str, ...]
    url: str
    preference: int | None = None


class ObjectLocationList(Doc, frozen=True):
    identifier: Pid
    object_location: tuple[ObjectLocation, ...] = ()


class ChecksumAlgorithmList(Doc, frozen=True):
    algorithm: tuple[str, ...] = ()


class Identifier(Doc, frozen=True):
    value: Annotated[Pid, TEXT]


class D1Error(Doc, frozen=True):
    """What a node answers instead. `name` is one of the specification's, or SynchronizationFailed."""

    name: Annotated[str, ATTRIBUTE]
    error_code: Annotated[int, ATTRIBUTE]
    detail_code: Annotated[str, ATTRIBUTE] = "0"
    description: str = ""
    trace_information: str | None = None
    identifier: Annotated[str | None, ATTRIBUTE] = None
    node_id: Annotated[str | None, ATTRIBUTE] = None
