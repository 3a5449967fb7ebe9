"""Documents of DataONE: what comes in is hostile, what goes out is valid."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.base.errors import BadInput
from skep.dataone import encoding
from skep.dataone.encoding import parse, read_time, render, show_time
from skep.dataone.types import (
    AccessPolicy,
    AccessRule,
    Checksum,
    D1Error,
    MediaProperty,
    MediaType,
    Node,
    ObjectInfo,
    ObjectList,
    Replica,
    ReplicationPolicy,
    Schedule,
    Service,
    Services,
    Synchronization,
    SystemMetadata,
)

V2 = "http://ns.dataone.org/service/types/v2.0"
FULL = SystemMetadata(
    serial_version=3,
    identifier="doi:10.5/A&B<1>",
    format_id="eml://ecoinformatics.org/eml-2.1.1",
    size=12,
    checksum=Checksum("ab" * 20, "SHA-1"),
    submitter="CN=me",
    rights_holder="CN=you",
    access_policy=AccessPolicy((AccessRule(("public",), ("read",)), AccessRule(("a", "b"), ("write", "read")))),
    replication_policy=ReplicationPolicy(True, 2, ("urn:node:A",), ("urn:node:B",)),
    obsoletes="old",
    obsoleted_by="new",
    archived=False,
    date_uploaded=1,
    date_sys_metadata_modified=1_700_000_000_123,
    origin_member_node="urn:node:A",
    authoritative_member_node="urn:node:A",
    replica=(Replica("urn:node:C", "completed", 5),),
    series_id="ser",
    media_type=MediaType("text/csv", (MediaProperty("utf-8", "charset"),)),
    file_name="a.csv",
)
SMALL = (
    "<identifier>{pid}</identifier><formatId>f</formatId><size>1</size>"
    '<checksum algorithm="sha1">AB</checksum><rightsHolder>r</rightsHolder>'
)


def document(inner: str, namespace: str = V2, before: str = "") -> bytes:
    return f'{before}<x:systemMetadata xmlns:x="{namespace}">{inner}</x:systemMetadata>'.encode()


def test_system_metadata_survives_the_journey() -> None:
    assert parse(SystemMetadata, render(FULL)) == FULL


def test_version_one_leaves_out_what_it_does_not_know() -> None:
    text = render(FULL, 1)
    assert b"seriesId" not in text and b"types/v1" in text
    back = parse(SystemMetadata, text)
    assert (back.series_id, back.obsoletes) == (None, "old")


def test_a_node_survives_the_journey() -> None:
    node = Node(
        identifier="urn:node:A",
        name="A",
        description="d",
        base_url="https://mn.example/mn",
        services=Services((Service("MNRead", "v1"), Service("MNRead", "v2", False))),
        synchronization=Synchronization(Schedule(hour="*", mday="*", min="0/5", wday="?")),
        subject=("CN=a",),
        contact_subject=("CN=b",),
        replicate=True,
        synchronize=True,
    )
    assert parse(Node, render(node)) == node
    assert node.version == "v2"


def test_lists_stay_version_one() -> None:
    found = ObjectList((ObjectInfo("p", "f", Checksum("a", "MD5"), 7, 1),), 1, 0, 1)
    assert b"types/v1" in render(found) and parse(ObjectList, render(found)) == found


def test_errors_have_no_namespace() -> None:
    error = D1Error("NotFound", 404, "1800", "no <such> thing", identifier="a&b")
    assert b"xmlns" not in render(error) and parse(D1Error, render(error)) == error


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31T12:00:00",
        "2026-01-31T12:00:00Z",
        "2026-01-31T12:00:00.0000",
        "2026-01-31T12:00:00.000999+00:00",
        "2026-01-31T13:00:00.0+01:00",
        " 2026-01-31T12:00:00.000000000Z ",
    ],
)
def test_times_in_every_spelling(text: str) -> None:
    assert show_time(read_time(text)) == "2026-01-31T12:00:00.000Z"


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01T00:00:00Z", "99999-01-01T00:00:00"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(BadInput):
        read_time(text)


@given(st.integers(-2_000_000_000_000, 200_000_000_000_000))
def test_times_there_and_back(time: int) -> None:
    assert read_time(show_time(time)) == time


def test_prefixes_instructions_and_unknown_elements_are_borne() -> None:
    before = '<?xml version="1.0"?><?xml-stylesheet type="text/xsl" href="x.xsl"?>'
    inner = SMALL.format(pid="p") + "<novelty><deep/></novelty><archived>1</archived>"
    found = parse(SystemMetadata, document(inner, before=before))
    assert found.archived is True and found.checksum.name == "SHA-1"


BOMB = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'
EXTERNAL = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'


@pytest.mark.parametrize(
    "data",
    [
        document(SMALL.format(pid="&b;"), before=BOMB),
        document(SMALL.format(pid="&a;"), before=EXTERNAL),
        document(SMALL.format(pid="p"), namespace="http://example.org/"),
        document(SMALL.format(pid="has blank")),
        document(SMALL.format(pid="")),
        document(SMALL.format(pid="p" * 801)),
        document(SMALL.format(pid="p") + "<archived>maybe</archived>"),
        document(SMALL.format(pid="p").replace("<size>1<", "<size>-1<")),
        document("<identifier>p</identifier>"),
        document("<a>" * 100 + "</a>" * 100),
        b"<html><body>Bad Gateway</body></html>",
        b"",
        b"\xff\xfe\x00",
        b'<?xml version="1.0" encoding="klingon"?><a/>',
        b"not xml",
        b" " * (11 << 20),
    ],
)
def test_bad_documents_are_refused(data: bytes) -> None:
    with pytest.raises(BadInput):
        parse(SystemMetadata, data)


@given(st.binary(max_size=200))
def test_no_bytes_are_too_strange(data: bytes) -> None:
    with pytest.raises(BadInput):
        parse(SystemMetadata, data)


TRICKY = {
    "common-ascii-doc-example-id": "common-ascii-doc-example-id",
    "a/b": "a%2Fb",
    "a%2Fb": "a%252Fb",
    "a?b#c": "a%3Fb%23c",
    "a+b": "a%2Bb",
    "a;b": "a%3Bb",
    "a\\b": "a%5Cb",
    "a:@$!*()',~&=b": "a:@$!*()',~&=b",
    "..": "%2E%2E",
    ".": "%2E",
    "a/../b": "a%2F..%2Fb",
    "//": "%2F%2F",
    '"<>{}|^`[]': "%22%3C%3E%7B%7D%7C%5E%60%5B%5D",
    "ascii_ü_é_日本_🐝": "ascii_%C3%BC_%C3%A9_%E6%97%A5%E6%9C%AC_%F0%9F%90%9D",
    "e\u0301": "e%CC%81",
    "x" * 800: "x" * 800,
}


@pytest.mark.parametrize("pid", TRICKY)
def test_tricky_identifiers(pid: str) -> None:
    assert encoding.encode(pid) == TRICKY[pid]
    assert encoding.decode(encoding.encode(pid)) == pid
    assert parse(SystemMetadata, render(msgspec.structs.replace(FULL, identifier=pid))).identifier == pid


@given(st.text(min_size=1, max_size=40).filter(lambda pid: pid.isprintable() and not any(map(str.isspace, pid))))
def test_any_identifier_is_one_segment(pid: str) -> None:
    segment = encoding.encode(pid)
    assert "/" not in segment and segment not in (".", "..") and encoding.decode(segment) == pid


@pytest.mark.parametrize("bad", ["", "a b", "a\tb", "a\u00a0b", "\x00", "p" * 801])
def test_what_is_no_identifier(bad: str) -> None:
    with pytest.raises(BadInput):
        encoding.check(bad)


def test_checksums_agree_whatever_their_spelling() -> None:
    known = Checksum("ABCD", "SHA-1")
    assert [known.agrees(Checksum(value, name)) for value, name in (("abcd", "sha1"), ("ffff", "SHA1"))] == [
        True,
        False,
    ]
    assert known.agrees(Checksum("abcd", "MD5")) is None
    assert Checksum("", "sha_256").hash().name == "sha256"


def test_permissions_include_lesser_ones() -> None:
    assert FULL.may("read", frozenset({"public"})) and not FULL.may("write", frozenset({"public"}))
    assert FULL.may("write", frozenset({"a"})) and FULL.may("changePermission", frozenset({"CN=you"}))


def test_what_is_empty_is_not_there() -> None:
    """Nobody could read a document with it: the schemas know no empty names, and no lists of nothing."""
    found = parse(SystemMetadata, document(SMALL.format(pid="a") + "<submitter> </submitter><accessPolicy/>"))
    assert (found.submitter, found.access_policy) == (None, None)
    with pytest.raises(BadInput, match="has no rightsHolder"):
        parse(SystemMetadata, document(SMALL.format(pid="a").replace(">r<", "><")))


@pytest.mark.parametrize("text", ["1_000", "9223372036854775808", "\u0665", "5.0", "-1", "1e3"])
def test_numbers_that_are_none(text: str) -> None:
    with pytest.raises(BadInput, match="no whole number"):
        parse(SystemMetadata, document(SMALL.format(pid="a").replace("<size>1<", f"<size>{text}<")))


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_times_that_cannot_be_written_are_not_read(text: str) -> None:
    with pytest.raises(BadInput, match="no time"):
        read_time(text)
    assert show_time(read_time(text[:19])) == f"{text[:19]}.000Z"


def test_an_entry_that_cannot_be_read_hides_no_other() -> None:
    infos = tuple(ObjectInfo(pid, "f", Checksum("aa", "MD5"), 1, 2) for pid in ("a", "b c", "d"))
    found = parse(ObjectList, render(ObjectList(infos, 3, 0, 3)))
    assert [one.identifier for one in found.object_info] == ["a", "d"]
    assert "'b c'" in found.unread[0] and b"unread" not in render(found)
