"""Objects for tests."""

import hashlib
from typing import Any

from skep.dataone.types import AccessPolicy, AccessRule, Checksum, SystemMetadata

EML = "eml://ecoinformatics.org/eml-2.1.1"
NODE = "urn:node:A"
PUBLIC = AccessPolicy((AccessRule(("public",), ("read",)),))

#: identifiers that are no file names, no paths, and no text that anything may be done to
TRICKY = (
    *("common-ascii-doc-example-id", "doi:10.5063/F1HT2M7Q", "urn:uuid:8c5ed091-4bd0-4e55-a1f3-8a6b3a25e4b5"),
    *("https://example.org/a?b=c&d=e#f", "ark:/13030/m5s46rt7", "a/b", "/a", "a/", "a//b", "//", "a/../b", "a/./b"),
    *("..a", "q?x=1", "h#1", "p+q", "sc;d", "%", "100%25", "a%3Fb", "am&p", "qu'o\"te", "d~$!*()", "=@:,"),
    *("back\\slash", "<t>&lt;</t>", "{}|^`[]", "ü/日本", "e\u0301", "\u00e9", "🐝", "L" * 800),
)


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
