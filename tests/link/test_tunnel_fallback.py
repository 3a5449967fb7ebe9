"""A worker that cannot reach the aggregator which wants its bytes: both come to a coordinator, at once."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.clock import SystemClock
from skep.engines.db.base import Database
from skep.engines.open import find
from skep.errors import SkepError
from skep.fleet import openings
from skep.fleet.servers import Place, Servers
from skep.fleet.service import Fleet
from skep.link import carry
from skep.link.carry import dial
from skep.link.listening import listen
from skep.link.meeting import Meeting
from skep.link.messages import GitOf
from skep.link.tunnels import Tunnels

GIVER = "wrk_giver"
NOWHERE = "127.0.0.1:1"
CLOCK = SystemClock()


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    db = await find("db", "memory:")("memory:", data=tmp_path, durability="full")
    fleet = Fleet(db, CLOCK, token="t", beat_every=60.0)
    await fleet.start()
    await fleet.join(GIVER, "t", 1, "worker")
    yield db
    await db.close()


async def server(db: Database, id: str, role: str, link: str) -> Servers:
    servers = Servers(db, CLOCK, Place(id, id, (role,), "", link, ()))
    await servers.start()
    await servers.beat(0, 0)
    return servers


async def given_up(meeting: Meeting) -> None:
    """Whoever waits there has waited for long enough."""
    ((id, tunnel),) = meeting._tunnels.items()
    while "take" in tunnel.halves:
        await asyncio.sleep(0.01)
    meeting._forget(id)


async def test_who_does_not_find_the_way_is_met_at_a_relay(db: Database) -> None:
    key = await openings.start(db)
    relay, address = await listen({carry.METHOD: Meeting(name="srv_relay", key=key).carry}, "127.0.0.1:0")
    await server(db, "srv_relay", "coordinator", address)
    tunnels = Tunnels(db, CLOCK, await server(db, "srv_apart", "aggregator", NOWHERE), key)
    dialled: list[str] = []

    async def give() -> None:
        while True:
            for asked in await tunnels.openings(GIVER):
                dialled.append(asked.address)
                try:
                    async with dial(asked.address, asked.ticket, GIVER) as stream:
                        await stream.write(b"bytes")
                        await stream.end()
                except SkepError:
                    await given_up(tunnels.meeting)
            await asyncio.sleep(0.01)

    giving = asyncio.create_task(give())
    try:
        for expected in ([NOWHERE, address], [NOWHERE, address, address]):  # the next one need not try
            async with tunnels.opened(GIVER, GitOf("src_1")) as stream:
                assert await stream.read() == b"bytes"
            assert dialled == expected
    finally:
        giving.cancel()
        await asyncio.gather(giving, return_exceptions=True)
        await tunnels.close()
        await relay.stop(0)
