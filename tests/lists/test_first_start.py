"""At a first start the lists are read before anything else is given to a worker."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skep.base.caller import SYSTEM
from skep.config.settings import Settings
from skep.fleet.api import Offer
from skep.processes.build import Rooms, open_rooms
from skep.rpc.messages import Hello, Hold
from skep.storage.database import Tx
from tests.rooms.house import WORKER_TOKEN, MovedClock

LIST, OTHER = "https://example.org/lists", "https://example.org/other"


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
async def rooms(tmp_path: Path, clock: MovedClock) -> AsyncIterator[Rooms]:
    async with open_rooms(Settings(data=str(tmp_path)), clock, WORKER_TOKEN) as opened:
        await opened.core.lists.add(SYSTEM, LIST)
        await opened.core.sources.add(SYSTEM, OTHER)
        await opened.desk.hello(Hello(1, "w1", WORKER_TOKEN, 1, offer=Offer(mirror=True)), local=True)
        yield opened


async def given(rooms: Rooms) -> list[str]:
    return [order.body.held.url for order in await rooms.desk.orders("w1") if isinstance(order.body, Hold)]


async def write(rooms: Rooms, sql: str, **values: Any) -> None:
    async def work(tx: Tx) -> None:
        await tx.rows(sql, **values)

    await rooms.core.lists._db.write(work)


async def test_nothing_but_the_list_before_it_was_read(rooms: Rooms) -> None:
    assert await given(rooms) == [LIST]
    await write(rooms, "UPDATE list SET state = 'current', read_at = 1")
    assert await given(rooms) == [LIST, OTHER]
    await rooms.core.lists.add(SYSTEM, "https://example.org/lists2")  # later ones hold up nobody
    assert len(await given(rooms)) == 3


async def test_not_for_long(rooms: Rooms, clock: MovedClock) -> None:
    clock.time += 301
    assert await given(rooms) == [LIST, OTHER]


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE source SET failures = 1, state = 'failing' WHERE url = :list",
        "UPDATE list SET state = 'failing' WHERE url = :list",
        "UPDATE source SET state = 'current' WHERE url <> :list",
    ],
    ids=["its repository fails", "it fails", "no first start"],
)
async def test_not_when_it_would_be_in_vain(rooms: Rooms, sql: str) -> None:
    await write(rooms, sql, list=LIST)
    assert await given(rooms) == [LIST, OTHER]
