"""Lists over HTTP and as pages."""

from skep.base.caller import SYSTEM
from tests.doors.conftest import Door


async def test_from_adding_to_removing(door: Door) -> None:
    async with door.client(await door.token("read", "write")) as client:
        made = await client.post("/api/v1/lists", json={"url": "https://example.org/lists.git"})
        assert made.status_code == 201, made.text
        id = made.json()["id"]
        again = await client.post("/api/v1/lists", json={"url": "https://example.org/lists.git"})
        assert again.json()["id"] == id
        forge = await client.post("/api/v1/lists", json={"url": "github:org", "forks": False})
        assert (forge.json()["kind"], forge.json()["forks"], forge.json()["source"]) == ("github", False, None)
        assert [one["id"] for one in (await client.get("/api/v1/lists")).json()["items"]] == [id, forge.json()["id"]]
        assert (await client.get(f"/api/v1/lists/{id}/entries?gone=true")).json()["items"] == []
        assert (await client.get(f"/api/v1/lists/{id}/problems")).json()["items"] == []
        assert (await client.post(f"/api/v1/lists/{id}/confirm", json={"version": "x"})).status_code == 409
        assert (await client.post(f"/api/v1/lists/{id}/read")).status_code == 202
        assert (await client.delete(f"/api/v1/lists/{id}")).status_code == 204
        assert (await client.get(f"/api/v1/lists/{id}")).status_code == 404


async def test_refused(door: Door) -> None:
    async with door.client(await door.token("read")) as reader:
        assert (await reader.post("/api/v1/lists", json={"url": "github:org"})).status_code == 403
    async with door.client(await door.token("read", "write")) as client:
        for url in ("", "gitea:org", "file:///srv/lists", "ftp://example.org/x", "https://user:pw@example.org/x"):
            answer = await client.post("/api/v1/lists", json={"url": url})
            assert answer.status_code in (400, 403) and "pw" not in answer.text
        assert (await client.post("/api/v1/lists", json={"url": "github:o", "every": 1})).status_code == 400


async def test_pages(door: Door) -> None:
    listed = await door.core.lists.add(SYSTEM, "https://example.org/lists")
    hidden = await door.core.lists.add(SYSTEM, "https://example.org/hidden", visibility="private")
    async with door.client(await door.token("read")) as client:
        page = await client.get("/lists")
        assert page.status_code == 200 and "example.org/lists" in page.text and "example.org/hidden" not in page.text
        assert (await client.get(f"/lists/{listed.id}")).status_code == 200
        assert (await client.get(f"/lists/{hidden.id}")).status_code == 404
