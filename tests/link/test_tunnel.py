"""Tickets and what goes through with them: real gRPC, the giver in this process."""

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.base.errors import BadInput, Busy, NotAllowed, NotFound, Unavailable
from skep.base.io import BLOCK, Stream
from skep.rpc.connect import Dial
from skep.rpc.messages import GitOf, Open
from skep.rpc.server import LinkServer, listen
from skep.rpc.tunnel import METHOD, SECONDS, CarryStream, Meeting, Shown, Side, dial
from tests.link.conftest import Attach
from tests.link.ends import MemoryDesk, MemoryOutpost

GIVER, TAKER = "wrk_giver", "wrk_taker"


@pytest.fixture
async def meeting() -> Meeting:
    return Meeting(most=8)


@asynccontextmanager
async def served(meeting: Meeting) -> AsyncIterator[str]:
    server, address = await listen({METHOD: meeting.carry}, "127.0.0.1:0")
    try:
        yield address
    finally:
        await server.stop(0)


@pytest.fixture
async def address(meeting: Meeting) -> AsyncIterator[str]:
    async with served(meeting) as address:
        yield address


@contextlib.asynccontextmanager
async def giving(work: Awaitable[Any]) -> AsyncIterator[asyncio.Future[Any]]:
    task = asyncio.ensure_future(work)
    try:
        async with asyncio.timeout(60):
            yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def send(address: str, ticket: str, blocks: list[bytes], member: str = GIVER) -> bytes:
    """Gives these and returns what the taker said."""
    said = b""
    async with dial(address, ticket, member) as stream:
        for block in blocks:
            await stream.write(block)
        await stream.end()
        while data := await stream.read():
            said += data
    return said


async def all_of(stream: Stream) -> bytes:
    parts = []
    while data := await stream.read():
        parts.append(data)
    return b"".join(parts)


Taking = Callable[[Meeting, str, str], AbstractAsyncContextManager[Stream]]


def here(meeting: Meeting, address: str, ticket: str) -> AbstractAsyncContextManager[Stream]:
    return meeting.take(ticket, TAKER)


def relayed(meeting: Meeting, address: str, ticket: str) -> AbstractAsyncContextManager[Stream]:
    return dial(address, ticket, TAKER)


both_ways = pytest.mark.parametrize("taking", [here, relayed])


@both_ways
async def test_bytes_go_both_ways_each_with_its_own_end(meeting: Meeting, address: str, taking: Taking) -> None:
    ticket = meeting.issue(GIVER, TAKER)
    blocks = [bytes([n]) * BLOCK for n in range(40)]
    async with giving(send(address, ticket.give, blocks)) as sent:
        async with taking(meeting, address, ticket.take) as stream:
            assert await all_of(stream) == b"".join(blocks)
            await stream.write(b"thank you")
            await stream.end()
        assert await sent == b"thank you"


@both_ways
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_pieces_arrive_whole_and_in_order(taking: Taking, data: st.DataObject) -> None:
    pieces = data.draw(st.lists(st.binary(min_size=1, max_size=3_000), max_size=8))
    back = data.draw(st.lists(st.binary(min_size=1, max_size=3_000), max_size=8))

    async def run() -> None:
        meeting = Meeting()
        ticket = meeting.issue(GIVER, TAKER)
        async with served(meeting) as address, giving(send(address, ticket.give, pieces)) as sent:
            async with taking(meeting, address, ticket.take) as stream:
                for piece in back:
                    await stream.write(piece)
                await stream.end()
                assert await all_of(stream) == b"".join(pieces)
            assert await sent == b"".join(back)

    asyncio.run(run())


@both_ways
async def test_several_at_once_do_not_mix(meeting: Meeting, address: str, taking: Taking) -> None:
    async def one(n: int) -> None:
        ticket = meeting.issue(GIVER, TAKER)
        blocks = [bytes([n]) * BLOCK] * 20
        async with giving(send(address, ticket.give, blocks)), taking(meeting, address, ticket.take) as stream:
            assert await all_of(stream) == b"".join(blocks)
            await stream.end()

    await asyncio.gather(*(one(n) for n in range(8)))


@both_ways
async def test_a_giver_that_breaks_off_ends_the_taker(meeting: Meeting, address: str, taking: Taking) -> None:
    ticket = meeting.issue(GIVER, TAKER)
    begun = asyncio.Event()

    async def give() -> None:
        async with dial(address, ticket.give, GIVER) as stream:
            await stream.write(b"a beginning")
            begun.set()
            await asyncio.Event().wait()

    async with giving(give()) as task:
        with pytest.raises(Unavailable, match="broke off"):
            async with taking(meeting, address, ticket.take) as stream:
                assert await stream.read() == b"a beginning"
                await begun.wait()
                task.cancel()
                async with asyncio.timeout(60):
                    await stream.read()


@both_ways
async def test_a_giver_that_is_gone_as_soon_as_it_came(meeting: Meeting, address: str, taking: Taking) -> None:
    for n in range(20):
        ticket = meeting.issue(GIVER, TAKER)

        async def come(half: str = ticket.give, pause: float = n / 5_000) -> None:
            async with Dial((address,)).channel(address) as channel:
                call = channel.stream_stream(METHOD)()
                await call.write(msgspec.msgpack.encode(Shown(half, GIVER)))
                await asyncio.sleep(pause)
                call.cancel()
            # gRPC may not have brought that at all; then this is how it came
            with contextlib.suppress(NotAllowed):
                async with dial(address, half, GIVER):
                    pass

        async with giving(come()):
            with pytest.raises(Unavailable, match="broke off"):
                async with taking(meeting, address, ticket.take) as stream:
                    await stream.read()
    assert not meeting._tunnels


@both_ways
async def test_a_taker_that_leaves_ends_the_giver(meeting: Meeting, address: str, taking: Taking) -> None:
    ticket = meeting.issue(GIVER, TAKER)

    async def give() -> None:
        async with dial(address, ticket.give, GIVER) as stream:
            while True:
                await stream.write(bytes(BLOCK))

    async with giving(give()) as task:
        async with taking(meeting, address, ticket.take) as stream:
            await stream.read()
        async with asyncio.timeout(60):
            with pytest.raises(Unavailable):
                await task
    assert not meeting._tunnels


@both_ways
async def test_a_reader_that_stalls_holds_the_giver_back(meeting: Meeting, address: str, taking: Taking) -> None:
    """Nothing like all of it may lie in memory somewhere."""
    ticket = meeting.issue(GIVER, TAKER)
    written, many = 0, 4_000

    async def give() -> None:
        nonlocal written
        async with dial(address, ticket.give, GIVER) as stream:
            for _ in range(many):
                await stream.write(bytes(BLOCK))
                written += 1
            await stream.end()

    memory = resident()
    async with giving(give()), taking(meeting, address, ticket.take) as stream:
        await stream.read()
        before = -1
        while before != written:  # until it moves no more
            before = written
            await asyncio.sleep(0.5)
        assert written < 200
        assert resident() - memory < many * BLOCK / 4
        read = 1
        while read < 400:
            assert len(await stream.read()) == BLOCK
            read += 1
        assert written > 390


def resident() -> int:
    """Bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def test_a_ticket_is_used_once_by_whom_it_is_for(meeting: Meeting, address: str) -> None:
    ticket = meeting.issue(GIVER, TAKER)
    id, _, half = ticket.give.split(".")
    wrong = [
        (ticket.give, "wrk_other"),
        (ticket.take, GIVER),
        (f"{id}.give.{half[:-1]}", GIVER),
        (f"{id}.give.", GIVER),
        (f"{id}.take.{half}", TAKER),
        (f"0000.give.{half}", GIVER),
        ("", GIVER),
        ("é.give.é", GIVER),
        (f"{id}.give.{half}é", GIVER),
    ]
    for shown, member in wrong:
        with pytest.raises(NotAllowed, match="this ticket"):
            async with dial(address, shown, member):
                pass
    async with giving(send(address, ticket.give, [b"yes"])) as sent:
        async with meeting.take(ticket.take, TAKER) as stream:
            for shown, member in ((ticket.give, GIVER), (ticket.take, TAKER)):
                with pytest.raises(NotAllowed, match="was used"):
                    async with dial(address, shown, member):
                        pass
            await stream.end()
            assert await all_of(stream) == b"yes"
        await sent
    with pytest.raises(NotAllowed):
        async with meeting.take(ticket.take, TAKER):
            pass


@both_ways
async def test_a_giver_says_why_it_does_not_give(meeting: Meeting, address: str, taking: Taking) -> None:
    ticket = meeting.issue(GIVER, TAKER)

    async def decline() -> None:
        async with dial(address, ticket.give, GIVER, declined=NotFound("not held here", hint="look elsewhere")):
            pass

    async with giving(decline()):
        with pytest.raises(NotFound, match="not held here") as found:
            async with taking(meeting, address, ticket.take):
                pass
        assert found.value.hint == "look elsewhere"


class Aging(Meeting):
    """Tickets grow old when the test says so."""

    def __init__(self) -> None:
        self.time = 0.0
        super().__init__(2, now=lambda: self.time)

    async def age(self, shown: Side) -> None:
        """The newest one, once this half of it was shown."""
        id, tunnel = list(self._tunnels.items())[-1]
        while shown in tunnel.halves:
            await asyncio.sleep(0.01)
        self.time += SECONDS
        self._forget(id)


@pytest.mark.parametrize("taking", [here, relayed])
async def test_nobody_comes(taking: Taking) -> None:
    meeting = Aging()
    async with served(meeting) as address:
        ticket = meeting.issue(GIVER, TAKER)
        with pytest.raises(Unavailable, match="wrk_giver did not come"):
            async with giving(meeting.age("take")), taking(meeting, address, ticket.take):
                pass
        late = meeting.issue(GIVER, TAKER)
        with pytest.raises(Unavailable, match="broke off"):
            async with giving(meeting.age("give")):
                await send(address, late.give, [b"x"])
        with pytest.raises(NotAllowed, match="too old"):
            async with dial(address, late.take, TAKER):
                pass
        meeting.issue(GIVER), meeting.issue(GIVER)
        with pytest.raises(Busy, match="2 tunnels"):
            meeting.issue(GIVER)


@pytest.mark.parametrize("first", [b"\xff" * 100, b"\x83\xa4type\xa1\xff", b"\x00", b"x" * 10_000, b"x" * (5 << 20)])
async def test_garbage_is_refused(address: str, first: bytes) -> None:
    async with Dial((address,)).channel(address) as channel:
        call = channel.stream_stream(METHOD)()
        stream = CarryStream(call)
        await stream.write(first)
        with contextlib.suppress(Unavailable):
            answer = await stream.read()
            assert b"bad_input" in answer
        call.cancel()


async def test_an_oversized_frame_ends_only_its_own_tunnel(meeting: Meeting, address: str) -> None:
    ticket, other = meeting.issue(GIVER, TAKER), meeting.issue(GIVER, TAKER)
    bad, fine = send(address, ticket.give, [b"x" * (5 << 20)]), send(address, other.give, [b"good"])
    async with giving(bad), giving(fine), meeting.take(other.take, TAKER) as good:
        with pytest.raises(Unavailable):
            async with meeting.take(ticket.take, TAKER) as stream:
                await all_of(stream)
        assert await all_of(good) == b"good"
        await good.end()


async def test_an_address_that_is_no_meeting_point(tmp_path: Path) -> None:
    server, address = await listen({}, "127.0.0.1:0")
    try:
        # gRPC loses the words "Method not found" where its answer comes before what is written has left
        with pytest.raises(Unavailable, match="tunnel broke off"):
            async with dial(address, "1.give.2", GIVER):
                pass
    finally:
        await server.stop(0)
    with pytest.raises(Unavailable, match="Connection refused"):
        async with dial(address, "1.give.2", GIVER):
            pass


async def test_a_member_is_asked_over_its_link(desk: MemoryDesk, server: LinkServer, attach: Attach) -> None:
    outpost = MemoryOutpost(member=GIVER)

    def asked() -> AbstractAsyncContextManager[Stream]:
        return server.meeting.opened(GIVER, lambda half: server.push(GIVER, Open("", half, GitOf("src_1"))))

    with pytest.raises(Unavailable, match="not attached"):
        async with asked():
            pass
    attach(outpost)
    await desk.until(lambda: bool(desk.beats))

    async def take() -> None:
        async with asked():
            raise BadInput("nobody gives anything here")

    async with giving(take()) as taking:
        while not outpost.opened:
            await asyncio.sleep(0.01)
        assert outpost.opened[0].what == GitOf("src_1")
        assert outpost.opened[0].address == ""
        taking.cancel()
    assert not server.meeting._tunnels
