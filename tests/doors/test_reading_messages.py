"""GET /api/v1/topics/{topic}/messages has a door of its own: what a framework would have seen to, it does."""

import asyncio

import httpx
import pytest

from skep.base.caller import SYSTEM
from skep.topics.api import Draft, Part

from .conftest import Door
from .topics_calls import API, EVENTS, bodies, posted, read, wrong


async def test_a_topic_may_be_called_messages(writer: httpx.AsyncClient) -> None:
    assert (await writer.post(API, json={"name": "messages"})).status_code == 201
    assert len(posted(await writer.post(f"{API}/messages/messages", json={"body": 1}))) == 1
    assert (await writer.get(f"{API}/messages")).json()["topic"]["name"] == "messages"
    assert await bodies(writer, "messages") == [1]


@pytest.mark.parametrize("query", ["wait=nan", "wait=inf", "wait=", "offset=", "offset=one", "max=1.5", "partition=x"])
async def test_a_query_that_is_none(writer: httpx.AsyncClient, query: str) -> None:
    refused = await writer.get(f"{API}/news/messages?{query}")
    assert wrong(refused) == (400, "bad_input")
    assert query.partition("=")[0] in refused.json()["error"]["message"]


async def test_methods(writer: httpx.AsyncClient) -> None:
    await writer.post(f"{API}/news/messages", json={"body": 1})
    refused = await writer.put(f"{API}/news/messages")
    assert wrong(refused) == (405, "method_not_allowed")
    assert refused.headers["allow"] == "POST, GET"
    whole, head = [await writer.request(verb, f"{API}/news/messages") for verb in ("GET", "HEAD")]
    assert (head.status_code, head.content, head.headers) == (200, b"", whole.headers)


async def test_bodies_of_every_kind_in_one_answer(writer: httpx.AsyncClient) -> None:
    url = f"{API}/news/messages"
    written = [b'{ "spaced" :\n1e2 }', b"NaN", b'"\xff"', b"\xef\xbb\xbf1", b"01", b"", b'"\\ud800"', b"1 2"]
    for body in written:
        assert posted(await writer.post(url, content=body, headers={"content-type": "text/plain"}))
    answer = await writer.get(url)
    assert b'{ "spaced" :\n1e2 }' in answer.content
    assert [one["body"] for one in answer.json()["messages"][:5]] == [
        {"spaced": 100},
        "NaN",
        '"\ufffd"',
        "\ufeff1",
        "01",
    ]
    assert len((await read(writer)).messages) == len(written)


async def test_own_topics_are_cloud_events_for_those_who_may_see_them(door: Door, writer: httpx.AsyncClient) -> None:
    await door.core.topics.log.append(Part("skep.changes"), [Draft(b'{"id": "c1"}', "c1", "s1")])
    url, events = f"{API}/skep.changes/messages", {"accept": f"text/plain, {EVENTS}"}
    assert wrong(await writer.get(url, headers=events)) == (403, "not_allowed")
    async with door.client(await door.token("read", "private")) as client:
        (event,) = (await client.get(url, headers=events)).json()
    assert (event["id"], event["type"], event["partitionkey"], event["data"]) == (
        "c1",
        "skep.changes",
        "s1",
        {"id": "c1"},
    )


async def test_edges_fit_what_was_found_while_others_append_and_trim(door: Door, writer: httpx.AsyncClient) -> None:
    async def change() -> None:
        for n in range(60):
            await door.core.topics.log.append(Part("news"), [Draft(b"1"), Draft(b"2")])
            await door.core.topics.trim(SYSTEM, "news", 0, 2 * n)

    changing = asyncio.create_task(change())
    while not changing.done():
        found = await read(writer, max=5)
        offsets = [message.offset for message in found.messages]
        if offsets:
            assert offsets == list(range(offsets[0], offsets[-1] + 1))
            assert found.first >= offsets[0], "what was trimmed is told"
            assert found.next > offsets[-1]
    await changing


async def test_the_schema_tells_how_to_read(writer: httpx.AsyncClient) -> None:
    schema = (await writer.get("/api/v1/openapi.json")).json()
    told = schema["paths"][API + "/{topic}/messages"]["get"]
    assert [one["name"] for one in told["parameters"]] == ["topic", "offset", "partition", "max", "wait"]
    assert set(told["responses"]["200"]["content"]) == {"application/json", EVENTS}
    assert {"messages", "first", "next"} == set(schema["components"]["schemas"]["Messages"]["properties"])
    page = await writer.get("/docs", headers={"accept": "text/html"})
    assert "Read messages from an offset on" in page.text and "seconds to wait" in page.text
