"""Spaces from Python, against a running server: waiting, blocks that end what they took, and the same for asyncio."""

import asyncio
import threading
from itertools import count

import pytest

from skep.base.errors import Conflict, NotFound
from skep.client import AsyncClient, Client
from skep.client.spaces import Space
from tests.house.running import RunningSkep

_NUMBERS = count()


@pytest.fixture
def space(client: Client) -> Space:
    return client.space(f"space-{next(_NUMBERS)}")


def test_a_block_acknowledges_or_gives_back(space: Space, client: Client) -> None:
    space.put("job", 1)
    with pytest.raises(ZeroDivisionError), space.get("job", int) as job:
        assert list(job) == ["job", 1]
        assert job[1] == 1
        assert space.getp("job", int) is None
        1 / 0  # noqa: B018
    with space.get("job", any) as job:
        job.keep()
    assert space.queryp("job", int) is None
    assert client.spaces.show(space.name).size == 0
    assert space.name in [one.name for one in client.spaces.list()]
    with pytest.raises(Conflict):
        job.keep()
    client.spaces.drop(space.name)


def test_waiting(space: Space) -> None:
    with pytest.raises(NotFound, match="no match came"):
        space.get("job", int, timeout=0.05)
    threading.Timer(0.1, lambda: space.put("job", 2)).start()
    assert space.query("job", int) == ("job", 2)
    space.get("job", int).acknowledge()
    assert space.query_all("job", int) == []


def test_all_and_replace(space: Space) -> None:
    space.put("a", 1, id="x")
    assert space.put("a", 1, id="x") == 1
    space.replace(("a", int), ("a", 2))
    assert space.get_all("a", int) == [("a", 2)]


async def test_the_same_for_asyncio(broker: RunningSkep) -> None:
    async with AsyncClient(broker.url, broker.token) as skep:
        space = skep.space(f"space-{next(_NUMBERS)}")
        getting = asyncio.create_task(_take(space, 20))
        for n in range(20):
            await space.put("job", n)
        assert await getting == [("job", n) for n in range(20)]
        assert await space.getp("job", int) is None
        with pytest.raises(ZeroDivisionError):
            await space.put("job", 1)
            async with space.get("job", int):
                1 / 0  # noqa: B018
        assert await space.queryp("job", int) == ("job", 1)
        assert await space.query("job", int) == ("job", 1)
        assert await space.query_all("job", int) == [("job", 1)]
        await space.replace(("job", int), ("job", 2))
        assert await space.get_all(str, int) == [("job", 2)]


async def test_a_cancelled_get_takes_nothing_along(broker: RunningSkep) -> None:
    async with AsyncClient(broker.url, broker.token) as skep:
        space = skep.space(f"space-{next(_NUMBERS)}")
        waiting = asyncio.create_task(_take(space, 1))
        await asyncio.sleep(0.2)
        waiting.cancel()
        await space.put("job", 1)
        job = await space.get("job", int, timeout=20)
        await job.keep(60)
        await job.give_back()
        await (await space.get("job", int)).acknowledge()


async def _take(space: object, many: int) -> list[tuple[object, ...]]:
    taken = []
    for _ in range(many):
        async with space.get("job", int) as job:  # type: ignore[attr-defined]
            taken.append(job.fields)
    return taken
