"""The test node itself: that it speaks as a node does, and that its faults are what they say."""

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from skep.dataone.encoding import encode, parse, read_form, show_time, write_form
from skep.dataone.testing import Faults, MemberNode
from skep.dataone.types import AccessPolicy, D1Error, Node, ObjectList, SystemMetadata


@pytest.fixture
def node() -> Iterator[MemberNode]:
    with MemberNode(token="let me in") as running:
        yield running


def get(node: MemberNode, path: str, **headers: str) -> tuple[int, bytes]:
    try:
        request = urllib.request.Request(f"{node.base}/v2{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def listed(node: MemberNode, query: str = "") -> list[str]:
    status, body = get(node, f"/object?{query}")
    assert status == 200
    return [one.identifier for one in parse(ObjectList, body).object_info]


@pytest.mark.parametrize("pid", ["a/b", "a%2Fb", "..", "ü?#+;\\", "x" * 800])
def test_objects_are_read_by_any_name(node: MemberNode, pid: str) -> None:
    meta = node.put(pid, b"1,2")
    assert listed(node) == [pid]
    assert parse(SystemMetadata, get(node, f"/meta/{encode(pid)}")[1]) == meta
    assert get(node, f"/object/{encode(pid)}") == (200, b"1,2")


def test_it_describes_itself(node: MemberNode) -> None:
    assert parse(Node, get(node, "/node")[1]).version == "v2"


def test_private_objects_are_for_who_has_the_token(node: MemberNode) -> None:
    node.put("p", b"", access_policy=AccessPolicy())
    assert listed(node) == []
    assert get(node, "/meta/p")[0] == 401
    assert get(node, "/meta/p", authorization="Bearer let me in")[0] == 200


def test_windows_pages_and_ends(node: MemberNode) -> None:
    for n in range(5):
        node.put(f"o{n}", b"", date_sys_metadata_modified=1000 * n)
    assert listed(node, f"fromDate={show_time(1000)}&toDate={show_time(3000)}") == ["o1", "o2"]
    assert listed(node, "start=3&count=1") == ["o3"]
    assert listed(node, "count=0") == []
    assert get(node, "/object?start=5")[0] == 400
    node.faults = Faults(order="descending", cap=2, empty_end=True)
    assert listed(node, "count=100") == ["o4", "o3"]
    assert listed(node, "start=5") == []
    node.faults = Faults(refuses=frozenset({"start"}), ignores=frozenset({"toDate"}))
    assert parse(D1Error, get(node, "/object?start=0")[1]).name == "InvalidRequest"
    assert len(listed(node, f"toDate={show_time(0)}")) == 5


def test_faults(node: MemberNode) -> None:
    node.put("a", b"abc")
    node.faults = Faults(missing=frozenset({"a"}))
    assert listed(node) == ["a"]
    assert parse(D1Error, get(node, "/object/a")[1]).name == "NotFound"
    node.faults = Faults(html=200)
    assert get(node, "/object")[1].startswith(b"<!DOCTYPE html>")
    node.faults = Faults(bytes_of={"a": b"lie"})
    assert get(node, "/object/a")[1] == b"lie"
    node.faults = Faults(late=frozenset({"a"}))
    assert listed(node) == []
    node.faults = Faults(zoneless=True)
    assert b"Z<" not in get(node, "/meta/a")[1]


def test_forms_survive_any_bytes() -> None:
    sent: dict[str, str | bytes] = {"pid": "a/ü", "object": bytes(range(256)) + b"\r\n--x\r\n", "empty": ""}
    assert read_form(*write_form(sent)) == {"pid": "a/ü".encode(), "object": sent["object"], "empty": b""}
