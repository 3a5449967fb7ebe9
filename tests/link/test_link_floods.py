"""Members that send more than they should: each costs a bounded amount, and the others do not notice."""

import asyncio
import struct
from typing import Any

import grpc
import msgspec
import pytest

from skep.base.errors import TooLarge
from skep.rpc.client import METHOD
from skep.rpc.messages import (
    FRAME_LIMIT,
    LOOKED_LIMIT,
    PROTOCOL,
    Beat,
    Failed,
    Hello,
    Joiner,
    Looked,
    Outcome,
    UpFrame,
    pack,
)
from skep.rpc.server import LinkServer
from skep.sources.model import Failure
from tests.link.conftest import Attach
from tests.link.ends import TOKEN, MemoryDesk, MemoryOutpost
from tests.link.test_link import refusal

MILLION = 1_000_000
HELLO = b"".join(pack([Hello(PROTOCOL, "wrk_bad", TOKEN, 1)]))


def failed(n: int) -> Outcome:
    return Outcome(n, "src_1", 1, 0.0, 0.0, Failed(Failure("network", "no"), 1))


async def test_a_million_outcomes_at_once(
    desk: MemoryDesk, server: LinkServer, attach: Attach, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who does not wait for answers is made to wait: what it sent beyond a bound stays with itself."""
    monkeypatch.setattr("skep.rpc.session._LEAST_SILENCE", 600.0)  # it never beats, and is not let go for that
    desk.slow = asyncio.Event()
    sent = 0

    async def flood(call: Any) -> None:
        nonlocal sent
        for first in range(0, MILLION, 1_000):
            for part in pack([failed(n) for n in range(first, first + 1_000)]):
                await call.write(part)
            sent = first + 1_000

    async with grpc.aio.insecure_channel(target) as channel:
        call: Any = channel.stream_stream(METHOD)()
        await call.write(HELLO)
        flooding = asyncio.create_task(flood(call))
        before = -1
        async with asyncio.timeout(60):
            while before < sent or not sent:
                before = sent
                attach(MemoryOutpost(member=f"wrk_good_{sent}"))
                beats = len(desk.beats)
                await desk.until(lambda beats=beats: len(desk.beats) >= beats + 5)  # type: ignore[misc]
        assert not flooding.done() and sent < MILLION // 4
        assert "wrk_bad" not in desk.left
        flooding.cancel()
        await asyncio.gather(flooding, return_exceptions=True)
        call.cancel()
    desk.slow.set()
    await desk.until(lambda: "wrk_bad" in desk.left)


def test_a_frame_of_several_parts_is_one_message() -> None:
    """A million small ones in 64 MB would be many times as much once they are read."""
    bodies = [msgspec.msgpack.encode(failed(n)) for n in range(12_000)]
    frame = struct.pack(">BI", 0xDD, len(bodies)) + b"".join(bodies)
    assert len(frame) > FRAME_LIMIT
    joiner = Joiner(UpFrame)
    assert joiner.feed(b"\x00" + frame[: FRAME_LIMIT - 1]) is None
    with pytest.raises(TooLarge, match="holds one message"):
        joiner.feed(b"\x01" + frame[FRAME_LIMIT - 1 :])


async def test_more_looks_than_a_beat_has(desk: MemoryDesk, server: LinkServer, target: str) -> None:
    looks = tuple(Looked(f"src_{n}", 1, 0.0, 0.0) for n in range(LOOKED_LIMIT + 1))
    assert (await refusal(target, HELLO, *pack([Beat("idle", looked=looks)]))).code == "bad_input"
    assert not desk.beats


async def test_one_that_beats_no_more_is_let_go(desk: MemoryDesk, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.rpc.session._LEAST_SILENCE", 0.3)
    server = LinkServer(desk, beat_every=0.01)
    await server.start(target)
    try:
        refused = await refusal(target, HELLO)
        assert refused.code == "bad_input" and "no heartbeat" in refused.message
        await desk.until(lambda: desk.left == ["wrk_bad"])
    finally:
        await server.stop()
