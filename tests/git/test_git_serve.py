"""A real git clones from a mirror through the two streams, over a small HTTP server of the test's own."""

import asyncio
import random
import subprocess
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from skep.base.errors import Busy, Damaged
from skep.mirrors import http
from skep.sources.git.ls_refs import parse_v0
from tests.support.forge import Repo


async def body_of(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def gather(stream: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in stream])


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = Repo.init(tmp_path / "repo.git")
    repo.commit({"a": b"1", "b": bytes(range(256)) * 4_000})
    repo.git("update-ref", "refs/skep/kept/x", "refs/heads/main")
    return repo


def children_of_this_process() -> set[str]:
    return set(Path(f"/proc/self/task/{threading.main_thread().native_id}/children").read_text().split())


class Door:
    """As little HTTP as git needs."""

    def __init__(self, repo: Repo) -> None:
        self._folder = repo.folder

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        protocol = fields.get("git-protocol", "")
        if head[0].startswith("GET"):
            stream, what = http.info_refs(self._folder, protocol), "advertisement"
        else:
            body = await reader.readexactly(int(fields.get("content-length", 0)))
            stream, what = http.upload_pack(self._folder, body_of(body), protocol), "result"
        answer = await gather(stream)
        start = f"HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-{what}\r\nConnection: close\r\n"
        writer.write(start.encode() + b"Content-Length: %d\r\n\r\n" % len(answer) + answer)
        await writer.drain()
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("version", ["0", "2"])
async def test_a_real_clone(repo: Repo, tmp_path: Path, version: str) -> None:
    server = await asyncio.start_server(Door(repo).serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x.git"
    command = ["git", "-c", f"protocol.version={version}", "clone", "-q", "--mirror", url, str(tmp_path / "clone")]
    child = await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE)
    _, err = await child.communicate()
    assert child.returncode == 0, err
    refs = Repo(tmp_path / "clone").refs()
    assert refs == {name: oid for name, oid in repo.refs().items() if not name.startswith("refs/skep/kept")}
    server.close()
    await server.wait_closed()


async def test_hidden_refs_and_odd_protocols(repo: Repo) -> None:
    for protocol in ("", "version=1;rm", "version=9", "x\ny"):
        answer = await gather(http.info_refs(repo.folder, protocol))
        assert "refs/heads/main" in parse_v0(answer).oids
        assert b"refs/skep/kept" not in answer


async def test_nonsense_is_refused(repo: Repo, tmp_path: Path) -> None:
    with pytest.raises(Damaged):
        await gather(http.upload_pack(tmp_path / "nowhere.git", body_of(b"0000"), ""))
    with pytest.raises(Damaged):
        await gather(http.upload_pack(repo.folder, body_of(b"hello world"), ""))


async def test_a_client_that_leaves_ends_the_child(repo: Repo) -> None:
    want = b"0032want %s\n00000009done\n" % repo.refs()["refs/heads/main"].encode()
    before = children_of_this_process()
    for stream in (http.upload_pack(repo.folder, body_of(want), ""), http.info_refs(repo.folder, "version=2")):
        async with aclosing(stream):
            assert await anext(stream)
        assert children_of_this_process() <= before


async def test_a_client_that_leaves_amid_a_large_pack_makes_room(repo: Repo) -> None:
    """More than pipes and buffers hold is still to come: nobody reads it, and nobody waits for it."""
    repo.commit({"large": random.Random(1).randbytes(8_000_000)})
    want = b"0032want %s\n00000009done\n" % repo.refs()["refs/heads/main"].encode()
    turnstile = http.Turnstile(at_once=1)
    async with asyncio.timeout(60):
        for _ in range(3):
            async with aclosing(http.upload_pack(repo.folder, body_of(want), "", turnstile)) as stream:
                while len(await anext(stream)) < http._BLOCK // 2:
                    pass
                await asyncio.sleep(0.05)  # the pipe and its buffer fill up


async def test_a_crowd_waits_and_then_is_sent_away() -> None:
    turnstile = http.Turnstile(at_once=1, waiting=1)
    async with turnstile.turn():
        waiting = asyncio.ensure_future(turnstile.turn().__aenter__())
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await turnstile.turn().__aenter__()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with turnstile.turn():
        pass
