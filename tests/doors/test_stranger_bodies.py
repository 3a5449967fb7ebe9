"""Callers without a token send small bodies, soon; what is refused is refused before it is read."""

import asyncio
from typing import Any

import pytest

from skep.base.errors import TooSlow
from skep.interfaces.http import asgi
from skep.interfaces.http.guard import STRANGERS_LIMIT, StrangersBody

from .asgi_calls import Body, send_request
from .conftest import Door, OpenDoor
from .test_held_writes import connected

FORM = "application/x-www-form-urlencoded"
SECONDS = 60


async def test_body_of_a_stranger_announced_as_too_large_is_refused_unread(door: Door) -> None:
    body = Body()
    size = str(STRANGERS_LIMIT + 1)
    answer = await send_request(door, "POST", "/login", body, content_length=size, content_type=FORM)
    assert (answer.status, answer.code, body.reads) == (413, "too_large", 0)


async def test_chunked_body_of_a_stranger_that_never_ends_is_refused_at_the_limit(door: Door) -> None:
    body = Body((b"x" * 4096 for _ in range(1_000_000)), ends=False)
    answer = await send_request(door, "POST", "/login", body, content_type=FORM)
    assert (answer.status, answer.code, body.reads) == (413, "too_large", STRANGERS_LIMIT // 4096 + 1)


async def test_message_of_a_stranger_on_the_open_queue_larger_than_the_limit_is_refused(open_door: OpenDoor) -> None:
    async with open_door(open_topics=True) as door:
        body = Body([b"x" * (STRANGERS_LIMIT + 1)])
        answer = await send_request(door, "POST", "/producer/produce", body)
        assert (answer.status, body.reads) == (413, 1)


async def test_slow_body_of_a_stranger_is_refused_after_its_time() -> None:
    async def never() -> Any:
        await asyncio.Event().wait()

    scope: Any = {"path": "/login", "headers": []}
    with pytest.raises(TooSlow, match="did not arrive"):
        await StrangersBody(scope, never, seconds=0.01)()


async def test_stranger_whose_body_has_arrived_may_wait_for_the_end_longer_than_its_time() -> None:
    messages = iter([{"type": "http.request", "body": b"", "more_body": False}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(messages)

    scope: Any = {"path": "/login", "headers": []}
    body = StrangersBody(scope, receive, seconds=1e-9)
    body._until = float("inf")
    await body()
    body._until = 0.0
    assert (await body())["type"] == "http.disconnect"


async def test_large_delivery_of_a_forge_is_read_but_not_decoded_unless_it_is_signed(door: Door) -> None:
    answer = await send_request(door, "POST", "/hooks/github", Body([b"[" * 100_000]), x_github_event="push")
    assert (answer.status, answer.code) == (401, "needs_token")


async def test_caller_with_a_token_may_send_more_than_a_stranger(door: Door) -> None:
    body = Body([b'{"url": "' + b"x" * STRANGERS_LIMIT + b'"}'])
    answer = await send_request(door, "POST", "/api/v1/sources", body, await door.token("write"))
    assert answer.status == 400


async def test_connection_without_token_that_announces_a_body_gets_401_and_is_not_asked_for_it(door: Door) -> None:
    head = b"POST /api/v1/contexts HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000000\r\n"
    async with connected(door.app) as (reader, writer):
        writer.write(head + b"Expect: 100-continue\r\n\r\n")
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 401 ")


async def test_connection_that_goes_on_sending_after_the_answer_is_closed(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi, "_LINGER", 0.0)
    head = b"POST /api/v1/contexts HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with connected(door.app) as (reader, writer), asyncio.timeout(SECONDS):
        writer.write(head + b"1\r\nx\r\n")
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 401 ")
        await reader.read()  # to its end
