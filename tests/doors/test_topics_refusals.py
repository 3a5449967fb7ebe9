"""What /api/v1/topics refuses, and that nothing of it is stored."""

import asyncio
from typing import Any

import httpx
import pytest

from skep.base.caller import SYSTEM
from skep.topics.api import Posted

from .conftest import Door, OpenDoor
from .topics_calls import API, EVENT, EVENTS, posted, read, wrong

JSON = "application/json"


UNPUBLISHABLE: list[tuple[str, bytes]] = [
    (JSON, b""),
    (JSON, b"{"),
    (JSON, b"[]"),
    (JSON, b"{}"),
    (JSON, b'{"messages": []}'),
    (JSON, b'{"messages": [{}]}'),
    (JSON, b'{"messages": [{"body": 1}, {"body": 1, "partition": 1}]}'),
    (JSON, b'{"messages": [{"body": 1}], "body": 1}'),
    (JSON, b'{"messages": [{"body": 1}], "key": "k"}'),
    (JSON, b'{"body": 1, "bdy": 2}'),
    (JSON, b'{"body": 1, "key": 5}'),
    (JSON, b'{"body": 1, "key": "a\\u0000"}'),
    (JSON, b'{"body": 1, "headers": {"a": 1}}'),
    (JSON, b'{"body": 1, "headers": []}'),
    (JSON, b'{"body": 1, "partition": -1}'),
    (JSON, b'{"body": 1, "partition": 1}'),
    (JSON, b'{"body": 1, "partition": "0"}'),
    (JSON, b'{"body": 1, "producer": "p", "sequence": -1}'),
    (JSON, b'{"body": 1, "producer": "p", "sequence": 99999999999999999999}'),
    (JSON, b'{"body": "\xff"}'),
    (JSON, b'{"body": ' + b"[" * 100_000 + b"}"),
    (JSON, b'{"body": 1, "key": "' + b"k" * 1001 + b'"}'),
    (EVENT, b"{}"),
    (EVENT, b"[]"),
    (EVENT, b'{"specversion": "0.3", "id": "1", "source": "s", "type": "t"}'),
    (EVENT, b'{"specversion": "1.0", "id": "1", "source": "s"}'),
    (EVENT, b'{"specversion": "1.0", "id": 1, "source": "s", "type": "t"}'),
    (EVENT, b'{"specversion": "1.0", "id": "1", "source": "s", "type": "t", "UPPER": "x"}'),
    (EVENT, b'{"specversion": "1.0", "id": "1", "source": "s", "type": "t", "more": {}}'),
    (EVENT, b'{"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data_base64": "*"}'),
    (EVENT, b'{"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": 1, "data_base64": ""}'),
    (EVENTS, b"[]"),
    (EVENTS, b"[1]"),
    (EVENTS, b"{}"),
]


async def test_what_cannot_be_published_is_not_stored(writer: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for kind, body in UNPUBLISHABLE:
        with subtests.test(ascii((kind, body))[:200]):
            answer = await writer.post(f"{API}/news/messages", content=body, headers={"content-type": kind})
            assert wrong(answer) == (400, "bad_input")
            assert (await read(writer)).next == 0


NO_NAMES: list[str] = ["a/b", "a%2Fb", "%00", "a%0Ab", "x" * 10_000, "%20", ".hidden", "%ff", "ünï"]


async def test_names_that_are_none(writer: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for name in NO_NAMES:
        with subtests.test(ascii(name)[:200]):
            before = await writer.get(API)
            assert wrong(await writer.post(f"{API}/{name}/messages", json={"body": 1}))[0] in (400, 404)
            assert (await writer.get(f"{API}/{name}")).status_code in (400, 404)
            decoded = httpx.URL(f"http://x/{name}").path[1:]
            assert wrong(await writer.post(API, json={"name": decoded})) == (400, "bad_input")
            assert (await writer.get(API)).json() == before.json()


BAD_REQUESTS: list[tuple[str, str, Any, int]] = [
    ("POST", "/nowhere/messages", {"body": 1}, 404),
    ("GET", "/nowhere/messages", None, 404),
    ("GET", "/nowhere", None, 404),
    ("GET", "/nowhere/follow", None, 404),
    ("PATCH", "/nowhere", {"retain_bytes": 1}, 404),
    ("POST", "/nowhere/trim", {"before": 0}, 404),
    ("POST", "/nowhere/groups/g/join", {}, 404),
    ("GET", "/news/groups/nobody/lag", None, 404),
    ("GET", "/news/messages?offset=-1", None, 400),
    ("GET", "/news/messages?offset=99999999999999999999", None, 400),
    ("GET", "/news/messages?partition=1", None, 400),
    ("GET", "/news/messages?partition=-1", None, 400),
    ("GET", "/news/messages?max=0", None, 400),
    ("GET", "/news/messages?max=1001", None, 400),
    ("GET", "/news/messages?wait=61", None, 400),
    ("GET", "/news/follow?offset=-1", None, 400),
    ("GET", "/news/follow?partition=7", None, 400),
    ("POST", "/news/trim", {"before": -1}, 400),
    ("POST", "/news/trim", {"before": 1, "partition": 3}, 400),
    ("PATCH", "/news", {"retain_bytes": 0}, 400),
    ("PATCH", "/news", {"retain_bytes": 1 << 70}, 400),
    ("PATCH", "/news", {"retain_seconds": "long"}, 400),
    ("POST", "", {"name": "news"}, 409),
    ("POST", "", {"name": "skep.mine"}, 403),
    ("POST", "", {"name": "n", "partitions": 0}, 400),
    ("POST", "", {"name": "n", "partitions": 1 << 70}, 400),
    ("POST", "", {"name": 5}, 400),
    ("POST", "/skep.changes/messages", {"body": 1}, 403),
    ("GET", "/skep.changes/messages", None, 403),
    ("POST", "/news/groups/a%2Fb/join", {}, 404),
    ("POST", "/news/groups/skep.index/join", {}, 400),
    ("POST", "/news/groups/g/join", {"member": "\0"}, 400),
    ("POST", "/news/groups/g/join", {"start": "somewhere"}, 400),
    ("POST", "/news/groups/g/seek", {"to": "offset:-1"}, 400),
    ("POST", "/news/groups/g/seek", {"to": "offset:" + "9" * 5000}, 400),
    ("POST", "/news/groups/g/seek", {"to": "time:soon"}, 400),
    ("POST", "/news/groups/g/seek", {"to": "end", "partition": 9}, 400),
    ("POST", "/news/groups/g/commit", {"member": "m", "commits": [{"partition": 0}]}, 400),
    (
        "POST",
        "/news/groups/g/commit",
        {"member": "m", "commits": [{"partition": 0, "generation": 1, "offset": -1}]},
        400,
    ),
    (
        "POST",
        "/news/groups/g/commit",
        {"member": "m", "commits": [{"partition": 0, "generation": 1, "offset": 0}]},
        409,
    ),
]


async def test_bad_requests(writer: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for method, path, body, status in BAD_REQUESTS:
        with subtests.test(ascii((method, path, body, status))[:200]):
            answer = await writer.request(method, API + path, json=body)
            assert wrong(answer)[0] == status, answer.text


async def test_last_event_id_must_be_an_offset(writer: httpx.AsyncClient) -> None:
    for value in ("x", "-1", "9" * 40):
        assert wrong(await writer.get(f"{API}/news/follow", headers={"last-event-id": value}))[0] == 400


async def test_without_the_right_token(door: Door, writer: httpx.AsyncClient) -> None:
    async with door.client() as stranger, door.client(await door.token("read")) as reader:
        for client, status in ((stranger, 401), (reader, 403)):
            assert (await client.post(f"{API}/news/messages", json={"body": 1})).status_code == status
            assert (await client.post(API, json={"name": "mine"})).status_code == status
            assert (await client.post(f"{API}/news/trim", json={"before": 1})).status_code == status
            assert (await client.post(f"{API}/news/groups/g/seek", json={"to": "end"})).status_code == status
    assert (await read(writer)).next == 0


async def test_messages_have_a_size(open_door: OpenDoor) -> None:
    async with open_door(message_limit=100) as door, door.client(await door.token("read", "write")) as client:
        await client.post(API, json={"name": "news"})
        url = f"{API}/news/messages"
        assert wrong(await client.post(url, json={"messages": [{"body": 1}, {"body": "x" * 99}]})) == (413, "too_large")
        assert wrong(await client.post(url, content=b"x" * 17_000_000)) == (413, "too_large")
        assert (await read(client)).next == 0
        assert posted(await client.post(url, json={"body": "x" * 98})) == [Posted(0, 0)]


async def test_a_revoked_token_stops_at_once(door: Door, writer: httpx.AsyncClient) -> None:
    made = await door.core.access.create(SYSTEM, "brief", ["read", "write"])
    async with door.client(made.token) as client:
        assert len(posted(await client.post(f"{API}/news/messages", json={"body": 1}))) == 1
        publishing = [client.post(f"{API}/news/messages", json={"body": 1}) for _ in range(20)]
        await asyncio.gather(door.core.access.revoke(SYSTEM, made.info.id), *publishing)
        assert wrong(await client.post(f"{API}/news/messages", json={"body": 2})) == (401, "needs_token")


async def test_a_token_is_looked_up_rarely_and_ends_in_time(door: Door) -> None:
    session = await door.core.access.redeem(await door.core.access.login_ticket(SYSTEM))
    assert await door.core.access.caller(session) is await door.core.access.caller(session)
    await door.core.access.end_session(session)
    async with door.client(session) as client:
        assert wrong(await client.get(API)) == (401, "needs_token")
