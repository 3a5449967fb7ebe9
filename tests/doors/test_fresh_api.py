"""Fetching on demand, many sources at once, and credentials, through the API."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from skep.base.caller import SYSTEM

from .conftest import Door, OpenDoor


@pytest.fixture
async def admin(door: Door) -> Any:
    async with door.client(await door.token("admin")) as client:
        yield client


async def test_a_fetch_says_when_it_was_asked(admin: httpx.AsyncClient) -> None:
    known = (await admin.post("/api/v1/sources", json={"url": "http://127.0.0.1:9/a"})).json()["source"]
    asked = await admin.post(f"/api/v1/sources/{known['id']}/fetch")
    assert (asked.status_code, asked.json()["settled"]) == (202, False)
    assert asked.json()["asked_at"] >= known["added_at"]
    waited = await admin.post(f"/api/v1/sources/{known['id']}/fetch?wait=true&timeout=0.05")
    assert waited.json()["settled"] is False
    for query in ("commit=HEAD", "commit=-x", "timeout=61"):
        assert (await admin.get(f"/api/v1/sources/{known['id']}/wait?{query}")).status_code == 400


async def test_a_url_is_fetched_known_or_not_where_that_is_permitted(door: Door, admin: httpx.AsyncClient) -> None:
    new = await admin.post("/api/v1/fetch", json={"url": "http://127.0.0.1:9/new", "visibility": "private"})
    again = await admin.post("/api/v1/fetch", json={"url": "http://127.0.0.1:9/new.git", "wait": True, "timeout": 0})
    assert [new.status_code, again.status_code] == [202, 202]
    assert new.json()["source"]["id"] == again.json()["source"]["id"]
    assert (await admin.post("/api/v1/fetch", json={"url": "http://169.254.169.254/x"})).status_code == 403
    assert (await admin.post("/api/v1/fetch", json={"url": "ext::x"})).status_code == 400
    async with door.client(await door.token("read")) as reader:
        assert (await reader.post("/api/v1/fetch", json={"url": "http://127.0.0.1:9/x"})).status_code == 403
    async with door.client() as stranger:
        assert (await stranger.post("/api/v1/fetch", json={"url": "http://127.0.0.1:9/x"})).status_code == 401


async def test_many_sources_in_one_call(admin: httpx.AsyncClient) -> None:
    wanted = [{"url": f"https://h.org/{n}", "labels": ["x"]} for n in range(10_000)]
    answer = await admin.post("/api/v1/sources/bulk", json={"sources": [*wanted[:9_999], {"url": "no url"}]})
    items = answer.json()["items"]
    assert (answer.status_code, len(items)) == (200, 10_000)
    assert [items[0]["status"], items[9_998]["status"], items[9_999]["status"]] == ["added", "added", "refused"]
    assert "spaces" in items[9_999]["reason"]
    moved = {"url": "https://h.org/elsewhere", "ref": items[0]["id"]}
    again = await admin.post("/api/v1/sources/bulk", json={"sources": [moved, wanted[1]]})
    assert [item["status"] for item in again.json()["items"]] == ["updated", "known"]
    too_many = await admin.post("/api/v1/sources/bulk", json={"sources": [*wanted, wanted[0]]})
    assert too_many.status_code == 400
    assert (await admin.post("/api/v1/sources/bulk", json={"sources": [{"uri": "x"}]})).status_code == 400


async def test_credentials_go_in_and_never_come_out(door: Door, admin: httpx.AsyncClient) -> None:
    source = (await admin.post("/api/v1/sources", json={"url": "https://h.org/a"})).json()["source"]
    body = {"host": "h.org", "token": "s3cr3t", "source": source["name"]}
    made = await admin.put("/api/v1/credentials/ours", json=body)
    assert (made.status_code, made.json()["source"]) == (200, source["id"])
    listed = await admin.get("/api/v1/credentials")
    assert "s3cr3t" not in made.text + listed.text
    assert [key.token for key in await door.core.credentials.keys()] == ["s3cr3t"]
    await admin.put("/api/v1/credentials/ours", json=body | {"token": "n3w"})
    assert [key.token for key in await door.core.credentials.keys()] == ["n3w"]
    assert (await admin.delete("/api/v1/credentials/ours")).status_code == 204
    assert (await admin.delete("/api/v1/credentials/ours")).status_code == 404
    assert await door.core.credentials.keys() == ()
    audit = await door.core.sources._db.read("SELECT verb, what FROM audit WHERE verb LIKE 'credential%'")
    assert [(row["verb"], row["what"]) for row in audit] == [
        ("credential.put", "ours"),
        ("credential.put", "ours"),
        ("credential.remove", "ours"),
    ]


BAD_CREDENTIALS: list[tuple[str, dict[str, str]]] = [
    ("..%2F..%2Fx", {}),
    (".hidden", {}),
    ("a b", {}),
    ("x", {"host": ""}),
    ("x", {"host": "https://h.org"}),
    ("x", {"host": "H.ORG/path"}),
    ("x", {"token": ""}),
    ("x", {"token": "two\nlines"}),
    ("x", {"token": "x" * 5_000}),
    ("x", {"user": "a:b"}),
    ("x", {"user": "a\r\nX-Evil: 1"}),
    ("x", {"use": "other"}),
    ("x", {"source": "no/such"}),
]


async def test_bad_credentials(admin: httpx.AsyncClient, tmp_path: Path, subtests: pytest.Subtests) -> None:
    for name, changes in BAD_CREDENTIALS:
        with subtests.test(ascii((name, changes))[:200]):
            answer = await admin.put(f"/api/v1/credentials/{name}", json={"host": "h.org", "token": "t0k3n"} | changes)
            assert answer.status_code in (400, 404)
            assert "t0k3n" not in answer.text
            assert list((tmp_path / "credentials").iterdir()) == []


async def test_credentials_are_for_admins(door: Door) -> None:
    async with door.client(await door.token("read", "write", "private")) as writer:
        assert (await writer.get("/api/v1/credentials")).status_code == 403
        put = await writer.put("/api/v1/credentials/x", json={"host": "h.org", "token": "t"})
        assert put.status_code == 403
        assert (await writer.delete("/api/v1/credentials/x")).status_code == 403


async def test_interest_of_searches_and_clones_is_noted(open_door: OpenDoor) -> None:
    async with open_door() as door:
        source = (await door.core.sources.add(SYSTEM, "http://127.0.0.1:9/a")).source
        async with door.client() as client:
            # there is no mirror yet, so it cannot be cloned; it is of interest all the same
            await client.get(f"/git/{source.name}.git/info/refs?service=git-upload-pack")
        assert door.core.gather._interest.since(0)[1] == [source.id]
        assert door.core.gather._interest is door.core.search._interest
