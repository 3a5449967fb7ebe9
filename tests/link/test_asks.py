"""Requests over the link: many at once, in any order, across disconnections, and forgotten when nobody waits."""

import asyncio
from pathlib import Path

import grpc
import msgspec
import pytest

from skep.base.clock import SystemClock
from skep.base.errors import Busy, NotFound, Unavailable
from skep.rpc.client import Peer
from skep.rpc.messages import ASKS_LIMIT, PROTOCOL, Ask, Begin, DownFrame, Hello, pack
from skep.rpc.server import METHOD, LinkServer
from skep.spaces.api import Acknowledge, Get, GiveBack, Got, Placed, Put
from tests.link.ends import TOKEN, MemoryDesk


def peer_of(target: str) -> Peer:
    return Peer(target, TOKEN, ("manager",), SystemClock(), member="man_1")


async def test_thousands_at_once_each_get_their_own_answer(desk: MemoryDesk, server: LinkServer, target: str) -> None:
    async with peer_of(target).running() as peer:
        blocked = asyncio.create_task(peer.ask(Get("shut", (), "t")))
        answers = await asyncio.gather(*(peer.ask(Put("a", (n, 1))) for n in range(10_000)))
        assert answers == [Placed(n + 1) for n in range(10_000)]
        assert desk.hellos[0].roles == ("manager",)
        desk.opened["shut"].set()
        got = await blocked
        assert isinstance(got, Got)
        assert got.taken.ticket == "t"


async def test_an_error_comes_back_as_the_class_it_was(server: LinkServer, target: str) -> None:
    async with peer_of(target).running() as peer:
        with pytest.raises(NotFound, match="no such thing") as caught:
            await peer.ask(Acknowledge("a", 1, "t"))
        assert caught.value.hint == "look elsewhere"


async def test_a_blocked_ask_outlives_streams_and_is_asked_again(desk: MemoryDesk, target: str) -> None:
    async with peer_of(target).running() as peer:
        early = asyncio.create_task(peer.ask(Get("shut", (), "t")))
        for streams in (1, 2, 3):
            server = LinkServer(desk, beat_every=0.1)
            await server.start(target)
            await desk.until(lambda n=streams: len(desk.asked) == n)  # type: ignore[misc]
            await server.stop(0)
            assert len(desk.cancelled) == streams
        server = LinkServer(desk, beat_every=0.1)
        desk.opened["shut"].set()
        await server.start(target)
        assert isinstance(await early, Got)
        assert [again for _, again in desk.asked] == [False, True, True, True]
        await server.stop()


async def test_who_stops_waiting_is_forgotten(desk: MemoryDesk, server: LinkServer, target: str) -> None:
    async with peer_of(target).running() as peer:
        with pytest.raises(Unavailable, match=r"did not answer in 0.01 s"):
            await peer.ask(Get("late", (), "t"), timeout=0.01)
        waiting = asyncio.create_task(peer.ask(Get("shut", (), "t")))
        await desk.until(lambda: "shut" in desk.opened)
        waiting.cancel()
        await desk.until(lambda: "shut" in desk.cancelled)


async def test_what_was_taken_for_a_cancelled_caller_is_given_back(
    desk: MemoryDesk, server: LinkServer, target: str
) -> None:
    async with peer_of(target).running() as peer:
        waiting = asyncio.create_task(peer.ask(Get("shut", (), "t")))
        await desk.until(lambda: "shut" in desk.opened)
        # the server answers before it can hear of the cancellation
        desk.opened["shut"].set()
        waiting.cancel()
        await desk.until(lambda: "shut" in desk.cancelled or (GiveBack("shut", 1, "t"), False) in desk.asked)


async def test_asks_end_with_the_link(server: LinkServer, target: str) -> None:
    peer = peer_of(target)
    async with peer.running():
        waiting = asyncio.create_task(peer.ask(Get("shut", (), "t")))
        await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="has ended"):
        await waiting
    with pytest.raises(Unavailable, match="has ended"):
        await peer.ask(Put("a", ()))


async def test_too_many_are_declined(desk: MemoryDesk, server: LinkServer, target: str, tmp_path: Path) -> None:
    """Our own client holds back; another may not."""
    async with grpc.aio.insecure_channel(target) as channel:
        call = channel.stream_stream(METHOD)()
        asks = [Ask(n, Get("shut", (), "t")) for n in range(ASKS_LIMIT + 1)]
        for part in [*pack([Hello(PROTOCOL, "man_1", TOKEN, 1)]), *pack(asks)]:
            await call.write(part)
        messages: list[object] = []
        while not any(type(message).__name__ == "Answer" for message in messages):
            messages = msgspec.msgpack.decode((await call.read())[1:], type=DownFrame)
        assert Busy.code in str(messages)
        while desk.waiting < ASKS_LIMIT:  # one that is cancelled before it waits is not counted
            await asyncio.sleep(0)
        call.cancel()
    await desk.until(lambda: len(desk.cancelled) == ASKS_LIMIT)


@pytest.mark.parametrize("asking", [True, False])
async def test_a_stream_that_breaks_while_it_ends_ends_whole(
    desk: MemoryDesk, server: LinkServer, target: str, asking: bool
) -> None:
    """The end of what the member wrote begins it; gRPC's word that nobody reads any more comes amid it."""
    desk.lingering = asyncio.Event()
    async with grpc.aio.insecure_channel(target) as channel:
        call = channel.stream_stream(METHOD)()
        asks = [Ask(1, Get("shut", (), "t"))] if asking else []
        for part in [*pack([Hello(PROTOCOL, "man_1", TOKEN, 1)]), *pack(asks)]:
            await call.write(part)
        await desk.until(lambda: desk.waiting == len(asks) and server.has("man_1"))
        await call.done_writing()
        await desk.until(lambda: desk.ending)
        call.cancel()
        with pytest.raises(Unavailable):  # as soon as the server knows
            while True:
                await server.push("man_1", Begin(()))
        desk.lingering.set()
    await desk.until(lambda: desk.left == ["man_1"])
    assert desk.cancelled == ["shut"] * len(asks)
