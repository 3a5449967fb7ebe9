"""/api/v1/spaces: the verbs over JSON, what is refused, and who hangs up while waiting."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from skep.base.caller import SYSTEM
from tests.doors.conftest import Door
from tests.doors.topics_calls import wrong

API = "/api/v1/spaces"
JOB = ["job", {"type": "int"}]


@pytest.fixture
async def maker(door: Door) -> AsyncIterator[httpx.AsyncClient]:
    async with door.client(await door.token("read", "write")) as client:
        yield client


async def call(client: httpx.AsyncClient, verb: str, status: int = 200, space: str = "s", **body: Any) -> Any:
    answer = await client.post(f"{API}/{space}/{verb}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


async def test_put_take_keep_give_back_acknowledge(maker: httpx.AsyncClient) -> None:
    assert await call(maker, "put", 201, fields=["job", 1]) == {"seq": 1}
    assert await call(maker, "put", 201, fields=["job", 1.0]) == {"seq": 2}
    assert (await call(maker, "query", template=["job", {"type": "float"}]))["tuples"] == [
        {"seq": 2, "fields": ["job", 1.0]}
    ]
    taken = (await call(maker, "get", template=JOB))["taken"]
    assert taken["fields"] == ["job", 1]
    assert await call(maker, "get", template=JOB) == {"taken": None}
    mine = {"seq": taken["seq"], "ticket": taken["ticket"]}
    await call(maker, "keep", 204, **mine, lease=10)
    await call(maker, "give_back", 204, **mine)
    # with a ticket of the client's own, a repeat gets the same
    taken = (await call(maker, "get", template=JOB, ticket="t"))["taken"]
    assert (await call(maker, "get", template=JOB, ticket="t"))["taken"]["seq"] == taken["seq"]
    await call(maker, "acknowledge", 204, seq=taken["seq"], ticket="t")
    assert (await maker.post(f"{API}/s/acknowledge", json={"seq": 1, "ticket": "t"})).status_code == 409
    assert (await maker.get(f"{API}/s")).json() == {"name": "s", "size": 1, "taken": 0}


async def test_all_replace_list_and_drop(maker: httpx.AsyncClient) -> None:
    for n in range(3):
        await call(maker, "put", 201, fields=["job", n])
    found = await call(maker, "query_all", template=JOB)
    assert [one["fields"] for one in found["tuples"]] == [["job", 0], ["job", 1], ["job", 2]]
    await call(maker, "replace", template=["job", 0], fields=["job", 9])
    gone = await call(maker, "get_all", template=JOB)
    assert [one["fields"] for one in gone["tuples"]] == [["job", 1], ["job", 2], ["job", 9]]
    assert [one["name"] for one in (await maker.get(API)).json()["items"]] == ["s"]
    assert (await maker.delete(f"{API}/s")).status_code == 204
    assert wrong(await maker.delete(f"{API}/s")) == (404, "not_found")
    assert wrong(await maker.get(f"{API}/s")) == (404, "not_found")


async def test_a_get_waits_for_a_put(maker: httpx.AsyncClient) -> None:
    waiting = asyncio.create_task(call(maker, "get", template=JOB, wait=60))
    looking = asyncio.create_task(call(maker, "query", template=JOB, wait=60))
    await asyncio.sleep(0.05)
    await call(maker, "put", 201, fields=["job", 7])
    assert (await waiting)["taken"]["fields"] == ["job", 7]
    assert (await looking)["tuples"][0]["fields"] == ["job", 7]


REFUSED: list[tuple[str, Any]] = [
    ("put", {"fields": []}),
    ("put", {"fields": [None]}),
    ("put", {"fields": [["x"]]}),
    ("put", {"fields": [2**63]}),
    ("put", {"fields": ["x"], "id": "y" * 201}),
    ("put", {"fields": ["x"] * 65}),
    ("put", {"field": ["x"]}),
    ("get", {"template": [{"type": "list"}]}),
    ("get", {"template": ["x"], "wait": 61}),
    ("get", {"template": ["x"], "lease": 0}),
    ("get", {"template": []}),
    ("keep", {"seq": 1, "ticket": "t", "lease": 1e9}),
]


async def test_what_is_refused(maker: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for verb, body in REFUSED:
        with subtests.test(ascii((verb, body))[:200]):
            assert wrong(await maker.post(f"{API}/s/{verb}", json=body)) == (400, "bad_input")


async def test_large_tuples(maker: httpx.AsyncClient) -> None:
    await call(maker, "put", 201, fields=["é" * 500_000])
    assert wrong(await maker.post(f"{API}/s/put", json={"fields": ["x" * (1 << 20)]})) == (413, "too_large")


async def test_who_may(door: Door, maker: httpx.AsyncClient) -> None:
    await call(maker, "put", 201, fields=["job", 1])
    async with door.client() as stranger, door.client(await door.token("read")) as reader:
        assert wrong(await stranger.post(f"{API}/s/get", json={"template": JOB}))[0] == 401
        assert wrong(await reader.post(f"{API}/s/get", json={"template": JOB}))[0] == 403
        assert (await call(reader, "query", template=JOB))["tuples"]
    assert wrong(await maker.post(f"{API}/status/put", json={"fields": ["x"]})) == (403, "not_allowed")
    assert wrong(await maker.post(f"{API}/a%20b/put", json={"fields": ["x"]})) == (400, "bad_input")


async def test_who_hangs_up_while_waiting_takes_nothing_along(door: Door) -> None:
    """The application itself is told that the client is gone, at every moment around a put."""
    token = await door.token("read", "write")
    headers = [(b"host", b"127.0.0.1:7337"), (b"authorization", b"Bearer " + token.encode())]
    scope = {"type": "http", "method": "POST", "path": f"{API}/s/get", "raw_path": f"{API}/s/get".encode()}
    scope |= {"query_string": b"", "http_version": "1.1", "scheme": "http", "root_path": ""}
    scope |= {"headers": [*headers, (b"content-type", b"application/json")], "client": ("127.0.0.1", 1)}
    for n in range(20):
        body = b'{"template": ["job", %d], "wait": 60}' % n
        asked, gone = asyncio.Event(), asyncio.Event()

        async def receive(
            asked: asyncio.Event = asked, gone: asyncio.Event = gone, body: bytes = body
        ) -> dict[str, object]:
            if not asked.is_set():
                asked.set()
                return {"type": "http.request", "body": body, "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        said: list[bytes] = []

        async def send(message: dict[str, Any], said: list[bytes] = said) -> None:
            said.append(message.get("body", b""))

        asking = asyncio.create_task(door.app(dict(scope), receive, send))
        await asyncio.sleep(0.01)
        putting = asyncio.create_task(door.core.spaces.put(SYSTEM, "s", ("job", n)))
        for _ in range(n):
            await asyncio.sleep(0)
        gone.set()
        await putting
        with contextlib.suppress(asyncio.CancelledError):
            await asking
        # who was not answered has not taken it
        answered = b'"ticket"' in b"".join(said)
        assert n > 0 or not answered
        if not answered:
            assert await door.core.spaces.query(SYSTEM, "s", ("job", n), wait=20)
