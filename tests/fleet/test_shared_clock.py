"""Time is the database's, and that nobody was heard while nobody could be says nothing of them: nobody is taken for
gone because of either."""

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from skep.base import loops
from skep.fleet.api import Offer
from skep.fleet.members import FLEET
from skep.storage.database import Bell
from tests.support.postgres import fresh_database, postgres_server
from tests.tasks.house import Engine, MovableClock, coordinator, hand

OFFER = Offer(("noop",), {"own": 1}, mirror=True)
GRACE = 600.0


class Rounds:
    """Counts what a coordinator does to see who is there."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self._fleet = engine.core.fleet
        self._patrol, self._listen = self._fleet.patrol, engine.db.listen
        self.patrols = self.begun = 0
        monkeypatch.setattr(self._fleet, "patrol", self._patrolled)
        monkeypatch.setattr(engine.db, "listen", self._listened)

    async def _patrolled(self) -> None:
        await self._patrol()
        self.patrols += 1

    def _listened(self, channel: str) -> AbstractAsyncContextManager[Bell]:
        self.begun += channel == FLEET
        return self._listen(channel)

    async def tried(self) -> None:
        """Returns when somebody has tried to look, whatever became of it."""
        wanted = self.patrols + self.begun + 2  # one may have begun before the clock moved
        while self.patrols + self.begun < wanted:
            await asyncio.sleep(0.01)

    async def state(self) -> str:
        """Of the only worker, when somebody has looked."""
        wanted = self.patrols + 2
        while self.patrols < wanted:
            await asyncio.sleep(0.01)
        ((member, _),) = await self._fleet.workers()
        return member.state


async def test_a_clock_that_is_wrong_harms_nobody(tmp_path: Path, postgres_url: str) -> None:
    """Two coordinators whose clocks differ by an hour."""
    wrong = MovableClock()
    wrong.ahead = 3_600.0
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    async with (
        fresh_database(postgres_url) as url,
        coordinator(tmp_path / "one", url, grace=GRACE) as one,
        hand(one, offer=OFFER),
        coordinator(tmp_path / "two", url, wrong, grace=GRACE) as two,
    ):
        await two.core.fleet.patrol()
        assert [member.state for member in await two.core.fleet.members()] == ["alive"]
        assert wrong.now() - two.core.fleet._clock.now() > 3_000


@pytest.mark.parametrize("still", [10_000.0, GRACE - 60.0])
async def test_a_coordinator_that_stood_still_takes_nobody_for_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, still: float
) -> None:
    """Its machine slept for hours, or almost for a grace, and who was attached has not come back yet: nobody could be
    heard meanwhile."""
    clock = MovableClock()
    async with coordinator(tmp_path, "sqlite:", clock, beat_every=0.1, grace=GRACE) as engine:
        rounds = Rounds(engine, monkeypatch)
        async with hand(engine, offer=OFFER) as worker:
            await engine.cut(worker)
            clock.ahead += still
            assert await rounds.state() == "grace"
            for seconds, expected in ((200.0, "grace"), (200.0, "grace"), (250.0, "gone")):
                clock.ahead += seconds
                assert await rounds.state() == expected, "its grace is counted from when somebody listened again"


async def test_a_database_that_was_away_for_long_makes_nobody_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who patrols asks it again before any worker does."""
    monkeypatch.setattr(loops, "_AGAIN_SECONDS", 0.01)
    clock = MovableClock()
    with postgres_server() as server:
        async with coordinator(tmp_path, server.url, clock, beat_every=0.1, grace=GRACE) as engine:
            rounds = Rounds(engine, monkeypatch)
            async with hand(engine, offer=OFFER) as worker:
                await engine.cut(worker)
                await rounds.state()
                server.stop()
                for _ in range(4):
                    clock.ahead += GRACE / 3
                    await rounds.tried()
                server.start()
                assert await rounds.state() == "grace"
                for seconds, expected in ((200.0, "grace"), (200.0, "grace"), (250.0, "gone")):
                    clock.ahead += seconds
                    assert await rounds.state() == expected


async def test_a_database_that_can_only_be_read_makes_nobody_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk is full, say: what is read goes on, and no beat is stored."""
    monkeypatch.setattr(loops, "_AGAIN_SECONDS", 0.01)
    clock = MovableClock()
    async with coordinator(tmp_path, "sqlite:", clock, beat_every=0.1, grace=GRACE) as engine:
        rounds = Rounds(engine, monkeypatch)
        async with hand(engine, offer=OFFER) as worker:
            await engine.cut(worker)
            await engine.sql("CREATE TRIGGER full BEFORE UPDATE ON member BEGIN SELECT RAISE(ABORT, 'full'); END")
            for _ in range(4):
                clock.ahead += GRACE / 3
                await rounds.tried()
            await engine.sql("DROP TRIGGER full")
            assert await rounds.state() == "grace"
