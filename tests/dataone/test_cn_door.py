"""The Coordinating Node's API over real HTTP, judged by DataONE's own client where it has a call for it."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from skep.dataone.forms import write_form
from skep.dataone.pids import encode
from skep.dataone.types import (
    AccessPolicy,
    AccessRule,
    Checksum,
    D1Error,
    Node,
    NodeList,
    ObjectFormat,
    ObjectFormatList,
    ObjectList,
    ObjectLocationList,
    Property,
    SystemMetadata,
)
from skep.dataone.xml import parse, render
from skep.errors import BadInput
from skep.model.caller import SYSTEM
from skep.model.dataone import Limits, NodeEdit
from skep.testing.documents import ORE, eml, resource_map
from skep.testing.gmn import OfficialClient, Refused
from skep.testing.membernode import MemberNode

from .cn_house import Served, served
from .objects import EML, NODE, meta_of

TRICKY = [
    *("a/b", "a%2Fb", "a?b", "a#b", "a+b", "a;b", "a\\b", "..", ".", "%", "%25", "a&b=c", "a//b", "//", "~", "*"),
    *("ü", "日本語", "doi:10.5063/F1PC30NQ", "https://pasta.lternet.edu/package/metadata/eml/knb-lter/1/2"),
    *('"quoted"', "it's", "<tag>", "{b}", "[c]", "a|b", "a^b", "`", "a,b", "(x)", "$1", "x" * 800),
]


@pytest.fixture
async def cn(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as running:
        yield running


@pytest.fixture
def node() -> Iterator[MemberNode]:
    with MemberNode(NODE) as running:
        yield running


async def official(cn: Served, name: str, *args: Any, token: str = "", version: int = 2, **more: Any) -> Any:
    """One call of the official client, which fails on whatever its schemas do not allow."""

    def work() -> Any:
        with OfficialClient(cn.base, token=token, version=version) as client:
            return client.call(name, *args, **more)

    return await asyncio.to_thread(work)


async def test_the_official_client_reads_everything(cn: Served) -> None:
    body = eml("Snow")
    meta = meta_of("a/b", body, series_id="sid/1", file_name="x.xml")
    await cn.put("a/b", body, series_id="sid/1", file_name="x.xml")
    await cn.put("d", None, format_id="text/csv", size=5, checksum=Checksum("0" * 40, "SHA-1"))
    await cn.core.dataone.index.drain()

    def work() -> None:
        with OfficialClient(cn.base) as client:
            assert client.ping() is True
            assert parse(NodeList, client.listNodes()).node[0].type == "cn"
            assert len(parse(ObjectFormatList, client.listFormats()).object_format) == 160
            assert parse(ObjectFormat, client.getFormat(EML)).format_type == "METADATA"
            assert b"SHA-1" in client.listChecksumAlgorithms()
            for id in ("a/b", "sid/1"):
                found = parse(SystemMetadata, client.getSystemMetadata(id))
                assert (found.identifier, found.checksum, found.file_name) == ("a/b", meta.checksum, "x.xml")
                assert client.get(id) == body
            described = client.describe("d")
            assert described["dataone-checksum"] == "SHA-1," + "0" * 40
            assert described["content-length"] == "5"
            assert parse(Checksum, client.getChecksum("a/b")) == meta.checksum
            listed = parse(ObjectList, client.listObjects(start=0, count=10, nodeId=NODE))
            assert ([one.identifier for one in listed.object_info], listed.total) == (["a/b", "d"], 2)
            listed = parse(
                ObjectList, client.listObjects(formatId="text/csv", fromDate={"time": "1970-01-01T00:00:01"})
            )
            assert [one.identifier for one in listed.object_info] == ["d"]
            places = parse(ObjectLocationList, client.resolve("sid/1"))
            assert places.identifier == "a/b"
            assert places.object_location[-1].url == f"{cn.base}/v2/object/a%2Fb"
            assert [one.identifier for one in parse(ObjectList, client.search("solr", "q=title:snow")).object_info] == [
                "a/b"
            ]
            for post in (False, True):
                found = client.query("solr", "?q=title:snow&wt=json", do_post=post)
                assert [one["id"] for one in found["response"]["docs"]] == ["a/b"]
            assert b'<str name="id">a/b</str>' in client.query("solr", "?q=title:snow")
            assert b"northBoundCoord" in client.getQueryEngineDescription("solr")
            for call in ("getSystemMetadata", "get", "resolve", "getChecksum", "describe"):
                with pytest.raises(Refused) as refused:
                    client.call(call, "nothing")
                assert (refused.value.name, refused.value.code) == ("NotFound", 404)

    await asyncio.to_thread(work)


async def test_version_1_is_spoken(cn: Served) -> None:
    await cn.put("a", eml("Snow"), series_id="sid")
    meta = await official(cn, "getSystemMetadata", "a", version=1)
    assert b"types/v1" in meta
    assert b"seriesId" not in meta
    assert await official(cn, "listFormats", version=1)
    assert await official(cn, "listNodes", version=1)
    assert await official(cn, "listObjects", version=1)
    assert (await _call(cn, "POST", "/cn/v1/synchronize", {"pid": "a"}, await cn.token("x"))).status_code == 501


async def test_a_zone_that_was_not_encoded_is_understood(cn: Served) -> None:
    await cn.put("a", eml("Snow"))
    async with cn.client() as client:
        answer = await client.get("/cn/v2/object?fromDate=1960-01-01T00:00:00.000+02:00")
    assert parse(ObjectList, answer.content).total == 1


async def test_any_identifier_is_read(cn: Served) -> None:
    for n, pid in enumerate(TRICKY):
        await cn.put(pid, f"<a>{n}</a>".encode())

    def work() -> None:
        with OfficialClient(cn.base) as client:
            for n, pid in enumerate(TRICKY):
                if pid in (".", ".."):  # it takes them for folders
                    continue
                assert client.get(pid) == f"<a>{n}</a>".encode(), pid
                assert parse(SystemMetadata, client.getSystemMetadata(pid)).identifier == pid
            listed = parse(ObjectList, client.listObjects(start=0, count=100))
            assert sorted(one.identifier for one in listed.object_info) == sorted(TRICKY)

    await asyncio.to_thread(work)
    async with cn.client() as client:
        for pid in (".", ".."):
            path = pid.replace(".", "%2E")
            assert (await client.get(httpx.URL(cn.url, raw_path=f"/cn/v2/object/{path}".encode()))).status_code == 200


async def test_what_a_node_says_begins_no_header(cn: Served) -> None:
    await cn.put("sly", format_id="x\r\nSet-Cookie: a=b")
    async with cn.client() as client:
        answer = await client.head("/cn/v2/object/sly")
    assert answer.status_code == 200 and "set-cookie" not in answer.headers
    assert answer.headers["dataone-formatid"] == "x  Set-Cookie: a=b"


async def test_private_objects_are_for_their_readers(cn: Served) -> None:
    policy = AccessPolicy((AccessRule(("CN=bob,DC=dataone",), ("read",)),))
    await cn.put("p", eml("Secret"), access_policy=policy)
    await cn.core.dataone.index.drain()
    bob, eve = await cn.token("CN=bob,DC=dataone"), await cn.token("CN=eve")
    for token, sees in ((bob, True), (eve, False), ("", False), (await cn.token("root", "admin"), True)):
        listed = parse(ObjectList, await official(cn, "listObjects", token=token))
        assert (listed.total == 1) is sees
        assert ((await cn.solr(token, q="*:*"))["response"]["numFound"] == 1) is sees
        for call in ("get", "getSystemMetadata", "resolve"):
            if sees:
                await official(cn, call, "p", token=token)
                continue
            with pytest.raises(Refused) as refused:
                await official(cn, call, "p", token=token)
            assert (refused.value.name, refused.value.code) == ("NotAuthorized", 401)
    with pytest.raises(Refused) as refused:
        await official(cn, "get", "p", token="nonsense")
    assert (refused.value.name, refused.value.code) == ("InvalidToken", 401)


async def test_resolve_leads_to_nodes(cn: Served, node: MemberNode) -> None:
    await _approved(cn, node)
    await cn.put("a/ü", eml("Snow"))
    async with cn.client() as client:
        answer = await client.get(f"/cn/v2/resolve/{encode('a/ü')}")
    assert answer.status_code == 303
    assert answer.headers["location"] == f"{node.base}/v2/object/{encode('a/ü')}"
    places = parse(ObjectLocationList, answer.content).object_location
    assert [place.node_identifier for place in places] == [NODE, cn.core.dataone.store.cn]
    sql = "UPDATE replica SET status = 'invalidated' WHERE node = :node"
    await cn.core.dataone.store.db.write(lambda tx: tx.rows(sql, node=NODE))
    places = parse(ObjectLocationList, await official(cn, "resolve", "a/ü")).object_location
    assert [place.node_identifier for place in places] == [cn.core.dataone.store.cn], "who lost it has it not"


async def test_reservations_in_both_spellings(cn: Served) -> None:
    bob, eve = await cn.token("bob"), await cn.token("eve")
    assert b"a/b" in await official(cn, "reserveIdentifier", "a/b", token=bob)
    with pytest.raises(Refused) as refused:
        await official(cn, "reserveIdentifier", "a/b", token=eve)
    assert refused.value.name == "IdentifierNotUnique"
    assert await official(cn, "hasReservation", "a/b", "bob") is True
    assert await official(cn, "hasReservation", "a/b", "eve") is False
    matt = "CN=Matt Jones A729,O=Google,C=US,DC=cilogon,DC=org"
    await official(cn, "reserveIdentifier", "my/new_pid", token=await cn.token(matt))
    assert await official(cn, "hasReservation", "my/new_pid", matt) is True
    assert await official(cn, "hasReservation", "my/new_pid", "CN=Matt Jones") is False
    answer = await _call(cn, "POST", "/cn/v2/reserve", {"pid": "c"}, bob)
    assert answer.status_code == 200
    async with cn.client() as client:
        assert (await client.get("/cn/v2/reserve/c?subject=bob")).status_code == 200
        assert (await client.get("/cn/v2/reserve/c?subject=eve")).status_code == 404
    assert (await _call(cn, "POST", "/cn/v2/reserve", {"pid": "d"}, "")).status_code == 401


async def test_what_is_there_already_is_reserved_by_nobody(cn: Served) -> None:
    """Else its owner could not change it any more."""
    await cn.put("a", eml("Snow"))
    with pytest.raises(Refused, match="IdentifierNotUnique"):
        await official(cn, "reserveIdentifier", "a", token=await cn.token("CN=eve"))
    assert await cn.core.dataone.store.reserved_for("a") is None


async def test_nodes_register_and_wait_for_approval(cn: Served, node: MemberNode) -> None:
    subject = node.document().subject[0]
    own, other = await cn.token(subject, "read", "write"), await cn.token("CN=other", "read", "write")
    document = {"xml": render(node.document()).decode()}
    await official(cn, "register", document, token=own)
    assert NODE not in {one.identifier for one in parse(NodeList, await official(cn, "listNodes")).node}
    with pytest.raises(Refused) as refused:
        await official(cn, "register", document, token=own)
    assert refused.value.name == "IdentifierNotUnique"
    with pytest.raises(Refused) as refused:
        await official(cn, "updateNodeCapabilities", NODE, document, token=other)
    assert refused.value.name == "NotAuthorized"
    await official(cn, "updateNodeCapabilities", NODE, document, token=own)
    await cn.core.dataone.nodes.approve(SYSTEM, NODE)
    assert NODE in {one.identifier for one in parse(NodeList, await official(cn, "listNodes")).node}
    async with cn.client() as client:
        assert parse(Node, (await client.get(f"/cn/v2/node/{NODE}")).content).base_url == node.base


async def test_no_node_makes_itself_a_coordinating_one(cn: Served, node: MemberNode) -> None:
    """Whoever trusts us would believe it."""
    token = await cn.token(node.document().subject[0], "read", "write")
    grand: dict[str, str | bytes] = {"node": render(replace(node.document(), type="cn"))}
    assert (await _call(cn, "POST", "/cn/v2/node", grand, token)).status_code == 400
    await _approved(cn, node)
    assert (await _call(cn, "PUT", f"/cn/v2/node/{NODE}", grand, token)).status_code == 400
    plain: dict[str, str | bytes] = {"node": render(node.document())}
    assert (await _call(cn, "PUT", f"/cn/v2/node/{NODE}", plain, token)).status_code == 200


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("connections", "0"),
        ("connections", "1000000"),
        ("rate", "nan"),
        ("rate", "-1"),
        ("rate", "1e-9"),
        ("bytes", "1" + "0" * 30),
    ],
)
async def test_limits_that_make_no_sense_are_not_taken_over(cn: Served, node: MemberNode, key: str, value: str) -> None:
    given = replace(node.document(), properties=(Property(value, key), Property("7", "unheard-of")))
    await cn.core.dataone.nodes.register(SYSTEM, given)
    (shown,) = await cn.core.dataone.nodes.list(SYSTEM)
    assert shown.limits == Limits()
    with pytest.raises(BadInput, match="limits of a node"):
        await cn.core.dataone.nodes.set(SYSTEM, NODE, NodeEdit(**{key: float(value)}))  # type: ignore[arg-type]


async def test_signals_and_replicas_are_for_nodes(cn: Served, node: MemberNode) -> None:
    await _approved(cn, node)
    await cn.put("a", eml("Snow"))
    own, other = await cn.token(node.document().subject[0]), await cn.token("CN=other")
    assert await official(cn, "synchronize", "a", token=own) is True
    with pytest.raises(Refused) as refused:
        await official(cn, "synchronize", "a", token=other)
    with pytest.raises(Refused, match="speaks for no node"):
        await official(cn, "synchronize", "unknown", token=other)
    assert refused.value.name == "NotAuthorized"
    with pytest.raises(Refused) as refused:
        await official(cn, "setReplicationStatus", "a", NODE, "completed", token=other)
    assert refused.value.name in ("NotAuthorized", "NotFound")
    async with cn.client() as client:
        answer = await client.get("/cn/v2/replicaAuthorizations/a?targetNodeSubject=CN%3Dx")
    assert answer.status_code == 401
    answer = await _call(
        cn, "PUT", "/cn/v2/replicaPolicies/a", {"policy": b"<p/>", "serialVersion": "1"}, await cn.token("r", "admin")
    )
    assert answer.status_code == 400
    policy = b'<d:replicationPolicy xmlns:d="http://ns.dataone.org/service/types/v1" replicationAllowed="false"/>'
    answer = await _call(
        cn, "PUT", "/cn/v2/replicaPolicies/a", {"policy": policy, "serialVersion": "99"}, await cn.token("r", "admin")
    )
    assert parse(D1Error, answer.content).name == "VersionMismatch"


async def test_the_checksum_in_another_algorithm_is_computed(cn: Served) -> None:
    await cn.put("a", b"<a/>")
    async with cn.client() as client:
        answer = await client.get("/cn/v2/checksum/a?checksumAlgorithm=sha256")
        assert parse(Checksum, answer.content) == Checksum(hashlib.sha256(b"<a/>").hexdigest(), "SHA-256")
        answer = await client.get("/cn/v2/checksum/a?checksumAlgorithm=SHA1")
        assert parse(Checksum, answer.content).algorithm == "SHA-1"
        assert (await client.get("/cn/v2/checksum/a?checksumAlgorithm=CRC")).status_code == 400


ERRORS: list[tuple[str, str, int, str]] = [
    ("GET", "/cn/v3/node", 501, "NotImplemented"),
    ("GET", "/cn/v2/nonsense", 501, "NotImplemented"),
    ("DELETE", "/cn/v2/object/a", 501, "NotImplemented"),
    ("GET", "/cn/v2/object/%20", 400, "InvalidRequest"),
    ("GET", "/cn/v2/object/" + "x" * 801, 400, "InvalidRequest"),
    ("GET", "/cn/v2/object/%ff", 400, "InvalidRequest"),
    ("GET", "/cn/v2/object?count=-1", 400, "InvalidRequest"),
    ("GET", "/cn/v2/object?fromDate=yesterday", 400, "InvalidRequest"),
    ("GET", "/cn/v2/query/lucene/?q=x", 501, "NotImplemented"),
    ("GET", "/cn/v2/query/solr/?q=nofield:x", 400, "InvalidRequest"),
    ("GET", "/cn/v2/query/solr/?q=(a", 400, "InvalidRequest"),
    ("GET", "/cn/v2/query/solr/?q=a&wt=php", 400, "InvalidRequest"),
    ("GET", "/cn/v2/query/solr/?q=a&rows=x", 400, "InvalidRequest"),
    ("GET", "/cn/v2/query/solr/?q=id:" + "a?" * 300, 400, "InvalidRequest"),
    ("GET", "/cn/v2/query/solr/?q=a&facet=true" + "&facet.query=a" * 1_001, 400, "InvalidRequest"),
    ("GET", "/cn/v2/meta/", 400, "InvalidRequest"),
    ("GET", "/cn/v2/meta/a/b", 400, "InvalidRequest"),
    ("GET", "/cn/v2/resolve/a/b", 400, "InvalidRequest"),
    ("POST", "/cn/v2/synchronize", 400, "InvalidRequest"),
]


async def test_errors_are_typed(cn: Served, subtests: pytest.Subtests) -> None:
    await cn.put("a", b"<a/>")
    for method, path, status, name in ERRORS:
        with subtests.test(ascii((method, path, status, name))[:200]):
            async with cn.client(await cn.token("root", "admin")) as client:
                answer = await client.request(method, path)
            assert (answer.status_code, parse(D1Error, answer.content).name) == (status, name)
            assert answer.headers["content-type"].startswith("text/xml")


async def test_bytes_that_are_lost_are_said_to_be(cn: Served, tmp_path: Path) -> None:
    """Before the answer begins: afterwards there would be half of one."""
    await cn.put("a", b"<a/>")
    for file in [one for one in tmp_path.rglob("*") if one.is_file() and one.read_bytes() == b"<a/>"]:
        file.unlink()
    async with cn.client() as client:
        for path in ("object/a", "checksum/a?checksumAlgorithm=MD5"):
            answer = await client.get(f"/cn/v2/{path}")
            assert (answer.status_code, parse(D1Error, answer.content).name) == (404, "NotFound")


async def test_a_form_that_cannot_be_read_is_refused(cn: Served) -> None:
    head = {"content-type": "multipart/form-data; boundary=B"}
    part = b"--B\r\nContent-Type: @?==?utf-8?b?x; filename*=\"utf-8''\r\n\r\nx\r\n--B--\r\n"
    async with cn.client(await cn.token("root", "admin")) as client:
        answer = await client.post("/cn/v2/reserve", content=part, headers=head)
    assert (answer.status_code, parse(D1Error, answer.content).name) == (400, "InvalidRequest")


async def test_hostile_documents_are_refused(cn: Served) -> None:
    bomb = b'<!DOCTYPE x [<!ENTITY a "aaaa">]><d:node xmlns:d="http://ns.dataone.org/service/types/v2.0">&a;</d:node>'
    token = await cn.token("root", "admin")
    answer = await _call(cn, "POST", "/cn/v2/node", {"node": bomb}, token)
    assert (answer.status_code, parse(D1Error, answer.content).name) == (400, "InvalidRequest")
    answer = await _call(cn, "POST", "/cn/v2/node", {"node": b"x" * (11 << 20)}, token)
    assert (answer.status_code, parse(D1Error, answer.content).name) == (413, "InsufficientResources")


async def test_certificates_are_believed_of_named_proxies_only(tmp_path: Path) -> None:
    policy = AccessPolicy((AccessRule(("CN=bob,DC=dataone,DC=org",), ("read",)),))
    shown = {"x-client-subject": "/DC=org/DC=dataone/CN=bob"}
    for proxies, status in (((), 401), (("10.0.0.0/8",), 401), (("127.0.0.1",), 200)):
        async with served(tmp_path / str(status) / str(len(proxies)), trusted_proxies=proxies) as cn:
            await cn.put("p", eml("Secret"), access_policy=policy)
            async with cn.client(**shown) as client:
                assert (await client.get("/cn/v2/object/p")).status_code == status
                assert (await client.post("/api/v1/sources", json={"url": "x"})).status_code == 401


async def test_where_reading_needs_a_token_strangers_are_told_so(tmp_path: Path) -> None:
    async with served(tmp_path, open_read=False) as cn:
        await cn.put("a", eml("Snow"))
        async with cn.client() as client:
            for path in ("object", "object/a", "node", "query/solr/?q=*:*"):
                answer = await client.get(f"/cn/v2/{path}")
                assert (answer.status_code, parse(D1Error, answer.content).name) == (401, "NotAuthorized")


async def test_moments_are_those_of_solr(cn: Served) -> None:
    """To the millisecond: who asks for what came after the last one seen must not lose what came in the same second."""
    for pid, at in (("a", 1_200), ("b", 1_700)):
        await cn.put(pid, eml(pid), date_uploaded=at)
    await cn.core.dataone.index.drain()
    for text, found in {
        "[1970-01-01T00:00:01.200Z TO *]": ["a", "b"],
        "{1970-01-01T00:00:01.200Z TO *]": ["b"],
        "[1970-01-01T00:00:01.201Z TO *]": ["b"],
        "[* TO 1970-01-01T00:00:01.7Z}": ["a"],
        "[* TO 1970-01-01T00:00:01.7Z]": ["a", "b"],
        "[* TO 1970-01-01T00:00:01Z]": [],
        "{1970-01-01T00:00:01Z TO *]": ["a", "b"],
        '"1970-01-01T00:00:01.200Z"': ["a"],
        "1970-01-01T00\\:00\\:01.700Z": ["b"],
    }.items():
        answer = await cn.solr(q=f"dateUploaded:{text}", fl="id", sort="id asc")
        assert [one["id"] for one in answer["response"]["docs"]] == found, text


async def test_solr(cn: Served) -> None:
    for n in range(3):
        await cn.put(f"p{n}", eml(f"Glacier {n}"), date_uploaded=1000 * n, rights_holder=f"r{n % 2}")
    await cn.put("map", resource_map("map", {"p0": ["p1"]}), format_id=ORE)
    await cn.core.dataone.index.drain()
    await cn.core.dataone.index.drain()
    answer = await cn.solr(q="title:glacier", fl="id,dateUploaded", sort="dateUploaded desc", rows=2, start=1)
    assert answer["response"] == {
        "numFound": 3,
        "start": 1,
        "docs": [
            {"id": "p1", "dateUploaded": "1970-01-01T00:00:01Z"},
            {"id": "p0", "dateUploaded": "1970-01-01T00:00:00Z"},
        ],
    }
    answer = await cn.solr(q="*:*", fq="formatType:METADATA", facet="true", **{"facet.field": "rightsHolder"}, rows=0)
    assert answer["facet_counts"]["facet_fields"] == {"rightsHolder": ["r0", 2, "r1", 1]}
    assert answer["response"]["docs"] == []
    answer = await cn.solr(q="title:glacier", fl="id", sort="rightsHolder desc,dateUploaded desc")
    assert [one["id"] for one in answer["response"]["docs"]] == ["p1", "p2", "p0"]
    counts: dict[str, Any] = {
        "facet": "true",
        "facet.field": "rightsHolder",
        "facet.mincount": 2,
        "facet.query": "id:p1",
        "rows": 0,
    }
    answer = (await cn.solr(q="title:glacier", **counts))["facet_counts"]
    assert answer == {"facet_queries": {"id:p1": 1}, "facet_fields": {"rightsHolder": ["r0", 2]}}
    for text, found in {
        "id:p1": ["p1"],
        "title:glacier AND dateUploaded:[NOW-1DAY TO NOW]": [],
        "title:glacier AND dateUploaded:[* TO NOW/DAY]": ["p0", "p1", "p2"],
        "id:*": ["map", "p0", "p1", "p2"],
        "*:* AND -resourceMap:*": ["map", "p2"],
        'resourceMap:"map" OR id:p2': ["p0", "p1", "p2"],
        "+title:glacier -id:p0": ["p1", "p2"],
        "title:glacier && !id:p0": ["p1", "p2"],
        "(id:p0 OR id:p1) AND isDocumentedBy:p0": ["p1"],
        "formatId:*openarchives*": ["map"],
        "formatId:eml\\:\\/\\/ecoinformatics.org\\/eml\\-2.1.1": ["p0", "p1", "p2"],
        "beginDate:[* TO NOW] AND endDate:[2003-01-01T00:00:00Z TO *]": ["p0", "p1", "p2"],
        "title:glaci*^2": ["p0", "p1", "p2"],
        "title:gl?ci?r": ["p0", "p1", "p2"],
        "id:m?p": ["map"],
        "id:m\\?p": [],
        "formatId:eml\\:\\/\\/ecoinformatics.org\\/*": ["p0", "p1", "p2"],
        "origin:Ada\\ B?\\ L*": ["p0", "p1", "p2"],
        "northBoundCoord:[68 TO 69]": ["p0", "p1", "p2"],
        "title:glacier AND NOT(id:p0 OR id:p1)": ["p2"],
        "NOT(id:p0) AND NOT title:glacier": ["map"],
        "formatId:(eml\\:\\/\\/ecoinformatics.org\\/eml\\-2.1.1 OR urn\\:x)": ["p0", "p1", "p2"],
        "(id:p0 OR id:p1)^2 AND size:[1 TO *]^0.5": ["p0", "p1"],
        "resourceMap:[* TO *]": ["p0", "p1"],
        "-title:[* TO *]": ["map"],
        "id:[* TO *] AND isPublic:[* TO *]": ["map", "p0", "p1", "p2"],
        "title:(\\-glacier)": ["p0", "p1", "p2"],
        "title:glacier\\:": ["p0", "p1", "p2"],
    }.items():
        answer = await cn.solr(q=text, fl="id", rows=100)
        assert sorted(one["id"] for one in answer["response"]["docs"]) == found, text
    async with cn.client() as client:
        xml = (await client.get("/cn/v2/query/solr/", params={"q": "id:p1", "wt": "xml", "facet": "true"})).text
        assert '<result name="response" numFound="1" start="0">' in xml
        assert '<arr name="origin"><str>Ada B. Lovelace</str>' in xml
        assert '<date name="beginDate">1999-01-01T00:00:00Z</date>' in xml
        assert "readers" not in xml
        sheet = await client.get("/cn/v2/query/solr/", params={"q": "id:p1", "fl": "id,rightsHolder", "wt": "csv"})
        assert (sheet.headers["content-type"].split(";")[0], sheet.text) == ("text/csv", "id,rightsHolder\np1,r1\n")
    for start, rows, ids in (
        (2, 2_147_483_647, ["p1", "p2"]),
        (2, 20_000, ["p1", "p2"]),
        (9_999, 10, []),
        (10_000, 10, []),
        (123_456, 0, []),
    ):
        answer = (await cn.solr(q="*:*", fl="id", sort="id asc", start=start, rows=rows))["response"]
        assert (answer["numFound"], answer["start"], [one["id"] for one in answer["docs"]]) == (4, start, ids)
    async with cn.client() as client:
        answer = await client.get("/cn/v2/search/solr/q=title:glacier?start=10000&count=5")
    beyond = parse(ObjectList, answer.content)
    assert (beyond.total, beyond.start, beyond.object_info) == (3, 10_000, ())
    async with cn.client() as client:
        posted = await client.post("/cn/v2/query/solr", data={"q": "id:p2", "fl": "id", "wt": "json"})
        assert posted.json()["response"]["docs"] == [{"id": "p2"}]


async def _call(cn: Served, method: str, path: str, parts: dict[str, str | bytes], token: str) -> httpx.Response:
    media, body = write_form(parts)
    async with cn.client(token) as client:
        return await client.request(method, path, content=body, headers={"content-type": media})


async def _approved(cn: Served, node: MemberNode) -> None:
    await cn.core.dataone.nodes.register(SYSTEM, node.document())
    await cn.core.dataone.nodes.approve(SYSTEM, NODE)
