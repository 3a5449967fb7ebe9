"""Two coordinators whose clocks differ by an hour: time is the database's, and nobody is taken for gone."""

from pathlib import Path

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
