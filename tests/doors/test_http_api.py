"""The API's shapes, over real rooms."""

import logging
from typing import Any

import httpx
import msgspec
import pytest

from skep.base.answers import Added, ErrorAnswer, NewToken, Page, Status, TokenInfo
from skep.base.caller import SYSTEM
from skep.search.api import SearchAnswer
from skep.sources.model import Change, Source
from tests.dataone.objects import NODE, meta_of
from tests.support.dataone_objects import put_object

from .conftest import Door


@pytest.fixture
async def admin(door: Door) -> Any:
    async with door.client(await door.token("admin")) as client:
        yield client


async def add(client: httpx.AsyncClient, url: str = "http://127.0.0.1:9/org/repo") -> Source:
    answer = await client.post("/api/v1/sources", json={"url": url, "labels": ["b", "a"]})
    return msgspec.json.decode(answer.content, type=Added).source


def wrong(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, msgspec.json.decode(answer.content, type=ErrorAnswer).error.code


async def test_a_source_from_add_to_remove(admin: httpx.AsyncClient) -> None:
    first = await admin.post("/api/v1/sources", json={"url": "http://127.0.0.1:9/org/repo"})
    again = await admin.post("/api/v1/sources", json={"url": "http://127.0.0.1:9/org/repo.git/"})
    assert (first.status_code, again.status_code) == (201, 200)
    source = msgspec.json.decode(first.content, type=Added).source
    assert msgspec.json.decode(again.content, type=Added) == Added(source, created=False)

    for ref in (source.id, source.name, source.url):
        found = await admin.get("/api/v1/source", params={"ref": ref})
        assert msgspec.json.decode(found.content, type=Source).id == source.id
    edited = await admin.patch(f"/api/v1/sources/{source.id}", json={"visibility": "private", "labels": ["x"]})
    assert (edited.json()["visibility"], edited.json()["labels"]) == ("private", ["x"])
    assert (await admin.post(f"/api/v1/sources/{source.id}/fetch")).status_code == 202
    waited = await admin.get(f"/api/v1/sources/{source.id}/wait", params={"timeout": 0})
    assert (waited.json()["settled"], waited.json()["source"]["id"]) == (False, source.id)
    changes = await admin.get(f"/api/v1/sources/{source.id}/changes")
    assert msgspec.json.decode(changes.content, type=Page[Change]) == Page([])
    removed = await admin.delete(f"/api/v1/sources/{source.id}")
    assert (removed.status_code, removed.content) == (204, b"")
    assert wrong(await admin.get(f"/api/v1/sources/{source.id}")) == (404, "not_found")


async def test_lists_come_in_pages(admin: httpx.AsyncClient) -> None:
    ids = {(await add(admin, f"http://127.0.0.1:9/org/{n}")).id for n in range(5)}
    page, seen = "", set()
    while True:
        answer = await admin.get("/api/v1/sources", params={"limit": 2, "page": page, "state": "new"})
        found = msgspec.json.decode(answer.content, type=Page[Source])
        assert len(found.items) <= 2
        seen |= {source.id for source in found.items}
        if not (page := found.next_page):
            break
    assert seen == ids
    assert (await admin.get("/api/v1/sources", params={"state": "failing"})).json()["items"] == []


BAD_INPUT: list[tuple[str, str, bytes | None, str]] = [
    ("GET", "/api/v1/sources?limit=0", None, "limit"),
    ("GET", "/api/v1/sources?limit=1001", None, "limit"),
    ("GET", "/api/v1/sources?limit=many", None, "limit"),
    ("GET", "/api/v1/sources?state=asleep", None, "state"),
    ("GET", "/api/v1/search", None, "q"),
    ("GET", "/api/v1/search?q=x&lines=10001", None, "lines"),
    ("GET", "/api/v1/search?q=x&seconds=-1", None, "seconds"),
    ("GET", "/api/v1/sources/x/wait?timeout=61", None, "timeout"),
    ("GET", "/api/v1/sources/x/file", None, "path"),
    ("GET", "/api/v1/topics/t/messages?offset=-1", None, "offset"),
    ("POST", "/api/v1/sources", b"{", ""),
    ("POST", "/api/v1/sources", b"[]", ""),
    ("POST", "/api/v1/sources", b"{}", "url"),
    ("POST", "/api/v1/sources", b'{"url": 7}', "url"),
    ("POST", "/api/v1/sources", b'{"url": "x", "colour": 1}', "colour"),
    ("POST", "/api/v1/sources", b'{"url": "x", "visibility": "secret"}', "visibility"),
    ("POST", "/api/v1/tokens", b'{"subject": "x", "scopes": ["root"]}', "scopes"),
    ("POST", "/api/v1/sources", b"\xff\xfe", ""),
]


async def test_bad_input_names_the_field(admin: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for method, path, body, field in BAD_INPUT:
        with subtests.test(ascii((method, path, body, field))[:200]):
            answer = await admin.request(method, path, content=body, headers={"content-type": "application/json"})
            assert wrong(answer) == (400, "bad_input")
            assert field in answer.json()["error"]["message"]


async def test_errors_of_the_core_keep_their_shape(admin: httpx.AsyncClient) -> None:
    assert wrong(await admin.post("/api/v1/sources", json={"url": "no url at all"})) == (400, "bad_url")
    assert wrong(await admin.get("/api/v1/source", params={"ref": "nobody/knows"})) == (404, "not_found")
    bad = await admin.get("/api/v1/search", params={"q": "/a(b/"})
    assert wrong(bad) == (400, "bad_query")
    assert bad.json()["error"]["column"] >= 1


async def test_unknown_places_and_methods(admin: httpx.AsyncClient) -> None:
    assert wrong(await admin.get("/api/v1/nowhere")) == (404, "not_found")
    wrong_method = await admin.put("/api/v1/sources")
    assert wrong(wrong_method) == (405, "method_not_allowed")
    assert "POST" in wrong_method.headers["allow"]
    assert wrong(await admin.get("/no/page")) == (404, "not_found")


async def test_a_surprise_is_named_but_not_shown(
    door: Door, admin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def burst(*_: Any) -> Status:
        raise RuntimeError("the cellar is on fire")

    monkeypatch.setattr(door.core.status, "show", burst)
    with caplog.at_level(logging.ERROR):
        answer = await admin.get("/api/v1/status")
        page = await admin.get("/status", headers={"accept": "text/html"})
    assert wrong(answer) == (500, "internal")
    assert page.status_code == 500
    for text in (answer.text, page.text):
        assert "cellar" not in text and "Traceback" not in text
    name = answer.json()["error"]["hint"].split()[-1]
    assert any(name in record.getMessage() for record in caplog.records)


async def test_tokens(door: Door, admin: httpx.AsyncClient) -> None:
    made = await admin.post("/api/v1/tokens", json={"subject": "ci", "scopes": ["read"], "expires_in": 60})
    token = msgspec.json.decode(made.content, type=NewToken)
    assert made.status_code == 201
    listed = msgspec.json.decode((await admin.get("/api/v1/tokens")).content, type=Page[TokenInfo])
    assert token.info.id in {info.id for info in listed.items}
    async with door.client(token.token) as ci:
        assert (await ci.get("/api/v1/sources")).status_code == 200
        assert wrong(await ci.get("/api/v1/tokens")) == (403, "not_allowed")
        assert (await admin.delete(f"/api/v1/tokens/{token.info.id}")).status_code == 204
        assert wrong(await ci.get("/api/v1/sources")) == (401, "needs_token")
    ticket = (await admin.post("/api/v1/login-ticket")).json()["ticket"]
    assert await door.core.access.redeem(ticket)


async def test_search_and_status_answer_with_their_shapes(door: Door, admin: httpx.AsyncClient) -> None:
    found = msgspec.json.decode((await admin.get("/api/v1/search?q=honey")).content, type=SearchAnswer)
    assert (found.hits, found.lines, found.partial) == ([], 0, False)
    status = msgspec.json.decode((await admin.get("/api/v1/status")).content, type=Status)
    assert status.sources == {}
    async with door.client() as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        ready = await client.get("/readyz")
        assert (ready.status_code, bool(ready.json()["reason"])) == (503, True)  # there is no worker here
        metrics = await client.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "skep_up_seconds" in metrics.text


async def test_metrics_say_how_far_behind_the_index_of_records_is(door: Door, admin: httpx.AsyncClient) -> None:
    assert 'skep_dataone_backlog{work="index"} 0\n' in (await admin.get("/metrics")).text
    await door.core.dataone.store.again("index", ["a", "b"], after=-100.0)
    await door.core.dataone.store.again("replicate", ["a"], after=1e6)
    text = (await admin.get("/metrics")).text
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("skep_dataone"))
    index, copies = '{work="index"}', '{work="replicate"}'
    assert values[f"skep_dataone_backlog{index}"] == "2" and values[f"skep_dataone_backlog{copies}"] == "1"
    assert float(values[f"skep_dataone_backlog_seconds{index}"]) >= 100.0
    assert values[f"skep_dataone_backlog_seconds{copies}"] == "0.000", "it is not due yet"


async def test_metrics_say_what_the_audit_of_the_index_of_records_found(door: Door, admin: httpx.AsyncClient) -> None:
    store, index = door.core.dataone.store, door.core.dataone.index

    async def found() -> dict[str, str]:
        assert await index.check(SYSTEM)
        lines = (line for line in (await admin.get("/metrics")).text.splitlines() if "dataone_audit" in line)
        return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))

    wrongs = ("missing", "old", "surplus")
    names = {wrong: f'skep_dataone_audit_records{{work="index",wrong="{wrong}"}}' for wrong in wrongs}
    for pid in "abcd":
        await put_object(store, meta_of(pid), None, NODE)
    assert {(await found())[name] for name in names.values()} == {"0"}, "they wait, as they should"
    await index.drain()
    await put_object(store, meta_of("lost"), None, NODE)
    await store.worked("index", await store.backlog("index", 10))
    await store.db.write(lambda tx: tx.rows("UPDATE sysmeta SET serial = serial + 1 WHERE pid IN ('a', 'b')"))
    await store.db.write(lambda tx: tx.rows("UPDATE sysmeta SET deleted = 1 WHERE pid IN ('b', 'c', 'd')"))
    values = await found()
    assert [values[names[wrong]] for wrong in wrongs] == ["1", "1", "3"]
    assert float(values['skep_dataone_audit_seconds{work="index"}']) < 60.0
    await index.drain()
    values = await found()
    assert {values[name] for name in names.values()} == {"0"}


async def test_the_schema_lists_every_operation_and_our_error(admin: httpx.AsyncClient) -> None:
    schema = (await admin.get("/api/v1/openapi.json")).json()
    assert "/api/v1/sources/{id}/wait" in schema["paths"]
    assert {"SourcePage", "ErrorAnswer"} <= set(schema["components"]["schemas"])
    for item in schema["paths"].values():
        for operation in item.values():
            assert operation["responses"]["default"]["content"]["application/json"]["schema"]["$ref"].endswith(
                "ErrorAnswer"
            )
    docs = await admin.get("/docs")
    assert "/api/v1/sources/{id}/wait" in docs.text
    assert "//cdn" not in docs.text
