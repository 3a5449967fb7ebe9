"""Tickets that another process issued: good at the meeting point they name, once, and for those they name."""

import asyncio

import pytest

from skep.base.errors import NotAllowed
from skep.rpc import tunnel
from skep.rpc.server import listen
from skep.rpc.tunnel import METHOD, Meeting, NotMet, dial

KEY, OTHER = b"k" * 32, b"o" * 32


class Clock:
    now = 1_000.0


async def test_both_come_with_a_ticket_that_nobody_issued_here() -> None:
    meeting = Meeting(name="srv_1", key=KEY, now=lambda: Clock.now)
    server, address = await listen({METHOD: meeting.carry}, "127.0.0.1:0")
    _, ticket = tunnel.issue(KEY, "srv_1", "wrk_1", "srv_2", Clock.now + 30)

    async def give() -> None:
        async with dial(address, ticket.give, "wrk_1") as stream:
            await stream.write(b"yes")
            await stream.end()
            assert await stream.read() == b""

    giving = asyncio.create_task(give())
    async with dial(address, ticket.take, "srv_2") as stream:
        assert await stream.read() == b"yes"
        assert await stream.read() == b""
        await stream.end()
    await giving
    for half, member in ((ticket.give, "wrk_1"), (ticket.take, "srv_2")):  # once, though the tunnel is over
        with pytest.raises(NotAllowed, match="was used"):
            async with dial(address, half, member):
                pass
    await server.stop(0)


async def test_what_is_not_admitted() -> None:
    meeting = Meeting(name="srv_1", key=KEY, now=lambda: Clock.now)
    wrong = [
        tunnel.issue(OTHER, "srv_1", "wrk_1", "srv_2", Clock.now + 30)[1].take,  # of another fleet
        tunnel.issue(KEY, "srv_9", "wrk_1", "srv_2", Clock.now + 30)[1].take,  # for another place
        tunnel.issue(KEY, "srv_1", "wrk_1", "srv_2", Clock.now - 1)[1].take,  # too old
        tunnel.issue(KEY, "srv_1", "wrk_1", "srv_3", Clock.now + 30)[1].take,  # for somebody else
        tunnel.issue(KEY, "srv_1", "wrk_1", "srv_2", Clock.now + 30)[1].give,  # the other half
    ]
    for half in wrong:
        with pytest.raises(NotAllowed, match="this ticket"):
            async with meeting.take(half, "srv_2"):
                pass
    assert not meeting._tunnels


async def test_a_giver_that_is_gone_is_not_waited_for() -> None:
    meeting = Meeting()
    ticket = meeting.issue("wrk_1")
    asyncio.get_running_loop().call_soon(meeting.lost, "wrk_1")
    with pytest.raises(NotMet, match="not attached any more"):
        async with meeting.take(ticket.take):
            pass
    assert not meeting._tunnels
