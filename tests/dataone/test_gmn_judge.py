"""The judge: DataONE's own node is filled with varied and hostile objects and harvested, changed, harvested past a
kill -9; then what its own client sees on our Coordinating Node must be what the node has."""

import hashlib
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import IncompleteRead
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from skep.dataone.encoding import encode, parse, render, write_form
from skep.dataone.testing import MemberNode
from skep.dataone.types import (
    AccessPolicy,
    AccessRule,
    Checksum,
    MediaProperty,
    MediaType,
    ObjectList,
    ReplicationPolicy,
    SystemMetadata,
)
from skep.testing.documents import DC, EML_21, EML_22, ISO, ORE, dc, eml, iso, resource_map
from tests.dataone.objects import TRICKY
from tests.house.running import RunningSkep
from tests.support.gmn import NODE_ID, OfficialClient, Refused, running_gmn

PRIVATE = AccessPolicy((AccessRule(("CN=bob,DC=dataone,DC=org",), ("read", "write")),))
#: what a node may list and cannot give: it decodes twice
POISON = ("poison%2Fone", "poison%2Ftwo")
ILLEGAL = ("undead.1", "grows.1", "elsewhere.1")
#: one subject in several, groups, and more than reading for everybody
RULES = AccessPolicy(
    (
        AccessRule(("CN=bob",), ("read",)),
        AccessRule(("CN=bob",), ("write",)),
        AccessRule(("CN=group,DC=dataone,DC=org", "CN=amy"), ("changePermission",)),
        AccessRule(("public",), ("changePermission",)),
    )
)
WISH = ReplicationPolicy(True, 3, ("urn:node:A", "urn:node:B"), ("urn:node:C",))
MEDIA = MediaType("text/csv", (MediaProperty("utf-8", "charset"),))


class Node:
    """The Generic Member Node, written to by anybody."""

    def __init__(self, url: str) -> None:
        self.url = f"{url}/v2"
        #: makes system metadata that is true
        self._maker = MemberNode(NODE_ID)
        self._maker._server.server_close()

    def create(self, pid: str, body: bytes, format_id: str, **fields: Any) -> None:
        self._write("POST", "object", pid=pid, object=body, sysmeta=self._meta(pid, body, format_id, fields))

    def update(self, old: str, new: str, body: bytes, format_id: str, **fields: Any) -> None:
        meta = self._meta(new, body, format_id, {"obsoletes": old, **fields})
        self._write("PUT", f"object/{encode(old)}", newPid=new, object=body, sysmeta=meta)

    def change(self, pid: str, **fields: Any) -> None:
        meta = replace(self.meta(pid), **fields)
        self._write("PUT", "meta", pid=pid, sysmeta=render(meta))

    def archive(self, pid: str) -> None:
        self._ask("PUT", f"archive/{encode(pid)}")

    def delete(self, pid: str) -> None:
        self._ask("DELETE", f"object/{encode(pid)}")

    def meta(self, pid: str) -> SystemMetadata:
        return parse(SystemMetadata, self._ask("GET", f"meta/{encode(pid)}"))

    def body(self, pid: str) -> bytes:
        return self._ask("GET", f"object/{encode(pid)}")

    def listed(self) -> dict[str, Any]:
        found = parse(ObjectList, self._ask("GET", "object?start=0&count=1000"))
        assert found.total == len(found.object_info)
        return {one.identifier: one for one in found.object_info}

    def _meta(self, pid: str, body: bytes, format_id: str, fields: dict[str, Any]) -> bytes:
        return render(self._maker.put(pid, body, format_id, **fields))

    def _write(self, method: str, path: str, **parts: str | bytes) -> None:
        media, body = write_form(parts)
        self._ask(method, path, body, media)

    def _ask(self, method: str, path: str, body: bytes | None = None, media: str = "") -> bytes:
        headers = {"content-type": media} if media else {}
        request = urllib.request.Request(f"{self.url}/{path}", body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return bytes(answer.read())
        except IncompleteRead as promised:
            return promised.partial
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{method} {path}: {error.code} {error.read()[:500]!r}") from error


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with running_gmn(tmp_path_factory.mktemp("gmn")) as url:
        yield Node(url)


def fill(node: Node) -> None:
    made: list[Callable[[], None]] = [
        lambda: node.create("eml.1", eml("Glacier of the north"), EML_21),
        lambda: node.create("eml.22", eml("Glacier of the south", namespace=EML_22), EML_22),
        lambda: node.create("iso.1", iso("Currents"), ISO),
        lambda: node.create("iso.bad", iso("Upside down", box={"southBoundLatitude": 80}), ISO),
        lambda: node.create("dc.1", dc("Voyage"), DC),
        lambda: node.create("data.1", b"1,2,3", "text/csv"),
        lambda: node.create("data.2", b"4,5,6", "text/csv"),
        lambda: node.create("map.1", resource_map("map.1", {"eml.1": ["data.1", "data.2", "not yet"]}), ORE),
        lambda: node.create("private.1", eml("Hidden"), EML_21, access_policy=PRIVATE),
        lambda: node.create("broken.1", b"<eml><dataset>", EML_21),
        lambda: node.create("bomb.1", b'<!DOCTYPE x [<!ENTITY a "aa">]><x>&a;</x>', EML_21),
        lambda: node.create("md5", b"<a/>", EML_21),
        lambda: node.create("v1", eml("Version 1"), EML_21, series_id="the/series"),
        lambda: node.create("old.1", eml("Old"), EML_21),
        lambda: node.create("before.1", eml("Before"), EML_21),
        lambda: node.create("after.1", eml("After"), EML_21),
        lambda: node.create("dies.1", eml("Dies"), EML_21),
        lambda: node.create("lies.1", b"<b/>", EML_21),
        lambda: node.create("grows.1", b"<c/>", EML_21),
        lambda: node.create("undead.1", eml("Undead"), EML_21),
        lambda: node.create("rules.1", eml("Rules"), EML_21, access_policy=RULES, replication_policy=WISH),
        lambda: node.create("no.rules", eml("No rules"), EML_21, access_policy=None),
        lambda: node.create("unknown.1", b"??", 'application/x-unknown; v="1" &<>'),
        lambda: node.create("named.1", b"<a/>", "text/csv", file_name='a "b" \u2028 \u00fc.csv', media_type=MEDIA),
        lambda: node.create("empty.1", b"", "text/csv"),
        lambda: node.create("md5.1", b"hello", EML_21, checksum=Checksum(hashlib.md5(b"hello").hexdigest(), "MD5")),
        lambda: node.create("elsewhere.1", eml("Elsewhere"), EML_21, origin_member_node="urn:node:Other"),
        lambda: node.create("old.date", eml("1850"), EML_21, date_uploaded=-3_786_825_600_000),
        lambda: node.create("large.1", b"<a>" + b"x" * 2_000_000 + b"</a>", EML_21),
        lambda: node.create("\u4e2d" * 300, eml("Long"), EML_21, rights_holder='CN=\u00dc "q" & <x>,O=\u4e2d'),
        *(lambda pid=pid: node.create(pid, f"<a>{hash(pid)}</a>".encode(), EML_21) for pid in TRICKY),
        *(lambda pid=pid: node.create(pid, b"<p/>", EML_21) for pid in POISON),
    ]
    with ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(one) for one in made]:
            done.result()
    node.update("v1", "v2", eml("Version 2"), EML_21, series_id="the/series")
    node.archive("undead.1")
    # it takes any size for true; the bytes tell
    node.change("lies.1", size=99)


def mutate(node: Node) -> None:
    node.update("v2", "v3", eml("Version 3"), EML_21, series_id="the/series")
    node.archive("old.1")
    node.delete("dies.1")
    node.change("eml.22", access_policy=PRIVATE)
    node.change("private.1", rights_holder="CN=rita,DC=dataone,DC=org")
    node.create("late.1", eml("Late"), EML_21)
    # it links the other one back, and does not date that
    node.change("before.1", obsoleted_by="after.1")
    # it allows what it must not
    node.change("undead.1", archived=False)
    node.change("grows.1", size=100)
    node.change("elsewhere.1", authoritative_member_node="urn:node:Thief")
    node.change("rules.1", access_policy=None)
    node.change("no.rules", access_policy=RULES)
    node.change("named.1", format_id=EML_21)
    node.change("md5.1", series_id="begins/later", replication_policy=WISH)
    node.create("map.2", resource_map("map.2", {"iso.1": ["data.1"]}), ORE)


def until(true: Callable[[], bool], skep: RunningSkep, what: str, seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"{what}: {skep.rows('dataone', 'nodes')}{skep.tail()}"
        time.sleep(0.3)


def view(meta: SystemMetadata) -> dict[str, Any]:
    """What a node says of an object that a Coordinating Node has to repeat."""
    taken = {name: getattr(meta, name) for name in SystemMetadata.__struct_fields__}
    for name in ("serial_version", "replica"):
        del taken[name]
    taken["archived"] = bool(meta.archived)
    taken["access_policy"] = meta.access_policy and {
        (subject, one) for rule in meta.access_policy.allow for subject in rule.subject for one in rule.permission
    }
    return taken


def compare(node: Node, skep: RunningSkep, illegal: Collection[str] = ()) -> None:
    """Identifiers, checksums, bytes, versions and permissions, seen through the official client. What was changed as
    it must not be is as it was."""
    listed = node.listed()
    refused = {*POISON, "lies.1"}
    with OfficialClient(f"{skep.url}/cn", token=skep.token) as cn:
        ours = parse(ObjectList, cn.listObjects(start=0, count=1000))
        assert {one.identifier for one in ours.object_info} == set(listed) - refused
        for info in ours.object_info:
            pid = info.identifier
            theirs, mine = node.meta(pid), parse(SystemMetadata, cn.getSystemMetadata(pid))
            assert (view(mine) == view(theirs)) == (pid not in illegal), pid
            assert info.checksum == listed[pid].checksum
            if info.format_id.startswith(("text/csv", "application/x-unknown")):
                with pytest.raises(Refused, match="NotFound"):
                    cn.get(pid)
            else:
                assert cn.get(pid) == node.body(pid), pid
    with OfficialClient(f"{skep.url}/cn") as public:
        seen = {one.identifier for one in parse(ObjectList, public.listObjects(start=0, count=1000)).object_info}
        everybody = {pid for pid in set(listed) - refused if node.meta(pid).may("read", frozenset({"public"}))}
        assert seen == everybody


def test_what_the_node_has_is_what_our_client_sees(node: Node, tmp_path: Path) -> None:
    fill(node)
    count = len(node.listed())
    with RunningSkep(tmp_path / "data", poll_min=1.0, dataone_index_within=1.0) as skep:
        (source,) = skep.rows("source", "add", node.url, "--kind", "dataone")

        def objects() -> dict[str, int]:
            answer = skep.get("/api/v1/dataone/nodes", authorization=f"Bearer {skep.token}")[1]
            return next((one["objects"] for one in answer["nodes"] if one["id"] == NODE_ID), {})

        until(lambda: bool(objects()), skep, "not listed")
        skep.kill()
        skep.start()
        # what cannot be had is tried again by and by, and holds up nothing
        until(lambda: objects().get("held") == count - 3, skep, "not harvested")

        mutate(node)
        skep.rows("source", "fetch", source["id"])
        skep.kill()
        skep.start()
        skep.rows("source", "fetch", source["id"])
        skep.rows("dataone", "reconcile", NODE_ID)
        count = len(node.listed())
        until(lambda: objects().get("gone") == 1 and objects()["held"] == count - 6, skep, "not harvested again")
        compare(node, skep, ILLEGAL)

        for pid in (*POISON, "lies.1", *ILLEGAL):
            (story,) = skep.rows("dataone", "explain", pid)
            assert (story["state"] == "stored") == (pid in ILLEGAL), story
            assert (story["chapters"][-1]["verdict"] == "illegal") == (pid in ILLEGAL), story
        with OfficialClient(f"{skep.url}/cn") as cn:
            head = parse(SystemMetadata, cn.getSystemMetadata("the/series"))
            assert (head.identifier, head.obsoletes) == ("v3", "v2")

            def found(text: str) -> list[str]:
                docs = cn.query("solr", f"?q={text}&fl=id&rows=100&wt=json")["response"]["docs"]
                return sorted(one["id"] for one in docs)

            until(lambda: found("isDocumentedBy:iso.1") == ["data.1"], skep, "not indexed")
            assert found("title:glacier") == ["eml.1"], "one became private"
            assert found("isDocumentedBy:eml.1") == ["data.1", "data.2"]
            assert found("title:old") == [], "archived"
            assert found("title:version%20-obsoletedBy:*") == ["v3"]
            assert found("title:upside") == ["iso.bad"]
            assert set(found("id:*")) >= set(TRICKY)
