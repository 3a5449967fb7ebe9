"""A worker that cannot reach the aggregator which wants its bytes: both come to a coordinator, at once."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.base.clock import SystemClock
from skep.base.errors import SkepError
from skep.fleet import tunnels as openings
from skep.fleet.members import Fleet
from skep.fleet.tunnels import Place, Servers, Tunnels
from skep.processes.engines import find
from skep.rpc import tunnel
from skep.rpc.messages import GitOf
from skep.rpc.server import listen
from skep.rpc.tunnel import Meeting, dial
from skep.storage.database import Database

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
    relay, address = await listen({tunnel.METHOD: Meeting(name="srv_relay", key=key).carry}, "127.0.0.1:0")
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
