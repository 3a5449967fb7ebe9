"""Objects for tests."""

import hashlib
from typing import Any

from skep.dataone.types import AccessPolicy, AccessRule, Checksum, SystemMetadata

EML = "eml://ecoinformatics.org/eml-2.1.1"
NODE = "urn:node:A"
PUBLIC = AccessPolicy((AccessRule(("public",), ("read",)),))


def meta_of(pid: str, data: bytes = b"", **more: Any) -> SystemMetadata:
    """System metadata that is true of these bytes, unless it says otherwise."""
    usual: dict[str, Any] = {
        "identifier": pid,
        "format_id": EML,
        "size": len(data),
        "checksum": Checksum(hashlib.sha1(data).hexdigest(), "SHA-1"),
        "submitter": "sam",
        "rights_holder": "rita",
        "access_policy": PUBLIC,
        "date_uploaded": 1_000,
        "date_sys_metadata_modified": 1_000,
        "origin_member_node": NODE,
        "authoritative_member_node": NODE,
    }
    return SystemMetadata(**{**usual, **more})
