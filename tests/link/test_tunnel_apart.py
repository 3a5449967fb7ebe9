"""Tunnels between processes: killed ends, and a thin line that beats share with bulk bytes."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from skep.base.clock import SystemClock
from skep.base.errors import Unavailable
from skep.base.io import BLOCK
from skep.rpc import tunnel
from skep.rpc.client import LinkClient
from skep.rpc.server import LinkServer, listen
from skep.rpc.tunnel import Meeting, dial
from tests.link.ends import MemoryDesk, MemoryOutpost

GIVER = "wrk_giver"
GIVING = """
import asyncio, sys
from pathlib import Path
from skep.rpc.tunnel import dial
from skep.sources.git.process import give

async def main(address, ticket, folder):
    async with dial(address, ticket, "wrk_giver") as stream:
        await give(Path(folder), stream)

asyncio.run(main(*sys.argv[1:]))
"""
RATE = 10_000_000


@pytest.fixture
async def meeting() -> Meeting:
    return Meeting()


@pytest.fixture
async def address(meeting: Meeting) -> AsyncIterator[str]:
    server, address = await listen({tunnel.METHOD: meeting.carry}, "127.0.0.1:0")
    yield address
    await server.stop(0)


@contextlib.contextmanager
def giver(address: str, ticket: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", GIVING, address, ticket, str(folder)], stderr=subprocess.DEVNULL)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def serving(folder: Path) -> list[int]:
    """Processes of git that serve this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if b"upload-pack" in words and bytes(folder) in words:
                found.append(int(path.parent.name))
    return found


async def until_none_serves(folder: Path) -> None:
    async with asyncio.timeout(60):
        while serving(folder):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("who", ["giver", "taker"])
async def test_nothing_is_left_when_one_end_is_gone(meeting: Meeting, address: str, tmp_path: Path, who: str) -> None:
    folder = tmp_path / "there.git"
    subprocess.run(["git", "init", "-q", "--bare", folder], check=True)
    ticket = meeting.issue(GIVER)
    with giver(address, ticket.give, folder) as child:
        with contextlib.nullcontext() if who == "taker" else pytest.raises(Unavailable, match="broke off"):
            async with meeting.take(ticket.take) as stream:
                assert b"version 2" in await stream.read()
                assert len(serving(folder)) == 1
                if who == "giver":
                    child.kill()
                    async with asyncio.timeout(60):
                        while True:
                            await stream.read()
        await until_none_serves(folder)
        if who == "taker":
            assert await asyncio.to_thread(child.wait, 20) is not None
    assert not meeting._tunnels


class Thin:
    """A line of RATE bytes a second for everything that comes up through it."""

    def __init__(self, target: str) -> None:
        self._host, _, self._port = target.rpartition(":")
        self._turn = asyncio.Lock()
        self._served: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Or what is still open would be found by a later test."""
        served = list(self._served)
        for one in served:
            one.cancel()
        await asyncio.gather(*served, return_exceptions=True)
        await asyncio.sleep(0)  # connections end in the turn after

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._served.add(task)
        await asyncio.gather(task, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._host, int(self._port))
        down = asyncio.create_task(self._copy(far_reader, writer))
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._copy(reader, far_writer, thin=True)
        down.cancel()
        await asyncio.gather(down, return_exceptions=True)
        for one in (writer, far_writer):
            one.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, thin: bool = False) -> None:
        while data := await reader.read(16_384):
            if thin:
                async with self._turn:
                    await asyncio.sleep(len(data) / RATE)
            writer.write(data)
            await writer.drain()


async def test_beats_come_while_bulk_bytes_fill_the_line() -> None:
    desk = MemoryDesk()
    server = LinkServer(desk, beat_every=0.1)
    target = await server.start("127.0.0.1:0")
    thin = Thin(target)
    proxy = await asyncio.start_server(thin.serve, "127.0.0.1", 0)
    line = f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
    client = LinkClient(MemoryOutpost(member=GIVER), line, SystemClock())
    running = asyncio.create_task(client.run())
    await desk.until(lambda: bool(desk.beats))

    async def fill(ticket: str) -> None:
        async with dial(line, ticket, GIVER) as stream:
            while True:
                await stream.write(bytes(BLOCK))

    ticket = server.meeting.issue(GIVER)
    filling = asyncio.create_task(fill(ticket.give))
    async with server.meeting.take(ticket.take) as stream:
        taken, before = 0, len(desk.beats)
        async with asyncio.timeout(120):
            # behind the bulk bytes, beats would come as slowly as the line is emptied of those
            while len(desk.beats) < before + 20 or taken < 2_000_000:
                taken += len(await stream.read())
    for task in (running, filling):
        task.cancel()
    await asyncio.gather(running, filling, return_exceptions=True)
    proxy.close()
    await proxy.wait_closed()
    await thin.close()
    await server.stop(0)
