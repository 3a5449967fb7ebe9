"""The topic queue of old: the seed's exchange, its answers, and two who take at once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from .conftest import Door, OpenDoor


@pytest.fixture
async def client(door: Door) -> AsyncIterator[httpx.AsyncClient]:
    async with door.client(await door.token("read", "write")) as made:
        yield made


async def ask(client: httpx.AsyncClient, method: str, path: str, **fields: Any) -> tuple[int, Any]:
    answer = await client.request(method, path, json=fields or None)
    return answer.status_code, answer.json()


async def test_the_example_on_a_fresh_server(client: httpx.AsyncClient) -> None:
    assert await ask(client, "GET", "/topics") == (200, {"status": "Success", "topics": []})
    made = await ask(client, "POST", "/topics", name="Kagenou")
    assert made == (200, {"status": "Success", "message": "Topic 'Kagenou' created."})
    again = await ask(client, "POST", "/topics", name="Kagenou")
    assert again == (400, {"status": "Failure", "message": "Topic 'Kagenou' already exists."})
    made = await ask(client, "POST", "/topics", name="Minoru")
    assert made == (200, {"status": "Success", "message": "Topic 'Minoru' created."})
    assert await ask(client, "GET", "/topics") == (200, {"status": "Success", "topics": ["Kagenou", "Minoru"]})
    for end in ("producer", "consumer"):
        joined = await ask(client, "POST", f"/{end}/register", topic="Minoru")
        wanted = {"status": "Success", f"{end}_id": 0, "message": "Subscribed to topic 'Minoru'."}
        assert joined == (200, wanted)


async def test_produced_and_consumed_in_order(client: httpx.AsyncClient) -> None:
    await ask(client, "POST", "/producer/register", topic="t")
    messages = ["one", "123", '"quoted"', "{", "ünï\n", ""]
    for message in messages:
        done = await ask(client, "POST", "/producer/produce", topic="t", producer_id=0, message=message)
        assert done == (200, {"status": "Success"})
    await ask(client, "POST", "/consumer/register", topic="t")
    for n, message in enumerate(messages):
        left = {"status": "Success", "size": len(messages) - n}
        assert await ask(client, "GET", "/size", topic="t", consumer_id=0) == (200, left)
        assert (await client.get("/size", params={"topic": "t", "consumer_id": "0"})).json() == left
        taken = await client.get("/consumer/consume", params={"topic": "t", "consumer_id": "0"})
        assert taken.json() == {"status": "Success", "message": message}
    nothing = (400, {"status": "Failure", "message": "No messages left to read."})
    assert await ask(client, "GET", "/consumer/consume", topic="t", consumer_id=0) == nothing
    read = (await client.get("/api/v1/topics/t/messages")).json()
    assert [one["body"] for one in read["messages"]] == messages


async def test_what_the_other_api_published(client: httpx.AsyncClient) -> None:
    await ask(client, "POST", "/consumer/register", topic="t")
    values = [{"body": "text"}, {"body": {"a": 1}}]
    await client.post("/api/v1/topics/t/messages", json={"messages": values})
    await client.post("/api/v1/topics/t/messages", content=b"raw", headers={"content-type": "text/plain"})
    taken = [(await ask(client, "GET", "/consumer/consume", topic="t", consumer_id=0))[1]["message"] for _ in range(3)]
    assert taken == ["text", '{"a":1}', "raw"]
    await client.post("/api/v1/topics", json={"name": "many", "partitions": 2})
    assert await ask(client, "GET", "/topics") == (200, {"status": "Success", "topics": ["t"]})


async def test_registering_makes_the_topic_and_numbers_are_unique(client: httpx.AsyncClient) -> None:
    ids = [(await ask(client, "POST", "/consumer/register", topic=name))[1]["consumer_id"] for name in ("a", "b", "a")]
    assert ids == [0, 1, 2]
    assert (await ask(client, "POST", "/producer/register", topic="c"))[1]["producer_id"] == 0
    assert (await ask(client, "GET", "/topics"))[1]["topics"] == ["a", "b", "c"]


async def test_no_message_is_taken_twice(client: httpx.AsyncClient) -> None:
    await ask(client, "POST", "/producer/register", topic="t")
    await ask(client, "POST", "/consumer/register", topic="t")
    batch = {"messages": [{"body": str(n)} for n in range(60)]}
    await client.post("/api/v1/topics/t/messages", json=batch)
    taking = [ask(client, "GET", "/consumer/consume", topic="t", consumer_id=0) for _ in range(80)]
    taken = await asyncio.gather(*taking)
    assert Counter(status for status, _ in taken) == {200: 60, 400: 20}
    assert {answer["message"] for status, answer in taken if status == 200} == {str(n) for n in range(60)}


FAILURES: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/topics", {}),
    ("POST", "/topics", {"name": 5}),
    ("POST", "/topics", {"name": "a/b"}),
    ("POST", "/topics", {"name": "x" * 10_000}),
    ("POST", "/topics", {"name": "a\x00"}),
    ("POST", "/producer/register", {}),
    ("POST", "/producer/register", {"topic": "a b"}),
    ("POST", "/consumer/register", {"topic": None}),
    ("POST", "/producer/produce", {"topic": "t", "producer_id": 0}),
    ("POST", "/producer/produce", {"topic": "t", "producer_id": "0", "message": "m"}),
    ("POST", "/producer/produce", {"topic": "t", "producer_id": 7, "message": "m"}),
    ("POST", "/producer/produce", {"topic": "u", "producer_id": 0, "message": "m"}),
    ("POST", "/producer/produce", {"topic": "unknown", "producer_id": 0, "message": "m"}),
    ("POST", "/producer/produce", {"topic": "t", "producer_id": 0, "message": {"a": 1}}),
    ("POST", "/producer/produce", {"topic": "t", "producer_id": True, "message": "m"}),
    ("GET", "/consumer/consume", {"topic": "t", "consumer_id": 7}),
    ("GET", "/consumer/consume", {"topic": "t", "consumer_id": -1}),
    ("GET", "/consumer/consume", {"topic": "t", "consumer_id": 1 << 80}),
    ("GET", "/consumer/consume", {"topic": "u", "consumer_id": 0}),
    ("GET", "/consumer/consume", {"topic": "unknown", "consumer_id": 0}),
    ("GET", "/consumer/consume", {}),
    ("GET", "/size", {"topic": "t", "consumer_id": 7}),
    ("GET", "/size", {"topic": "u", "consumer_id": 0}),
    ("GET", "/size", {"topic": "t"}),
]


async def test_failures(client: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for topic in ("t", "u"):
        await ask(client, "POST", "/topics", name=topic)
    for end in ("producer", "consumer"):
        await ask(client, "POST", f"/{end}/register", topic="t")
    before = await ask(client, "GET", "/topics")
    for method, path, fields in FAILURES:
        with subtests.test(ascii((method, path, fields))[:200]):
            status, answer = await ask(client, method, path, **fields)
            assert (status, answer["status"], set(answer)) == (400, "Failure", {"status", "message"})
            assert answer["message"]
            assert await ask(client, "GET", "/topics") == before
            assert (await ask(client, "GET", "/size", topic="t", consumer_id=0))[1]["size"] == 0


async def test_bodies_that_are_no_fields(client: httpx.AsyncClient) -> None:
    for body in (b"{", b"[]", b'"topic"', b"\xff", b"[" * 100_000):
        answer = await client.post("/topics", content=body)
        assert (answer.status_code, answer.json()["status"]) == (400, "Failure")


async def test_a_token_is_needed(open_door: OpenDoor) -> None:
    async with open_door(open_read=False) as door, door.client() as stranger, door.client("skep_wrong") as liar:
        for client in (stranger, liar):
            for method, path in ROUTES:
                answer = await client.request(method, path)
                assert (answer.status_code, answer.json()["status"]) == (401, "Failure"), path
        assert (await stranger.get("/topics", headers={"accept": "text/html"})).status_code == 401


async def test_old_scripts_need_none_where_the_settings_say_so(open_door: OpenDoor) -> None:
    async with open_door(open_read=False, open_topics=True) as door, door.client() as stranger:
        assert (await ask(stranger, "POST", "/topics", name="t"))[0] == 200
        assert (await ask(stranger, "POST", "/producer/register", topic="t"))[0] == 200
        assert (await ask(stranger, "POST", "/consumer/register", topic="t"))[0] == 200
        assert (await ask(stranger, "POST", "/producer/produce", topic="t", producer_id=0, message="m"))[0] == 200
        elsewhere = {"origin": "http://elsewhere.example"}
        assert (await stranger.post("/topics", json={"name": "x"}, headers=elsewhere)).status_code == 403
        other_site = {"sec-fetch-site": "cross-site"}
        taken = await stranger.get("/consumer/consume?topic=t&consumer_id=0", headers=other_site)
        assert taken.status_code == 403
        assert (await ask(stranger, "GET", "/size", topic="t", consumer_id=0))[1]["size"] == 1
        assert (await ask(stranger, "GET", "/consumer/consume", topic="t", consumer_id=0))[1]["message"] == "m"
        for method, path in (("GET", "/api/v1/topics"), ("POST", "/api/v1/topics/t/messages"), ("GET", "/topics/t")):
            assert (await stranger.request(method, path, json={"body": 1})).status_code == 401
        assert (await stranger.get("/topics", headers={"accept": "text/html"})).status_code == 401
        assert (await stranger.get("/sources")).status_code == 401


ROUTES = [
    ("GET", "/topics"),
    ("POST", "/topics"),
    ("POST", "/producer/register"),
    ("POST", "/producer/produce"),
    ("POST", "/consumer/register"),
    ("GET", "/consumer/consume"),
    ("GET", "/size"),
]
