"""Two coordinators whose clocks differ by an hour: time is the database's, and nobody is taken for gone."""

import asyncio
from pathlib import Path

import pytest

from skep.model.member import Offer
from skep.testing.postgres import fresh_database
from tests.tasks.house import MovableClock, coordinator, hand


async def test_a_clock_that_is_wrong_harms_nobody(tmp_path: Path, postgres_url: str) -> None:
    wrong, offer = MovableClock(), Offer(("noop",), {"own": 1}, mirror=True)
    wrong.ahead = 3_600.0
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    async with (
        fresh_database(postgres_url) as url,
        coordinator(tmp_path / "one", url, grace=600.0) as one,
        hand(one, offer=offer),
        coordinator(tmp_path / "two", url, wrong, grace=600.0) as two,
    ):
        await two.core.fleet.patrol()
        assert [member.state for member in await two.core.fleet.members()] == ["alive"]
        assert wrong.now() - two.core.fleet._clock.now() > 3_000


async def test_a_coordinator_that_stood_still_takes_nobody_for_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine slept for hours, and who was attached has not come back yet: nobody could be heard meanwhile."""
    clock, offer = MovableClock(), Offer(("noop",), {"own": 1}, mirror=True)
    async with coordinator(tmp_path, "sqlite:", clock, beat_every=0.1, grace=60.0) as engine:
        fleet, turns = engine.core.fleet, 0
        patrol = fleet.patrol

        async def counted() -> None:
            nonlocal turns
            await patrol()
            turns += 1

        async def state() -> str:
            wanted = turns + 2  # one may have begun before the clock moved
            while turns < wanted:
                await asyncio.sleep(0.01)
            ((member, _),) = await fleet.workers()
            return member.state

        monkeypatch.setattr(fleet, "patrol", counted)
        async with hand(engine, offer=offer) as worker:
            await engine.cut(worker)
            clock.ahead += 10_000.0
            assert await state() == "grace"
            for seconds, expected in ((40.0, "grace"), (40.0, "gone")):
                clock.ahead += seconds
                assert await state() == expected, "its grace is counted from when somebody listened again"
