"""Hosts that answer as no host should, and those that answer in one of the ways that are allowed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from skep.net.connection import NetworkError
from skep.net.http import Exchange
from skep.net.urls import parse
from skep.sources.git.http import Reply
from skep.sources.git.ls_refs import ca_bundle

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Ask = Callable[..., Any]


class Host:
    """Says one of its pieces for each request, whatever that is; an empty one is a silence, `bye` hangs up."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.connections = 0
        self.requests: list[bytes] = []
        self.serving = 0
        self.idle = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.serving += 1
        self.idle.clear()
        try:
            while self.pieces:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                piece = self.pieces.pop(0)
                writer.write(piece.removesuffix(b"bye"))
                await writer.drain()
                if piece.endswith(b"bye"):
                    break
                if not piece:
                    await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self.serving -= 1
            if not self.serving:
                self.idle.set()


@pytest.fixture
async def host() -> AsyncIterator[tuple[Host, Ask]]:
    found = Host()
    server = await asyncio.start_server(found.serve, "127.0.0.1")
    to = parse(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mn")
    patient, hasty = (Exchange(ca=ca_bundle(), timeout=seconds, largest=1000) for seconds in (60.0, 0.2))

    async def ask(pieces: Sequence[bytes], target: str = "/x", *, haste: bool = False, **more: Any) -> Reply:
        found.pieces += pieces
        return await (hasty if haste else patient).ask(to, ["127.0.0.1"], target, **more)

    yield found, ask
    patient.close()
    hasty.close()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    "piece",
    [
        OK,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1;x=y\r\nk\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nokbye",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nokbye",
        b"HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\n" + OK,
    ],
)
async def test_what_is_an_answer(host: tuple[Host, Ask], piece: bytes) -> None:
    reply = await host[1]([piece])
    assert (reply.status, reply.body) == (200, b"ok")
    assert not any(b"Link" in line for line in reply.head)


@pytest.mark.parametrize(
    ("piece", "words"),
    [
        (b"bye", "without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nokbye", "half-way"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nokbye", "half-way"),
        (b"HTTP/1.1 200 OK\r\nContent-Le" + b"bye", "half-way"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "HTTP"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok", "HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000, "larger"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200_000, "larger"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1_000_000, "larger"),
        (b"", "in time"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", "in time"),
    ],
)
async def test_what_is_none(host: tuple[Host, Ask], piece: bytes, words: str) -> None:
    found, ask = host
    with pytest.raises(NetworkError, match=words):
        await ask([piece, b""], haste=words == "in time")
    found.pieces.clear()
    await found.idle.wait()  # the next piece is for the next request
    assert (await ask([OK])).body == b"ok", "the next one is not hurt by it"


async def test_a_connection_is_kept_and_one_that_ended_meanwhile_is_replaced(host: tuple[Host, Ask]) -> None:
    found, ask = host
    for pieces in ([OK, OK], [], [OK]):
        assert (await ask(pieces)).body == b"ok"
    assert (found.connections, len(found.requests)) == (2, 3), "with nothing more to say the host hung up"


async def test_an_answer_that_nobody_asked_for_is_nobodys(host: tuple[Host, Ask]) -> None:
    found, ask = host
    assert (await ask([OK + OK.replace(b"ok", b"no"), OK])).body == b"ok"
    assert (await ask([])).body == b"ok"
    assert found.connections == 2


async def test_what_goes_into_something_has_no_bound_and_may_be_ended(host: tuple[Host, Ask]) -> None:
    _, ask = host
    kept = bytearray()
    long = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000
    await ask([long], into=kept.extend)
    assert len(kept) == 5000
    with pytest.raises(NetworkError, match="larger"):
        await ask([long], into=lambda chunk: 0)

    def full(chunk: bytes) -> None:
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        await ask([long], into=full)


async def test_what_a_host_says_instead_goes_into_nothing(host: tuple[Host, Ask]) -> None:
    kept = bytearray()
    reply = await host[1]([b"HTTP/1.1 500 Oh\r\nContent-Length: 5\r\n\r\nsorry"], into=kept.extend)
    assert (reply.status, reply.body, bytes(kept)) == (500, b"sorry", b"")


@pytest.mark.parametrize(
    ("answer", "status", "rest"),
    [
        (b"206 Partial\r\ncontent-range: bytes 3-5/6\r\nContent-Length: 3\r\n\r\ndef", 200, b"def"),
        (b"200 OK\r\nContent-Length: 6\r\n\r\nabcdef", 200, b"def"),
        (b"200 OK\r\nContent-Length: 2\r\n\r\nab", 200, b""),
        (b"206 Partial\r\nContent-Range: bytes 2-5/6\r\nContent-Length: 4\r\n\r\ncdef", 206, b""),
        (b"206 Partial\r\nContent-Length: 3\r\n\r\ndef", 206, b""),
        (b"416 No\r\nContent-Length: 2\r\n\r\nno", 416, b""),
    ],
)
async def test_of_the_rest_nothing_comes_twice(host: tuple[Host, Ask], answer: bytes, status: int, rest: bytes) -> None:
    kept = bytearray()
    reply = await host[1]([b"HTTP/1.1 " + answer], into=kept.extend, start=3)
    assert (reply.status, bytes(kept)) == (status, rest)
    assert b"\r\nRange: bytes=3-\r\n" in host[0].requests[0]


async def test_redirects_and_pauses_are_understood(host: tuple[Host, Ask]) -> None:
    _, ask = host
    reply = await ask([b"HTTP/1.1 302 Found\r\nLocation: ../y?z\r\nContent-Length: 0\r\n\r\n"], "/a/b/c")
    assert reply.redirect.endswith("/a/y?z")
    head = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nRetry-After: %s\r\n\r\n"
    pauses = (b"7", b"Sun, 06 Nov 1994 08:50:37 GMT", b"soon", b"9" * 30)
    assert [(await ask([head % one])).retry_after for one in pauses] == [7, 60, 0, 999_999_999]


@pytest.mark.parametrize("target", ["/a b", "/a\r\nX: y", "/ü", "/a\x00"])
async def test_no_address_smuggles_anything(host: tuple[Host, Ask], target: str) -> None:
    with pytest.raises(NetworkError, match="none"):
        await host[1]([OK], target)
    assert host[0].requests == []
