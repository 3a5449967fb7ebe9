"""Search over HTTP: pages, streams, completion, saved searches, and the pages that show them."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from skep.base.caller import SYSTEM
from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.interfaces.http.app import create_app
from skep.processes.build import open_rooms
from tests.search.conftest import Library
from tests.search.test_commits import BEES, mirrored

FILES = {
    "src/honey.py": "import wax\n\n\ndef honey():\n    return wax\n",
    "src/wax.go": "package wax\n// honey\n",
    "notes.txt": "honey\n" * 30,
}


@pytest.fixture
async def library(tmp_path: Path) -> AsyncIterator[Library]:
    settings = Settings(data=str(tmp_path), database="memory:")
    async with open_rooms(settings, SystemClock(), "w" * 64) as rooms:
        opened = Library(rooms, tmp_path)
        await opened.add("bees/tools", FILES)
        yield opened


@pytest.fixture
async def admin(library: Library) -> AsyncIterator[httpx.AsyncClient]:
    app: Any = create_app(library.core, Settings(data=""))
    token = (await library.core.access.create(SYSTEM, "tester", ["read", "write"])).token
    headers = {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:7337", headers=headers
    ) as client:
        yield client


async def test_a_hit_says_all_there_is_to_say(admin: httpx.AsyncClient) -> None:
    params: dict[str, Any] = {"q": "def honey", "context": 1, "explain": True, "facets": True, "count": 1000}
    answer = (await admin.get("/api/v1/search", params=params)).json()
    (hit,) = answer["hits"]
    assert {"name", "branch", "commit", "fetched_at", "blob", "language", "score", "why"} <= hit.keys()
    assert (hit["path"], hit["language"], hit["branches"]) == ("src/honey.py", "Python", ["main"])
    (line,) = hit["lines"]
    assert (line["number"], line["column"], line["text"]) == (4, 1, "def honey():")
    assert (line["before"], line["after"]) == ([""], ["    return wax"])
    assert [line["text"][start:end] for start, end in line["ranges"]] == ["def", "honey"]
    assert sum(reason["points"] for reason in hit["why"]) == pytest.approx(hit["score"], abs=0.1)
    assert answer["counted"] == {"files": 1, "lines": 1, "exact": True}
    assert answer["facets"]["languages"] == [{"name": "Python", "files": 1}]


async def test_pages_of_the_api(admin: httpx.AsyncClient) -> None:
    lines, token = 0, ""
    for _ in range(10):
        params: dict[str, Any] = {"q": "honey", "lines": 10, "page": token}
        answer = (await admin.get("/api/v1/search", params=params)).json()
        lines, token = lines + answer["lines"], answer["next_page"]
        if not token:
            break
    assert (lines, answer["partial"]) == (32, False)
    bad = await admin.get("/api/v1/search", params={"q": "x", "page": "nonsense"})
    assert (bad.status_code, bad.json()["error"]["code"]) == (400, "bad_input")


def streamed(text: str, media: str) -> list[tuple[str, Any]]:
    if media == "application/x-ndjson":
        return [next(iter(json.loads(line).items())) for line in text.splitlines()]
    blocks = [block.split("\n") for block in text.strip().split("\n\n")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]


@pytest.mark.parametrize("media", ["text/event-stream", "application/x-ndjson"])
async def test_streams(admin: httpx.AsyncClient, media: str) -> None:
    answer = await admin.get("/api/v1/search", params={"q": "honey"}, headers={"accept": media})
    assert answer.headers["content-type"].startswith(media)
    items = streamed(answer.text, media)
    assert [name for name, _ in items] == ["hit", "hit", "hit", "summary"]
    assert items[-1][1]["lines"] == 32
    bad = await admin.get("/api/v1/search", params={"q": "/(/"}, headers={"accept": media})
    assert (bad.status_code, bad.json()["error"]["column"]) == (400, 2)
    sources = await admin.get("/api/v1/search", params={"q": "type:repo"}, headers={"accept": media})
    *found, (name, summary) = streamed(sources.text, media)
    assert "example.org/bees/tools" in [source["name"] for _, source in found]
    assert (name, summary["files"], summary["partial"]) == ("summary", len(found), False)
    assert summary["counted"] == {"files": len(found), "lines": 0, "exact": True}


async def test_sources_say_when_time_was_over_before_every_file_was_looked_at(admin: httpx.AsyncClient) -> None:
    params: dict[str, Any] = {"q": "type:repo content:honey"}
    whole = (await admin.get("/api/v1/search", params=params)).json()
    assert (len(whole["sources"]), whole["partial"], whole["counted"]["exact"]) == (1, False, True)
    params["seconds"] = 1e-9
    answer = (await admin.get("/api/v1/search", params=params)).json()
    assert (answer["sources"], answer["partial"], answer["counted"]["exact"]) == ([], True, False)
    media = "application/x-ndjson"
    ((_, summary),) = streamed(
        (await admin.get("/api/v1/search", params=params, headers={"accept": media})).text, media
    )
    assert (summary["partial"], summary["counted"]["exact"]) == (True, False)


async def test_completion(admin: httpx.AsyncClient) -> None:
    answer = (await admin.get("/api/v1/search/complete", params={"q": "honey repo:too"})).json()
    assert answer["completions"] == [
        {"text": r"repo:^example\.org/bees/tools$ ", "start": 6, "end": 14, "about": ""},
    ]
    answer = (await admin.get("/api/v1/search/complete", params={"q": "la honey", "cursor": 2})).json()
    assert [(one["text"], one["start"], one["end"]) for one in answer["completions"]] == [("lang:", 0, 2)]


async def test_saved_searches(admin: httpx.AsyncClient, library: Library) -> None:
    saved = await admin.put("/api/v1/searches/todo", json={"query": "TODO"})
    assert saved.status_code == 200
    assert (saved.json()["topic"], saved.json()["owner"]) == ("skep.searches", "tester")
    bad = await admin.put("/api/v1/searches/bad", json={"query": "x /(/"})
    assert (bad.status_code, bad.json()["error"]["column"]) == (400, 4)
    await library.change("bees/tools", {"notes.txt": "TODO\n"})
    (message,) = await library.core.topics.read(SYSTEM, "skep.searches", 0, 10)
    assert json.loads(message.body)["hit"]["path"] == "notes.txt"
    page = await admin.get("/searches?query=TODO")
    assert "skep.searches" in page.text
    form = {"name": "more", "query": "FIXME", "topic": ""}
    assert (await admin.post("/searches", data=form)).status_code == 303
    assert [one["name"] for one in (await admin.get("/api/v1/searches")).json()["searches"]] == ["more", "todo"]
    assert (await admin.post("/searches/more/remove")).status_code == 303
    assert (await admin.delete("/api/v1/searches/todo")).status_code == 204
    assert (await admin.delete("/api/v1/searches/todo")).status_code == 404


async def test_the_page_of_results(admin: httpx.AsyncClient) -> None:
    page = (await admin.get("/", params={"q": "honey", "context": 3, "explain": "true"})).text
    assert "<strong>32 lines</strong> in 3 files" in page
    assert 'class="line beside"' in page
    assert "whole word" in page
    assert "q=honey+lang%3APython" in page
    first = (await admin.get("/", params={"q": "honey", "lines": 10})).text
    assert 'rel="next"' in first
    assert "example.org/bees/tools" in (await admin.get("/", params={"q": "type:repo"})).text
    assert "Nothing matches" in (await admin.get("/", params={"q": "zzzz"})).text
    for word in ("repo:", "lang:", "sym:", "branch:", "type:", "count:", "case:"):
        assert word in (await admin.get("/docs/search")).text


async def test_commits_in_the_api_and_on_the_page(library: Library, admin: httpx.AsyncClient, tmp_path: Path) -> None:
    source = await mirrored(library, tmp_path / "made", "bees/hive", BEES)
    answer = (await admin.get("/api/v1/search", params={"q": "type:commit lid", "lines": 1})).json()
    (commit,) = answer["commits"]
    assert (commit["subject"], commit["at"], answer["partial"]) == ("Revert the lid", 300 * 86_400.0, True)
    params = {"q": "type:commit lid", "lines": "1"}
    page = (await admin.get("/", params=params)).text
    assert f'href="/sources/{source}/commit/{commit["commit"]}">Revert the lid</a>' in page
    assert "Ann &lt;ann@example.org&gt;" in page
    page = (await admin.get("/", params=params | {"page": answer["next_page"]})).text
    assert "Fix the lid" in page and "Revert the lid" not in page
    refused = await admin.get("/api/v1/search", params={"q": "type:commit after:soon"})
    assert (refused.status_code, refused.json()["error"]["column"]) == (400, 13)
