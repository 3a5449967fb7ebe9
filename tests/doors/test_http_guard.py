"""Who may ask: Host, Origin, Sec-Fetch-Site, tokens, cookies."""

import base64

import pytest

from skep.base.caller import SYSTEM
from skep.config.settings import Settings
from skep.interfaces.http.guard import Hosts, split_host

from .conftest import Door, OpenDoor


@pytest.mark.parametrize(
    ("listen", "host", "served"),
    [
        ("127.0.0.1:7337", "127.0.0.1:7337", True),
        ("127.0.0.1:7337", "localhost:8080", True),
        ("127.0.0.1:7337", "[::1]:7337", True),
        ("127.0.0.1:7337", "LOCALHOST", True),
        ("127.0.0.1:7337", "evil.example", False),
        ("127.0.0.1:7337", "127.0.0.1.evil.example", False),
        ("127.0.0.1:7337", "192.168.1.5:7337", False),
        ("127.0.0.1:7337", "", False),
        ("127.0.0.1:7337", "127.0.0.1:80@evil.example", False),
        ("0.0.0.0:7337", "192.168.1.5:7337", True),
        ("0.0.0.0:7337", "evil.example:7337", False),
        ("[::]:7337", "[fe80::1]:7337", True),
        ("10.0.0.7:80", "10.0.0.7", True),
        ("10.0.0.7:80", "10.0.0.8", False),
        ("10.0.0.7:80", "code.example.org", True),
        ("10.0.0.7:80", "also.example.org:99", True),
    ],
)
def test_hosts(listen: str, host: str, served: bool) -> None:
    settings = Settings(listen=listen, public_url="https://code.example.org", allow_hosts=("also.example.org",))
    assert Hosts(settings).serves(host) is served


@pytest.mark.parametrize(
    ("origin", "same"),
    [
        ("http://127.0.0.1:7337", True),
        ("https://code.example.org", True),
        ("http://also.example.org:81", True),
        ("http://127.0.0.1:3000", False),
        ("http://evil.example", False),
        ("null", False),
        ("", False),
        ("http://[bad", False),
    ],
)
def test_origins(origin: str, same: bool) -> None:
    settings = Settings(public_url="https://code.example.org", allow_hosts=("also.example.org",))
    assert Hosts(settings).same_origin(origin, "127.0.0.1:7337") is same


@pytest.mark.parametrize(
    ("text", "parts"),
    [("a:1", ("a", "1")), ("A", ("a", "")), ("[::1]:2", ("::1", "2")), ("[::1]", ("::1", "")), ("::1", ("::1", ""))],
)
def test_split_host(text: str, parts: tuple[str, str]) -> None:
    assert split_host(text) == parts


@pytest.mark.parametrize("path", ["/healthz", "/", "/api/v1/sources", "/git/x.git/info/refs", "/static/style.css"])
async def test_a_foreign_host_is_refused_everywhere(door: Door, path: str) -> None:
    async with door.client() as client:
        answer = await client.get(path, headers={"host": "rebound.example:7337"})
    assert answer.status_code == 403
    assert "rebound.example" in answer.text


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_foreign_origin_is_refused_even_with_a_token(door: Door, method: str) -> None:
    token = await door.token("admin")
    async with door.client(token, origin="http://evil.example") as client:
        answer = await client.request(method, "/api/v1/sources", json={"url": "https://example.org/x"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_allowed")


async def test_another_site_may_not_post(door: Door) -> None:
    async with door.client(**{"sec-fetch-site": "cross-site"}) as client:
        answer = await client.post("/login", data={"token": "x"})
        assert answer.status_code == 403
        assert (await client.get("/login")).status_code == 200


async def test_changing_needs_a_token_with_the_scope(door: Door) -> None:
    body = {"url": "http://127.0.0.1:9/x/y"}
    async with door.client() as client:
        nobody = await client.post("/api/v1/sources", json=body)
    async with door.client("skep_wrong") as client:
        unknown = await client.post("/api/v1/sources", json=body)
        unknown_read = await client.get("/api/v1/sources")
    async with door.client(await door.token("read")) as client:
        reader = await client.post("/api/v1/sources", json=body)
    async with door.client(await door.token("read", "write")) as client:
        writer = await client.post("/api/v1/sources", json=body)
    assert [nobody.status_code, unknown.status_code, unknown_read.status_code] == [401, 401, 401]
    assert nobody.headers["www-authenticate"] == "Bearer"
    assert (reader.status_code, writer.status_code) == (403, 201)


@pytest.mark.parametrize(
    "header", ["Bearer", "Bearer ", "Basic !!!", "Digest x", "Basic " + base64.b64encode(b"x").decode()]
)
async def test_a_broken_authorization_header(door: Door, header: str) -> None:
    async with door.client(authorization=header) as client:
        assert (await client.get("/api/v1/sources")).status_code == 401


async def test_reading_may_be_closed(open_door: OpenDoor) -> None:
    async with open_door(open_read=False) as door:
        async with door.client(accept="text/html") as client:
            for path in ("/api/v1/sources", "/api/v1/search?q=x", "/api/v1/status", "/metrics", "/", "/sources"):
                assert (await client.get(path)).status_code == 401, path
            assert "/login?next=/sources" in (await client.get("/sources")).text
            assert (await client.get("/healthz")).status_code == 200
            assert (await client.get("/login")).status_code == 200
        async with door.client(await door.token("read")) as client:
            assert (await client.get("/metrics")).status_code == 200


async def test_the_login_link_opens_a_session_once(door: Door) -> None:
    ticket = await door.core.access.login_ticket(SYSTEM)
    async with door.client() as client:
        entered = await client.get(f"/login?ticket={ticket}")
        cookie = entered.headers["set-cookie"]
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Path=/" in cookie
        assert "Log out" in (await client.get("/")).text
    async with door.client() as client:
        assert (await client.get(f"/login?ticket={ticket}")).status_code == 401


async def test_a_session_posts_only_from_our_own_pages(door: Door) -> None:
    async with door.client() as client:
        entered = await client.post("/login", data={"token": await door.token("admin"), "next": "//evil.example"})
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        form = {"url": "http://127.0.0.1:9/x/y"}
        assert (await client.post("/sources", data=form)).status_code == 403
        foreign = await client.post("/sources", data=form, headers={"origin": "http://127.0.0.1:3000"})
        assert foreign.status_code == 403
        ours = await client.post("/sources", data=form, headers={"origin": "http://127.0.0.1:7337"})
        assert ours.status_code == 303
        out = await client.post("/logout", headers={"origin": "http://127.0.0.1:7337"})
        assert out.status_code == 303
        assert "Log out" not in (await client.get("/")).text


async def test_an_ended_session_is_a_stranger(door: Door) -> None:
    async with door.client(cookie="skep_7337=skep_gone") as client:
        answer = await client.get("/")
    assert answer.status_code == 200
    assert "Log in" in answer.text


async def test_headers_that_browsers_obey(door: Door) -> None:
    async with door.client() as client:
        for path in ("/", "/api/v1/status", "/static/style.css", "/nope", "/git/x.git/HEAD"):
            headers = (await client.get(path)).headers
            assert "default-src 'none'" in headers["content-security-policy"], path
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert headers["cache-control"]


async def test_head_is_get_without_the_body(door: Door) -> None:
    async with door.client() as client:
        answer = await client.head("/sources")
    assert (answer.status_code, answer.content) == (200, b"")


async def test_a_large_body_is_refused(door: Door) -> None:
    async with door.client(await door.token("admin")) as client:
        answer = await client.post("/api/v1/sources", json={"url": "x" * 1_100_000})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
