"""One member and two coordinators: which of its processes is the one, and where it is attached."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from skep.base.caller import SYSTEM
from skep.base.errors import Replaced
from skep.fleet.api import Offer
from skep.rpc.messages import PROTOCOL, Beat, Hello
from skep.spaces.api import Get, Got
from tests.support.postgres import fresh_database
from tests.tasks.house import TOKEN, Engine, coordinator, hand

OFFER = Offer(("noop",), {"own": 1}, mirror=True)


@asynccontextmanager
async def two_coordinators(folder: Path, postgres_url: str, beat_every: float) -> AsyncIterator[tuple[Engine, Engine]]:
    for name in ("one", "two"):
        (folder / name).mkdir()
    async with (
        fresh_database(postgres_url) as url,
        coordinator(folder / "one", url, beat_every=beat_every) as one,
        coordinator(folder / "two", url, beat_every=beat_every) as two,
    ):
        yield one, two


async def test_the_newer_process_ends_the_older_wherever_they_are_attached(tmp_path: Path, postgres_url: str) -> None:
    async with two_coordinators(tmp_path, postgres_url, 5.0) as (one, two):
        async with hand(one, offer=OFFER, boot=5) as older, hand(two, offer=OFFER, boot=6) as newer:
            with pytest.raises(Replaced, match="a newer process of wrk_1 has attached"):
                await asyncio.wait_for(older._dialling, 60.0)
            async with hand(one, "wrk_2", offer=OFFER), asyncio.timeout(60.0):
                older.dial()
                with pytest.raises(Replaced, match="a newer process of wrk_1 is attached"):
                    await older._dialling
            assert newer.client.attached
        await two.core.fleet.patrol()
        assert [row["boot"] for row in await two.db.read("SELECT boot FROM member WHERE id = 'wrk_1'")] == [6]


async def test_who_attached_elsewhere_is_not_gone_when_that_is_noticed_late(tmp_path: Path, postgres_url: str) -> None:
    member, said = "wrk_1", Hello(PROTOCOL, "wrk_1", TOKEN, 5, offer=OFFER)
    async with two_coordinators(tmp_path, postgres_url, 60.0) as (one, two):  # nobody beats here
        await one.core.spaces.put(SYSTEM, "work", ("a",))
        await one.rooms.desk.hello(said, local=True)
        await one.rooms.desk.beat(member, 5, Beat("idle"))
        await two.rooms.desk.hello(said, local=True)
        taken = await two.rooms.desk.ask(member, 5, Get("work", ("a",), "ticket"), False)
        assert isinstance(taken, Got)
        await one.rooms.desk.gone(member, 5, down=True)
        assert [found.state for found in await one.core.fleet.members()] == ["alive"]
        assert await _takers(one) == ["wrk_1/5"]
        await two.rooms.desk.gone(member, 5, down=True)
        assert [found.state for found in await one.core.fleet.members()] == ["grace"]
        assert await _takers(one) == [None]


async def _takers(engine: Engine) -> list[str | None]:
    return [row["taker"] for row in await engine.db.read("SELECT taker FROM tuple WHERE space = 'work'")]


async def test_add_of_one_url_at_two_coordinators_at_once_answers_with_one_source(
    tmp_path: Path, postgres_url: str
) -> None:
    async with two_coordinators(tmp_path, postgres_url, 60.0) as (one, two):
        for n in range(20):
            url = f"https://git.example.org/repo/{n}"
            added = await asyncio.gather(*(each.core.sources.add(SYSTEM, url) for each in (one, two, one, two)))
            assert len({answer.source.id for answer in added}) == 1
            assert [answer.created for answer in added].count(True) == 1
