"""The client against a real socket."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from skep.base.answers import Added, Page
from skep.base.errors import BadInput, BadQuery, Busy, NeedsToken, NotFound, SkepError, Unavailable
from skep.client import Client
from skep.client.asynchronous import AsyncClient
from skep.client.transport import advertise, find_token, withdraw
from tests.cli.fake import SOURCE, Asked, FakeSkep

STATUS = {
    "version": "1", "started_at": 1.0, "sources": {}, "members": [], "shards": 0, "documents": 0, "indexed_bytes": 0,
    "orders_pending": 0,
}  # fmt: skip


def pages(asked: Asked) -> tuple[int, object]:
    if asked.query["page"] == "":
        return 200, Page([SOURCE, SOURCE], "second")
    assert asked.query["page"] == "second"
    return 200, Page([SOURCE])


def test_lists_run_over_all_pages(fake: FakeSkep) -> None:
    fake.answer("GET", "/api/v1/sources", pages)
    with Client(fake.url) as client:
        assert list(client.sources.list(state="current", limit=2)) == [SOURCE] * 3
    assert [asked.query["state"] for asked in fake.asked] == ["current", "current"]


def test_a_name_is_resolved_before_a_verb_on_an_id(fake: FakeSkep) -> None:
    fake.on("GET", "/api/v1/source", 200, SOURCE)
    fake.on("DELETE", "/api/v1/sources/src_01", 204)
    with Client(fake.url) as client:
        client.sources.remove("example.org/a/b")
    assert [(asked.method, asked.query.get("ref")) for asked in fake.asked] == [("GET", SOURCE.name), ("DELETE", None)]


def test_an_id_cannot_leave_its_place_in_the_path(fake: FakeSkep) -> None:
    with Client(fake.url) as client, pytest.raises(NotFound):
        client.sources.fetch("src_01/../../tokens?x=1")
    assert fake.asked[0].path == "/api/v1/sources/src_01%2F..%2F..%2Ftokens%3Fx%3D1/fetch"


@pytest.mark.parametrize("error", [BadQuery("bad", hint="h", column=3), Busy("busy"), NeedsToken("no"), NotFound("x")])
def test_errors_come_out_as_they_went_in(fake: FakeSkep, error: SkepError) -> None:
    fake.fail("GET", "/api/v1/search", error)
    with Client(fake.url) as client, pytest.raises(type(error)) as caught:
        client.search("x")
    assert (caught.value.message, caught.value.column) == (error.message, error.column)


@pytest.mark.parametrize("answer", [b"<html>", b'{"hits": 3}', b""])
def test_something_else_behind_the_url_is_said_to_be_that(fake: FakeSkep, answer: bytes) -> None:
    fake.on("GET", "/api/v1/search", 200, answer)
    with Client(fake.url) as client, pytest.raises(Unavailable, match="does not answer as a Skep server"):
        client.search("x")
    fake.on("GET", "/api/v1/search", 502, answer)
    with Client(fake.url) as client, pytest.raises(Unavailable, match="HTTP status 502"):
        client.search("x")


def test_connections_are_kept_and_dead_ones_replaced(fake: FakeSkep) -> None:
    fake.on("GET", "/api/v1/status", 200, STATUS)
    fake.closes = True
    with Client(fake.url) as client:
        assert [client.status().version for _ in range(3)] == ["1"] * 3


def test_no_server_is_unavailable_with_a_hint(fake: FakeSkep) -> None:
    with Client("http://127.0.0.1:1") as client, pytest.raises(Unavailable) as error:
        client.status()
    assert "skep up" in error.value.hint


@pytest.mark.parametrize("url", ["7337", "ftp://example.org", "http://", "http://h:99999", "http://[", "unix:/x"])
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(BadInput, match="is not the URL of a Skep server"):
        Client(url)


def test_the_token_of_a_server_on_this_machine_is_found_and_goes_nowhere_else(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path / "state")}
    data = tmp_path / "data"
    data.mkdir()
    (data / "admin.token").write_text("secret\n")
    here, there = urlsplit("http://localhost:7000"), urlsplit("http://example.org:7000")
    assert find_token(None, here, environ) == ""
    advertise(7000, data, environ)
    assert find_token(None, here, environ) == "secret"
    assert find_token(None, urlsplit("http://127.0.0.1:7001"), environ) == ""
    assert find_token(None, there, environ) == ""
    assert find_token(None, urlsplit("http://127.example.org:7000"), environ) == ""
    assert find_token(None, there, environ | {"SKEP_TOKEN": "given"}) == "given"
    assert find_token("mine", here, environ | {"SKEP_TOKEN": "given"}) == "mine"
    withdraw(7000, tmp_path / "another", environ)
    assert find_token(None, here, environ) == "secret"
    withdraw(7000, data, environ)
    assert find_token(None, here, environ) == ""
    assert find_token(None, here, {"SKEP_DATA": str(data)}) == "secret"


def test_a_token_cannot_add_headers() -> None:
    with pytest.raises(BadInput):
        Client("http://127.0.0.1:1", "a\r\nHost: x")


def test_a_home_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    advertise(7000, tmp_path, {"XDG_STATE_HOME": str(blocked)})
    withdraw(7000, tmp_path, {"XDG_STATE_HOME": str(blocked)})


async def test_the_same_verbs_for_asyncio(fake: FakeSkep) -> None:
    fake.answer("GET", "/api/v1/sources", pages)
    fake.on("POST", "/api/v1/sources", 201, Added(SOURCE, created=True))
    async with AsyncClient(fake.url) as client:
        assert [source async for source in client.sources.list()] == [SOURCE] * 3
        assert (await client.sources.add(SOURCE.url)).created
        with pytest.raises(NotFound):
            await client.status()
        assert client.url == fake.url
