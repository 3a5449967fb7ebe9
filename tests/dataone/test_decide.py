"""The decision, case by case."""

from typing import Any

import msgspec
import pytest

from skep.dataone.decision import Circumstances, Decision, Verdict, decide
from skep.dataone.types import (
    AccessPolicy,
    AccessRule,
    Checksum,
    MediaType,
    Permission,
    Replica,
    ReplicationPolicy,
    SystemMetadata,
)

A, B = "urn:node:A", "urn:node:B"
META = SystemMetadata(
    serial_version=1,
    identifier="p",
    format_id="f",
    size=3,
    checksum=Checksum("aa", "SHA-1"),
    submitter="sam",
    rights_holder="rita",
    date_uploaded=10,
    date_sys_metadata_modified=20,
    origin_member_node=A,
    authoritative_member_node=A,
)


def like(**changes: Any) -> SystemMetadata:
    return msgspec.structs.replace(META, **changes)


def offered(around: dict[str, Any] | None = None, **changes: Any) -> Decision:
    return decide(like(**changes), Circumstances(**{"node": A, **(around or {})}))


HELD = Replica(A, "completed", 1)
KNOWN: dict[str, Any] = {"known": META, "copies": {A: HELD}}


def test_new_content_is_taken_with_our_own_counter_and_without_its_replicas() -> None:
    found = offered(serial_version=9, replica=(Replica(B, "completed", 1),))
    assert found.verdict == "new" and found.meta == like(serial_version=1)


def test_a_node_that_is_not_the_authoritative_one_may_bring_new_content() -> None:
    assert offered({"node": B}).verdict == "new"


@pytest.mark.parametrize(
    "missing",
    ["submitter", "date_uploaded", "date_sys_metadata_modified", "origin_member_node", "authoritative_member_node"],
)
def test_what_lacks_a_required_field_is_poison(missing: str) -> None:
    assert offered(**{missing: None}).verdict == "poison"


def test_an_unknown_algorithm_is_poison() -> None:
    assert offered(checksum=Checksum("aa", "rot13")).verdict == "poison"


def test_the_same_again_is_unchanged() -> None:
    for checksum in (META.checksum, Checksum("AA", "sha1")):
        assert offered(KNOWN, checksum=checksum, serial_version=7, archived=False).verdict == "unchanged"


def test_other_bytes_under_the_same_identifier() -> None:
    for node in (A, B):
        assert offered({**KNOWN, "node": node}, checksum=Checksum("bb", "SHA-1")).verdict == "duplicate"


def test_checksums_of_different_algorithms_need_a_proof() -> None:
    other = Checksum("cc", "MD5")
    assert offered(KNOWN, checksum=other).verdict == "poison"
    assert offered({**KNOWN, "proof": Checksum("aa", "SHA-1")}, checksum=other).verdict == "unchanged"
    assert offered({**KNOWN, "proof": Checksum("bb", "SHA-1")}, checksum=other).verdict == "duplicate"


def test_from_others_only_the_replica_is_taken() -> None:
    found = offered({**KNOWN, "node": B}, rights_holder="mallory", date_sys_metadata_modified=99)
    assert (found.verdict, found.meta) == ("replica", None)
    assert offered({**KNOWN, "node": B, "copies": {A: HELD, B: HELD}}, rights_holder="mallory").verdict == "unchanged"


PERMISSIONS: tuple[Permission, ...] = ("read",)
FREE: dict[str, Any] = {
    "rights_holder": "rob",
    "access_policy": AccessPolicy((AccessRule(("public",), PERMISSIONS),)),
    "replication_policy": ReplicationPolicy(True, 3),
    "format_id": "g",
    "file_name": "x.csv",
    "media_type": MediaType("text/csv"),
    "obsoletes": "o",
    "obsoleted_by": "n",
    "series_id": "s",
    "archived": True,
}
FIXED: dict[str, Any] = {
    "size": 4,
    "submitter": "eve",
    "date_uploaded": 11,
    "origin_member_node": B,
    "authoritative_member_node": B,
}


@pytest.mark.parametrize("name", FREE)
def test_what_may_change(name: str) -> None:
    found = offered(KNOWN, **{name: FREE[name]}, date_sys_metadata_modified=30)
    assert found.verdict == "update" and found.meta is not None
    assert getattr(found.meta, name) == FREE[name] and found.meta.serial_version == 2


@pytest.mark.parametrize("name", FIXED)
def test_what_must_not_change_refuses_the_whole_update(name: str) -> None:
    found = offered(KNOWN, **{name: FIXED[name]}, archived=True, date_sys_metadata_modified=30)
    assert (found.verdict, found.meta) == ("illegal", None)


@pytest.mark.parametrize(
    ("name", "value"), [("obsoletes", "o"), ("obsoleted_by", "n"), ("series_id", "s"), ("archived", True)]
)
def test_what_is_set_once_stays(name: str, value: object) -> None:
    known = {**KNOWN, "known": like(**{name: value})}
    for other in (None, "z" if isinstance(value, str) else False):
        assert offered(known, **{name: other}, date_sys_metadata_modified=30).verdict == "illegal"


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"obsoleted_by": "n"}, "update"),
        ({"archived": True}, "update"),
        ({}, "update"),
        ({"rights_holder": "rob"}, "illegal"),
        ({"obsoletes": "o"}, "illegal"),
    ],
)
def test_a_node_of_version_one_changes_little(changes: dict[str, Any], verdict: Verdict) -> None:
    assert offered({**KNOWN, "version": "v1"}, **changes, date_sys_metadata_modified=30).verdict == verdict


def test_a_policy_that_was_changed_here_does_not_keep_a_node_of_version_one_from_what_it_may_do() -> None:
    """It goes on telling the one that it gave itself; with version 1 policies are changed here."""
    ours = ReplicationPolicy(True, 3)
    known = {**KNOWN, "version": "v1", "known": like(replication_policy=ours)}
    found = offered(known, archived=True, date_sys_metadata_modified=30)
    assert found.verdict == "update" and found.meta is not None
    assert found.meta.archived and found.meta.replication_policy == ours


def test_an_older_state_takes_nothing_back() -> None:
    assert offered(KNOWN, rights_holder="rob", date_sys_metadata_modified=19).verdict == "unchanged"
    assert offered(KNOWN, obsoletes="o").verdict == "update", "links appear without a new date on some nodes"


def test_reserved_names() -> None:
    assert offered({"reserved_for": "eve"}).verdict == "unauthorised"
    assert offered({"reserved_for": "rita"}).verdict == offered({"reserved_for": "sam"}).verdict == "new"


def test_a_series_belongs_to_somebody() -> None:
    foreign = like(submitter="x", rights_holder="y", authoritative_member_node=B, series_id="s")
    assert offered({"head": foreign}, series_id="s").verdict == "unauthorised"
    assert offered({**KNOWN, "head": foreign}, series_id="s", date_sys_metadata_modified=30).verdict == "unauthorised"
    shared = msgspec.structs.replace(
        foreign, access_policy=AccessPolicy((AccessRule(("sam",), ("changePermission",)),))
    )
    for head in (like(series_id="s"), shared):
        assert offered({"head": head}, series_id="s").verdict == "new"


def test_an_identifier_is_no_series() -> None:
    assert offered({"confused": True}).verdict == "illegal"


def test_what_was_deleted_may_come_back_but_not_as_something_else() -> None:
    gone = {**KNOWN, "deleted": True}
    found = offered(gone)
    assert found.verdict == "new" and found.meta is not None and found.meta.serial_version == 2
    assert offered(gone, checksum=Checksum("bb", "SHA-1")).verdict == "duplicate"
