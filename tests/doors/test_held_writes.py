"""Answers whose writes are held until the loop turns, and requests that no handler ever sees, on a real connection."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import uvicorn

from skep.base.answers import ErrorAnswer
from skep.interfaces.http.asgi import HeldProtocol

SECONDS = 30
CHUNK = b"x" * 50_000
Asgi = Callable[[Any, Any, Any], Any]


@asynccontextmanager
async def connected(app: Asgi) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    server = uvicorn.Server(uvicorn.Config(app, http=HeldProtocol, lifespan="off", log_config=None, access_log=False))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        try:
            async with asyncio.timeout(SECONDS):
                yield reader, writer
        finally:
            writer.close()
            server.should_exit = True
            await serving


def request(path: str, more: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode()


async def sized(scope: Any, receive: Any, send: Any) -> None:
    """/N answers N bytes."""
    body = b"y" * int(scope["path"][1:])
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.mark.parametrize("sizes", [[0], [5], [65_536], [3_000_000], [1, 200_000, 0, 7]])
async def test_answers_come_whole_and_in_order(sizes: list[int]) -> None:
    async with connected(sized) as (reader, writer):
        writer.write(
            b"".join(request(f"/{size}") for size in sizes[:-1]) + request(f"/{sizes[-1]}", "Connection: close\r\n")
        )
        for size in sizes:
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            assert await reader.readexactly(size) == b"y" * size
        assert await reader.read() == b"", "the last answer went out before the connection closed"


async def test_the_head_of_a_stream_does_not_wait_for_its_body() -> None:
    seen = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await seen.wait()
        await send({"type": "http.response.body", "body": b"then"})

    async with connected(app) as (reader, writer):
        writer.write(request("/"))
        await reader.readuntil(b"\r\n\r\n")
        seen.set()
        assert await reader.readuntil(b"0\r\n\r\n") == b"4\r\nthen\r\n0\r\n\r\n"


async def test_a_reader_that_does_not_read_holds_the_handler_up() -> None:
    sent, stuck = 0, asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal sent
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(4000):
            asyncio.get_running_loop().call_soon(stuck.set)  # has its turn only if `send` waits
            await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
            sent += len(CHUNK)
        await send({"type": "http.response.body", "body": b""})

    async with connected(app) as (_, writer):
        writer.write(request("/"))
        await stuck.wait()
        assert sent < 100_000_000
        writer.transport.abort()


#: as much as is read of a head that does not end, and a byte more
ENDLESS = 4_000_001


@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [
        (request("/?q=" + "a" * 1_000_000), 414, "the address is longer than 65,535 bytes"),
        (request("/", "X-Long: " + "a" * ENDLESS)[:ENDLESS], 431, "the request's head is longer than 4,000,000 bytes"),
        (request("/", "X-Many: a\r\n" * ENDLESS)[:ENDLESS], 431, "the request's head is longer than 4,000,000 bytes"),
        (b"\x16\x03\x01 hello", 400, "this is no HTTP request"),
    ],
    ids=["address", "header", "headers", "TLS"],
)
async def test_a_request_that_nobody_can_read_is_told_so(sent: bytes, status: int, said: str) -> None:
    async with connected(sized) as (reader, writer):
        writer.write(sent)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert int(head.split()[1]) == status
        assert msgspec.json.decode(body, type=ErrorAnswer).error.message == said
