import asyncio
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from skep.base.clock import SystemClock
from skep.base.errors import BadInput, Replaced
from skep.rpc import session
from skep.rpc.client import LinkClient
from skep.rpc.messages import FRAME_LIMIT, PROTOCOL, Hello, Refused, pack
from skep.rpc.server import METHOD, LinkServer
from skep.sources.model import Key
from tests.link.conftest import Attach
from tests.link.ends import TOKEN, MemoryDesk, MemoryOutpost


async def test_orders_come_at_once_and_outcomes_are_acked(desk: MemoryDesk, server: LinkServer, attach: Attach) -> None:
    outpost = MemoryOutpost()
    outpost.post(range(1, 1001))
    desk.refuse = {500}
    client = attach(outpost)
    await outpost.until(lambda: not outpost.outbox)
    assert desk.got == list(range(1, 1001))
    assert [answer.n for answer in outpost.refused] == [500]
    desk.order(7)
    await desk.until(lambda: desk.confirmed == [7])
    outpost.post([2000])
    client.ring()
    await outpost.until(lambda: not outpost.outbox)
    assert desk.got[-1] == 2000


async def test_more_orders_than_the_desk_gives_at_once(desk: MemoryDesk, server: LinkServer, attach: Attach) -> None:
    for n in range(1, 501):
        desk.order(n)
    attach(MemoryOutpost())
    await desk.until(lambda: desk.confirmed == list(range(1, 501)))


async def test_an_unconfirmed_order_is_repeated_and_done_once(
    desk: MemoryDesk, server: LinkServer, attach: Attach
) -> None:
    outpost = MemoryOutpost()
    outpost.stuck = asyncio.Event()
    desk.order(1)
    attach(outpost)
    await desk.until(lambda: len(desk.beats) > 2)
    assert not desk.confirmed
    outpost.stuck.set()
    await desk.until(lambda: desk.confirmed == [1])
    # the coordinator forgets that it was confirmed: the repeat is confirmed again, not done again
    desk.order(1)
    await desk.until(lambda: desk.confirmed == [1, 1])
    assert len(outpost.done) == 1


async def test_a_server_that_comes_and_goes_gets_everything_in_order(
    desk: MemoryDesk, target: str, attach: Attach
) -> None:
    outpost = MemoryOutpost()
    client = attach(outpost)
    posted = 0
    for _ in range(4):
        server = LinkServer(desk, beat_every=0.1)
        await server.start(target)
        posted += 300
        outpost.post(range(posted - 299, posted + 1))
        client.ring()
        seen = len(desk.got)
        await desk.until(lambda seen=seen: len(desk.got) > seen)  # type: ignore[misc]
        await server.stop(0)
        outpost.post(range(posted + 1, posted + 51))
        posted += 50
    server = LinkServer(desk, beat_every=0.1)
    await server.start(target)
    await outpost.until(lambda: not outpost.outbox)
    await server.stop()
    assert set(desk.got) == set(range(1, posted + 1))
    for source in range(7):
        firsts = list(dict.fromkeys(n for n in desk.got if n % 7 == source))
        assert firsts == sorted(firsts)


async def test_outcomes_larger_than_a_frame(desk: MemoryDesk, server: LinkServer, attach: Attach) -> None:
    outpost = MemoryOutpost()
    outpost.post([1, 2, 3], padding=3 * FRAME_LIMIT)
    attach(outpost)
    await outpost.until(lambda: not outpost.outbox)
    assert desk.got == [1, 2, 3]


async def test_a_slow_desk_delays_no_beats(desk: MemoryDesk, server: LinkServer, attach: Attach) -> None:
    desk.slow = asyncio.Event()
    outpost = MemoryOutpost()
    outpost.post(range(1, 2001))
    attach(outpost)
    await desk.until(lambda: len(desk.beats) > 3)
    assert not desk.got
    desk.slow.set()
    await outpost.until(lambda: not outpost.outbox)


async def test_a_newer_boot_ends_the_older_stream(desk: MemoryDesk, server: LinkServer, attach: Attach) -> None:
    older = attach(MemoryOutpost(boot=3))
    await desk.until(lambda: len(desk.hellos) == 1)
    newer = attach(MemoryOutpost(boot=4))
    with pytest.raises(Replaced, match="newer process"):
        await older.task  # type: ignore[attr-defined]
    beats = len(desk.beats)
    await desk.until(lambda: len(desk.beats) > beats)
    assert newer.attached
    assert not desk.left


async def test_a_member_that_leaves_is_gone(desk: MemoryDesk, server: LinkServer, attach: Attach) -> None:
    client = attach(MemoryOutpost())
    await desk.until(lambda: len(desk.beats) > 0)
    client.task.cancel()  # type: ignore[attr-defined]
    await desk.until(lambda: desk.left == desk.down == ["wrk_1"])


async def test_who_is_sent_away_because_the_server_stops_did_not_go_down(
    desk: MemoryDesk, server: LinkServer, attach: Attach
) -> None:
    attach(MemoryOutpost())
    await desk.until(lambda: len(desk.beats) > 0)
    await server.stop(60.0)
    assert (desk.left, desk.down) == (["wrk_1"], [])


async def refusal(target: str, *parts: bytes) -> Refused:
    """What the server says to a stranger who sends these bytes."""
    async with grpc.aio.insecure_channel(target) as channel:
        call: Any = channel.stream_stream(METHOD)()
        for part in parts:
            await call.write(part)
        answer = b""
        while (got := await call.read()) is not grpc.aio.EOF:
            answer = got
    return msgspec.msgpack.decode(answer[1:], type=list[Refused])[0]


@pytest.mark.parametrize(
    "part",
    [b"", b"GET / HTTP/1.1", b"\x01", b"\x01\xff\xff", b"\x01\x91\x80", b"\x01" + b"\xc1" * 100, b"\x01\x90"],
)
async def test_garbage_gets_a_clear_answer(server: LinkServer, target: str, part: bytes) -> None:
    refused = await refusal(target, part)
    assert refused.code == "bad_input"


async def test_a_stranger_may_not_send_much(server: LinkServer, target: str) -> None:
    assert (await refusal(target, b"\x01" + bytes(FRAME_LIMIT))).code == "too_large"
    assert (await refusal(target, b"\x01" + bytes(100_000))).code == "too_large"


async def test_garbage_after_hello_ends_only_this_stream(
    desk: MemoryDesk, server: LinkServer, attach: Attach, target: str
) -> None:
    attach(MemoryOutpost(member="wrk_good"))
    hello = b"".join(pack([Hello(PROTOCOL, "wrk_bad", TOKEN, 1)]))
    assert (await refusal(target, hello, b"\x01nonsense")).code == "bad_input"
    assert (await refusal(target, hello, b"\x01" + bytes(FRAME_LIMIT))).code == "too_large"
    assert (await refusal(target, hello, hello)).code == "bad_input"
    beats = len(desk.beats)
    await desk.until(lambda: len(desk.beats) > beats)
    assert "wrk_good" not in desk.left


async def test_another_protocol_is_refused_by_both_sides(desk: MemoryDesk, server: LinkServer, target: str) -> None:
    hello = b"".join(pack([Hello(PROTOCOL + 1, "wrk_1", TOKEN, 1)]))
    refused = await refusal(target, hello)
    assert refused.code == "protocol"
    assert "same version" in refused.hint
    assert not desk.hellos


async def test_a_wrong_token_is_refused_and_tried_again(
    desk: MemoryDesk, server: LinkServer, attach: Attach, caplog: pytest.LogCaptureFixture, target: str
) -> None:
    hello = b"".join(pack([Hello(PROTOCOL, "wrk_1", "wrong", 1)]))
    assert (await refusal(target, hello)).code == "needs_token"
    outpost = MemoryOutpost(token="wrong")
    client = attach(outpost)
    while "this token is not known" not in caplog.text:
        await asyncio.sleep(0.01)
    outpost._hello = MemoryOutpost()._hello
    await desk.until(lambda: len(desk.beats) > 0)
    assert client.attached


async def test_the_socket_is_private(server: LinkServer, target: str) -> None:
    path = Path(target.removeprefix("unix:"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_a_socket_path_that_is_too_long(desk: MemoryDesk, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="longer than 107 bytes"):
        await LinkServer(desk, beat_every=1).start(f"unix:{tmp_path / ('x' * 100)}")


async def test_over_tcp_and_a_taken_port(desk: MemoryDesk) -> None:
    server, second = LinkServer(desk, beat_every=0.1), LinkServer(desk, beat_every=0.1)
    target = await server.start("127.0.0.1:0")
    with pytest.raises(BadInput, match="cannot listen"):
        await second.start(target)
    outpost = MemoryOutpost()
    outpost.post([1])
    client = asyncio.create_task(LinkClient(outpost, target, SystemClock()).run())
    await outpost.until(lambda: not outpost.outbox)
    client.cancel()
    await asyncio.wait([client])
    await server.stop()


async def test_hundreds_of_children_under_load(desk: MemoryDesk, server: LinkServer, attach: Attach) -> None:
    """grpc's threads and handlers must not get in the way of starting processes, nor the reverse."""
    outpost = MemoryOutpost()
    client = attach(outpost)
    n = 0

    async def load() -> None:
        nonlocal n
        while True:
            outpost.post(range(n + 1, n + 101))
            n += 100
            client.ring()
            await outpost.until(lambda: not outpost.outbox)

    loading = asyncio.create_task(load())
    limit = asyncio.Semaphore(16)

    async def child() -> int:
        async with limit:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh", "-c", "echo ok", stdout=asyncio.subprocess.PIPE, start_new_session=True
            )
            out, _ = await process.communicate()
            assert out == b"ok\n"
            return process.returncode or 0

    codes = await asyncio.gather(*(child() for _ in range(300)))
    loading.cancel()
    await asyncio.wait([loading])
    assert set(codes) == {0}
    assert n > 100


def test_a_worker_never_forks_by_multiprocessing() -> None:
    """grpc's threads do not survive a fork; in a process of its own, for other tests' imports do not count."""
    script = (
        "import os, sys, skep.processes.worker\n"
        "assert os.environ['GRPC_ENABLE_FORK_SUPPORT'] == '0'\n"
        "assert 'multiprocessing.popen_fork' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


async def test_keys_come_at_once_and_again_when_they_change(
    desk: MemoryDesk, server: LinkServer, attach: Attach
) -> None:
    outpost = MemoryOutpost()
    desk.held_keys = (Key("a", "h.org", "", "u", "first", False),)
    attach(outpost)
    await desk.until(lambda: len(outpost.keys) == 1)
    desk.bells.ring(["keys"])
    desk.wanted.append("src_1")
    desk.held_keys = (Key("a", "h.org", "", "u", "second", False),)
    desk.bells.ring(["keys"])
    await desk.until(lambda: len(outpost.keys) == 2 and bool(outpost.wanted))
    assert [keys[0].token for keys in outpost.keys] == ["first", "second"]
    assert outpost.wanted == ["src_1"]


async def test_keys_come_when_the_orders_that_waited_are_done(
    desk: MemoryDesk, server: LinkServer, attach: Attach
) -> None:
    outpost = MemoryOutpost()
    outpost.stuck = asyncio.Event()
    desk.order(1)
    attach(outpost)
    await desk.until(lambda: len(desk.beats) > 2)
    assert not outpost.keys
    outpost.stuck.set()
    await desk.until(lambda: outpost.keys)
    assert [order.order for order in outpost.done] == [1]


async def test_who_mirrors_nothing_gets_no_keys(desk: MemoryDesk, server: LinkServer, attach: Attach) -> None:
    manager = MemoryOutpost(member="man_1")
    manager._hello = msgspec.structs.replace(manager._hello, roles=("manager",))
    desk.held_keys = (Key("a", "h.org", "", "u", "first", False),)
    attach(manager)
    await desk.until(lambda: len(desk.beats) > 2)
    assert manager.keys == []


async def test_a_member_is_told_when_its_clock_is_off(
    desk: MemoryDesk, server: LinkServer, attach: Attach, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_OFF", 600.0)  # a machine that stalls is not off
    right, ahead = MemoryOutpost(member="wrk_1", off=0.0), MemoryOutpost(member="wrk_2", off=3600.0)
    attach(right)
    attach(ahead)
    # at its hello and at each beat, until it is right
    await desk.until(lambda: len(ahead.times) > 2 and len(desk.beats) > 6)
    assert not right.times
    assert abs(ahead.times[0] - desk.now()) < 60
