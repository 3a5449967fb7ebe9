"""The Coordinating Node's API over real HTTP, judged by DataONE's own client where it has a call for it."""

import asyncio
import hashlib
from pathlib import Path

import httpx
import pytest

from skep.dataone.encoding import parse
from skep.dataone.types import (
    AccessPolicy,
    AccessRule,
    Checksum,
    D1Error,
    NodeList,
    ObjectFormat,
    ObjectFormatList,
    ObjectList,
    ObjectLocationList,
    SystemMetadata,
)
from skep.testing.documents import eml
from tests.support.gmn import OfficialClient, Refused

from .cn_house import Served, served
from .objects import EML, NODE, meta_of

TRICKY = [
    *("a/b", "a%2Fb", "a?b", "a#b", "a+b", "a;b", "a\\b", "..", ".", "%", "%25", "a&b=c", "a//b", "//", "~", "*"),
    *("ü", "日本語", "doi:10.5063/F1PC30NQ", "https://pasta.lternet.edu/package/metadata/eml/knb-lter/1/2"),
    *('"quoted"', "it's", "<tag>", "{b}", "[c]", "a|b", "a^b", "`", "a,b", "(x)", "$1", "x" * 800),
]


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
    meta = await cn.official("getSystemMetadata", "a", version=1)
    assert b"types/v1" in meta
    assert b"seriesId" not in meta
    assert await cn.official("listFormats", version=1)
    assert await cn.official("listNodes", version=1)
    assert await cn.official("listObjects", version=1)
    assert (await cn.call("POST", "/cn/v1/synchronize", {"pid": "a"}, await cn.token("x"))).status_code == 501


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
        listed = parse(ObjectList, await cn.official("listObjects", token=token))
        assert (listed.total == 1) is sees
        assert ((await cn.solr(token, q="*:*"))["response"]["numFound"] == 1) is sees
        for call in ("get", "getSystemMetadata", "resolve"):
            if sees:
                await cn.official(call, "p", token=token)
                continue
            with pytest.raises(Refused) as refused:
                await cn.official(call, "p", token=token)
            assert (refused.value.name, refused.value.code) == ("NotAuthorized", 401)
    with pytest.raises(Refused) as refused:
        await cn.official("get", "p", token="nonsense")
    assert (refused.value.name, refused.value.code) == ("InvalidToken", 401)


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
    answer = await cn.call("POST", "/cn/v2/node", {"node": bomb}, token)
    assert (answer.status_code, parse(D1Error, answer.content).name) == (400, "InvalidRequest")
    answer = await cn.call("POST", "/cn/v2/node", {"node": b"x" * (11 << 20)}, token)
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
