"""/api/v1/topics over real rooms: publish, read, follow, groups, CloudEvents."""

import asyncio
import base64
from contextlib import aclosing
from typing import Any

import httpx
import msgspec
import pytest

from skep.base.answers import Page
from skep.base.caller import SYSTEM
from skep.config.settings import Settings
from skep.interfaces.http.app import create_app
from skep.topics import messages_http
from skep.topics.api import Lag, LagAnswer, Membership, Posted, Standing, Topic, TopicMessage, TopicView

from .conftest import Door
from .topics_calls import API, EVENT, EVENTS, bodies, posted, read, wrong


async def test_a_topic_from_making_to_trimming(writer: httpx.AsyncClient) -> None:
    made = await writer.post(API, json={"name": "many", "partitions": 3, "retain_seconds": 60})
    topic = msgspec.json.decode(made.content, type=Topic)
    assert (made.status_code, topic.partitions, topic.owner, topic.retain_seconds) == (201, 3, "user", 60)
    names = [one.name for one in msgspec.json.decode((await writer.get(API)).content, type=Page[Topic]).items]
    assert {"many", "news", "skep.changes"} <= set(names)
    await writer.post(f"{API}/many/messages", json={"messages": [{"body": n, "partition": 2} for n in range(5)]})
    assert (await writer.post(f"{API}/many/trim", json={"partition": 2, "before": 3})).json()["first"] == 3
    view = msgspec.json.decode((await writer.get(f"{API}/many")).content, type=TopicView)
    assert view == TopicView(topic, [Standing(0, 0, 0, 0), Standing(1, 0, 0, 0), Standing(2, 3, 5, 2)], [])
    edited = (await writer.patch(f"{API}/many", json={"retain_bytes": 1000})).json()
    assert (edited["retain_seconds"], edited["retain_bytes"]) == (60, 1000)
    edited = (await writer.patch(f"{API}/many", json={"retain_seconds": None})).json()
    assert (edited["retain_seconds"], edited["retain_bytes"]) == (None, 1000)
    below = await read(writer, "many", partition=2, offset=1)
    assert (below.first, below.next, [one.offset for one in below.messages]) == (3, 5, [3, 4])


async def test_one_message_or_several(writer: httpx.AsyncClient) -> None:
    url = f"{API}/news/messages"
    values: list[Any] = [{"a": [1, None]}, "123", 123, "ünï", None, 10**30, ""]
    assert posted(await writer.post(url, json={"body": values[0], "key": "k", "headers": {"h": "v"}})) == [Posted(0, 0)]
    several = await writer.post(url, json={"messages": [{"body": value} for value in values[1:]]})
    assert [one.offset for one in posted(several)] == [1, 2, 3, 4, 5, 6]
    found = await read(writer)
    assert [message.body for message in found.messages] == values
    first = found.messages[0]
    assert first == TopicMessage(0, first.at, "", "k", {"h": "v"}, values[0], 0)
    assert (found.first, found.next) == (0, 7)
    assert [one.offset for one in (await read(writer, offset=2, max=2)).messages] == [2, 3]


async def test_an_answer_holds_many_small_messages_or_few_large_ones(writer: httpx.AsyncClient) -> None:
    for size, count in ((1, 300), (200_000, 130)):
        name = f"size{size}"
        await writer.post(API, json={"name": name})
        for start in range(0, count, 60):
            batch = [{"body": "x" * size} for _ in range(start, min(count, start + 60))]
            assert posted(await writer.post(f"{API}/{name}/messages", json={"messages": batch}))
    assert [one.offset for one in (await read(writer, "size1", max=1000)).messages] == list(range(300))
    assert [one.offset for one in (await read(writer, "size1", max=130, offset=5)).messages] == list(range(5, 135))
    large = await read(writer, "size200000", max=1000)
    assert 0 < len(large.messages) < 130 == large.next


async def test_other_bytes_are_one_message(writer: httpx.AsyncClient) -> None:
    url = f"{API}/news/messages"
    for body, kind in ((b"plain {text", "text/plain"), (b'{"not": "unwrapped"}', "text/plain"), (b"\xff", "image/png")):
        answer = await writer.post(
            url, content=body, params={"key": "k", "partition": "0"}, headers={"content-type": kind}
        )
        assert len(posted(answer)) == 1
    assert await bodies(writer) == ["plain {text", {"not": "unwrapped"}, "\ufffd"]


async def test_a_repeated_batch_is_stored_once(writer: httpx.AsyncClient) -> None:
    await writer.post(API, json={"name": "many", "partitions": 4})
    batch = {"messages": [{"body": 1}, {"body": 2}], "producer": "p", "sequence": 7}
    first, again = [posted(await writer.post(f"{API}/many/messages", json=batch)) for _ in range(2)]
    assert first == again
    view = msgspec.json.decode((await writer.get(f"{API}/many")).content, type=TopicView)
    assert sum(one.next for one in view.partitions) == 2


async def test_a_reader_waits_for_what_comes(writer: httpx.AsyncClient) -> None:
    waiting = asyncio.create_task(read(writer, wait=60))
    await writer.post(f"{API}/news/messages", json={"body": "at last"})
    assert [message.body for message in (await waiting).messages] == ["at last"]
    assert (await read(writer, offset=1, wait=0.01)).messages == []


async def test_a_group_shares_and_goes_on(writer: httpx.AsyncClient) -> None:
    group = f"{API}/news/groups/team"
    await writer.post(f"{API}/news/messages", json={"messages": [{"body": n} for n in range(4)]})
    joined = await writer.post(f"{group}/join", json={})
    member = msgspec.json.decode(joined.content, type=Membership)
    lease = member.leases[0]
    done = {"partition": 0, "generation": lease.generation, "offset": 3}
    kept = await writer.post(f"{group}/commit", json={"member": member.member, "commits": [done]})
    assert (kept.status_code, kept.content) == (204, b"")
    lag = msgspec.json.decode((await writer.get(f"{group}/lag")).content, type=LagAnswer)
    assert lag.partitions == [Lag(0, 3, 4, 1, member.member)]
    stale = done | {"generation": lease.generation - 1}
    refused = await writer.post(f"{group}/commit", json={"member": member.member, "commits": [stale]})
    assert wrong(refused) == (409, "conflict")
    sought = await writer.post(f"{group}/seek", json={"to": "offset:1"})
    assert msgspec.json.decode(sought.content, type=list[Lag]) == [Lag(0, 1, 4, 3, None)]
    assert (await writer.post(f"{group}/leave", json={"member": member.member})).status_code == 204
    assert (await writer.get(f"{API}/news")).json()["groups"] == ["team"]


def event(**more: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": "e1", "source": "/here", "type": "org.it.happened"} | more


async def test_cloud_events_come_out_as_they_went_in(writer: httpx.AsyncClient) -> None:
    url = f"{API}/news/messages"
    one = event(data={"n": 1}, subject="s", partitionkey="k", datacontenttype="application/json")
    batch = [
        event(id="e2", datacontenttype="text/plain", data="words"),
        event(id="e3", datacontenttype="image/png", data_base64=base64.b64encode(b"\x89PNG\xff").decode()),
        event(id="e4"),
    ]
    assert posted(await writer.post(url, json=one, headers={"content-type": EVENT})) == [Posted(0, 0)]
    assert len(posted(await writer.post(url, json=batch, headers={"content-type": EVENTS}))) == 3
    binary = {"ce-specversion": "1.0", "ce-id": "e5", "ce-source": "/here", "ce-type": "t", "content-type": "text/csv"}
    await writer.post(url, content=b"a,b", headers=binary)
    await writer.post(url, json={"body": {"plain": True}, "key": "k"})
    answer = await writer.get(url, headers={"accept": EVENTS})
    assert answer.headers["content-type"].startswith(EVENTS)
    out = answer.json()
    for sent, got in zip([one, *batch], out[:4], strict=True):
        assert sent.items() <= got.items()
    assert (out[4]["id"], out[4]["data"], out[4]["datacontenttype"]) == ("e5", "a,b", "text/csv")
    assert out[5].pop("time").endswith("Z")
    assert out[5] == {
        "specversion": "1.0",
        "id": "news/0/5",
        "source": "/api/v1/topics/news",
        "type": "news",
        "sequence": "5",
        "partitionkey": "k",
        "datacontenttype": "application/json",
        "data": {"plain": True},
    }
    stored = (await read(writer)).messages
    assert (stored[0].key, stored[0].headers["ce-subject"], stored[0].body, stored[1].body) == (
        "k",
        "s",
        {"n": 1},
        "words",
    )


async def test_following_ends_when_the_client_leaves(door: Door, writer: httpx.AsyncClient) -> None:
    hearing = asyncio.Event()
    asked = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Any:
        if (message := next(asked, None)) is not None:
            return message
        await hearing.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message.get("body"):
            hearing.set()

    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": f"{API}/news/follow",
        "raw_path": b"",
        "query_string": b"",
    }
    scope |= {"headers": [(b"host", b"127.0.0.1")], "scheme": "http", "server": None, "client": None, "root_path": ""}
    async with asyncio.timeout(30):
        await door.app(scope, receive, send)
    assert hearing.is_set()


async def test_a_server_that_closes_keeps_nobody_waiting(door: Door, writer: httpx.AsyncClient) -> None:
    closing = asyncio.Event()
    app: Any = create_app(door.core, Settings(), closing=closing)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        following = asyncio.create_task(client.get(f"{API}/news/follow"))
        waiting = asyncio.create_task(read(client, wait=60))
        await asyncio.wait({following, waiting}, timeout=0.1)
        assert not (following.done() or waiting.done())
        closing.set()
        async with asyncio.timeout(30):
            assert (await waiting).messages == []
            assert (await following).content == b": following\n\n"


async def test_a_quiet_topic_gives_signs_of_life(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages_http, "HEARTBEAT_SECONDS", 0.01)
    await door.core.topics.create(SYSTEM, "quiet")
    async with aclosing(messages_http.events(door.core.topics, SYSTEM, "quiet", 0, 0, asyncio.Event())) as stream:
        assert [await anext(stream) for _ in range(3)] == [b": following\n\n", *[b": still here\n\n"] * 2]


async def test_the_schema_tells_how_to_publish(writer: httpx.AsyncClient) -> None:
    schema = (await writer.get("/api/v1/openapi.json")).json()
    told = schema["paths"][API + "/{topic}/messages"]["post"]
    assert set(told["requestBody"]["content"]) == {"application/json", EVENT, EVENTS, "*/*"}
    assert {"messages", "producer", "sequence"} <= set(schema["components"]["schemas"]["Publication"]["properties"])
    page = await writer.get("/docs", headers={"accept": "text/html"})
    assert "Publish one message or several" in page.text and "list of NewMessage" in page.text
