"""A worker that only dials out gives what it holds: to the coordinator, to an aggregator, to another worker."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from skep.base.errors import Busy, NotFound, Unavailable
from skep.base.io import Stream
from skep.processes import tunnel_sender
from skep.rpc import tunnel
from skep.rpc.messages import BlobOf, DeltaOf, FolderOf, GitOf, Hold, Open, Release, What
from skep.rpc.server import LinkServer, listen
from skep.rpc.transfer import take_folder
from skep.rpc.tunnel import Meeting, dial
from skep.sources.git import repository
from skep.sources.git.mirror import folder_of
from skep.sources.git.mirror_copy import Bounds, fetch_through, nothing_told
from skep.sources.model import Failure
from tests.support.forge import Forge
from tests.worker.conftest import Running
from tests.worker.desk import RecordingDesk, held
from tests.worker.test_replica_turns import eventually

BOUNDS = Bounds(seconds=60, largest=1 << 30, breaks=1)


class Way:
    """How a tunnel to the worker comes about."""

    def __init__(self, link: LinkServer, member: str, name: str) -> None:
        self.link = link
        self.member = member
        self.name = name
        self.address = ""
        self.meeting = Meeting()

    def opened(self, what: What) -> AbstractAsyncContextManager[Stream]:
        match self.name:
            case "coordinator" | "aggregator":
                meeting = self.link.meeting if self.name == "coordinator" else self.meeting
                address = "" if self.name == "coordinator" else self.address
                return meeting.opened(self.member, lambda half: self.link.push(self.member, Open(address, half, what)))
            case _:
                return self._relayed(what)

    @asynccontextmanager
    async def _relayed(self, what: What) -> AsyncIterator[Stream]:
        """As another worker does: with the half of a ticket that the coordinator gave to it."""
        ticket = self.link.meeting.issue(self.member, "wrk_other")
        await self.link.push(self.member, Open("", ticket.give, what))
        async with dial(self.address, ticket.take, "wrk_other") as stream:
            yield stream


@pytest.fixture(params=["coordinator", "aggregator", "relay"])
async def way(
    request: pytest.FixtureRequest, desk: RecordingDesk, server: LinkServer, link: str, worker: Running
) -> AsyncIterator[Way]:
    await desk.until(lambda: desk.members and desk.beats)
    way = Way(server, desk.members[0], request.param)
    aggregator, way.address = await listen({tunnel.METHOD: way.meeting.carry}, "127.0.0.1:0")
    if way.name == "relay":
        way.address = link
    yield way
    await aggregator.stop(0)


async def hold(forge: Forge, desk: RecordingDesk, source: str) -> None:
    desk.give(Hold(held(source, forge.url("one"))))
    await desk.until(lambda: desk.fetched(source))


async def test_a_mirror_is_copied_and_follows(
    forge: Forge, desk: RecordingDesk, worker: Running, way: Way, tmp_path: Path
) -> None:
    repo = forge.create("one", {"a.txt": b"alpha\n"})
    await hold(forge, desk, "src_1")
    there, here = folder_of(worker.data, "src_1"), tmp_path / "copy.git"
    for text in (b"beta", b"gamma"):
        found = await fetch_through(
            here, "https://x.org/one", lambda: way.opened(GitOf("src_1")), nothing_told, BOUNDS, lambda _: None, 1.0
        )
        assert not isinstance(found, Failure)
        assert repository.read_all(here) == repository.read_all(there)
        moves = len(desk.moves("src_1", "refs/heads/main"))
        repo.commit({"a.txt": text})
        await desk.until(lambda moves=moves: len(desk.moves("src_1", "refs/heads/main")) > moves)  # type: ignore[misc]


async def test_only_what_is_held_is_given(forge: Forge, desk: RecordingDesk, worker: Running, way: Way) -> None:
    forge.create("one", {"a.txt": b"alpha\n"})
    await hold(forge, desk, "src_1")
    (worker.data / "worker" / "deltas" / "other").mkdir()
    refused: list[What] = [
        GitOf("src_2"),
        GitOf("../../../etc"),
        DeltaOf("src_2"),
        BlobOf("0" * 64),
        FolderOf("delta", "dlt_00000000000000000000000000"),
        FolderOf("delta", "other"),
        FolderOf("delta", ".."),
        FolderOf("delta", "../worker.db"),
        FolderOf("book", "../books/bok_00000000000000000000000000"),
    ]
    for what in refused:
        with pytest.raises(NotFound, match="does not have"):
            async with way.opened(what):
                pass
    # its mirror is lost, and nobody can make it anew
    forge.rename("one", "other")
    await desk.until(lambda: desk.failed("src_1"))
    folder = folder_of(worker.data, "src_1")
    folder.rename(folder.with_suffix(".aside"))
    for what in (GitOf("src_1"), DeltaOf("src_1")):
        with pytest.raises(NotFound, match="does not have"):
            async with way.opened(what):
                pass


async def test_a_mirror_is_removed_when_nobody_reads_it(
    forge: Forge, desk: RecordingDesk, worker: Running, way: Way
) -> None:
    forge.create("one", {"a.txt": b"alpha\n"})
    await hold(forge, desk, "src_1")
    folder = folder_of(worker.data, "src_1")
    async with way.opened(GitOf("src_1")) as stream:
        assert await stream.read()
        await let_go(desk, "src_1")
        with pytest.raises(NotFound):
            async with way.opened(GitOf("src_1")):
                pass
        assert folder.exists()
        # wanted again: it is not waited for
        looked = len(forge.requests)
        desk.give(Hold(held("src_1", forge.url("one"), epoch=2)))
        await eventually(lambda: len(forge.requests) > looked)
        await let_go(desk, "src_1")
        assert folder.exists()
    await eventually(lambda: not folder.exists())
    assert not any(request.clone for request in forge.requests[looked:])


async def test_whoever_reads_a_mirror_for_too_long_is_cut_off(
    forge: Forge, desk: RecordingDesk, worker: Running, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel_sender, "PATIENCE", 0.1)
    forge.create("one", {"a.txt": b"alpha\n"})
    await hold(forge, desk, "src_1")
    with pytest.raises(Unavailable, match="broke off"):
        async with asyncio.timeout(60), way.opened(GitOf("src_1")) as stream:
            await let_go(desk, "src_1")
            while True:
                await stream.read()
    await eventually(lambda: not folder_of(worker.data, "src_1").exists())


async def let_go(desk: RecordingDesk, source: str) -> None:
    desk.give(Release(source))
    await desk.until(lambda: not desk.pending)


async def test_a_delta_is_taken(worker: Running, way: Way, tmp_path: Path) -> None:
    id = "dlt_01ARZ3NDEKTSV4RRFFQ69G5FAV"
    delta = worker.data / "worker" / "deltas" / id
    (delta / "shard").mkdir(parents=True)
    (delta / "shard" / "postings").write_bytes(bytes(range(256)) * 10_000)
    async with way.opened(FolderOf("delta", id)) as stream:
        await take_folder(stream, tmp_path / "taken", 10 << 20)
    assert (tmp_path / "taken/shard/postings").read_bytes() == (delta / "shard/postings").read_bytes()
    shutil.rmtree(delta)


async def test_too_many_at_once_are_declined(
    forge: Forge, desk: RecordingDesk, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel_sender, "AT_ONCE", 2)
    forge.create("one", {"a.txt": b"alpha\n"})
    await hold(forge, desk, "src_1")
    async with way.opened(GitOf("src_1")) as one, way.opened(GitOf("src_1")) as two:
        assert await one.read()
        assert await two.read()
        with pytest.raises(Busy, match="2 tunnels"):
            async with way.opened(GitOf("src_1")):
                pass


async def test_a_worker_that_stops_ends_its_tunnels(
    forge: Forge, desk: RecordingDesk, worker: Running, way: Way
) -> None:
    forge.create("one", {"a.txt": b"alpha\n"})
    await hold(forge, desk, "src_1")
    with pytest.raises(Unavailable, match="broke off"):
        async with way.opened(GitOf("src_1")) as stream:
            assert await stream.read()
            await worker.stop()
            async with asyncio.timeout(60):
                while True:  # what was on its way comes first
                    await stream.read()
