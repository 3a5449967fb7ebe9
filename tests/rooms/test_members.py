"""Who is alive, in its grace or gone, and what counts against a member."""

from functools import partial

import pytest

from skep.base.caller import SYSTEM
from skep.fleet.api import Offer
from skep.fleet.members import OFFERED, Fleet
from tests.rooms.house import WORKER_TOKEN, House

BEAT, GRACE = 5.0, 60.0


def _fleet(house: House) -> Fleet:
    return Fleet(house.db, house.clock, token=WORKER_TOKEN, beat_every=BEAT, grace=GRACE)


async def _seen(fleet: Fleet) -> tuple[str, str]:
    ((member, _),) = await fleet.workers()
    return member.name, member.state


async def _downs(house: House) -> int:
    return len(await house.db.read("SELECT n FROM member_event WHERE what = 'down'"))


async def test_a_silent_member_is_in_its_grace_and_then_gone(house: House) -> None:
    fleet = _fleet(house)
    await fleet.join("wrk_1", WORKER_TOKEN, 1, "worker", Offer(name="attic"))
    assert await _seen(fleet) == ("attic", "alive")
    house.clock.time += 4 * BEAT
    assert await _seen(fleet) == ("attic", "grace"), "before the patrol has come by, too"
    await fleet.patrol()
    assert (await _seen(fleet), await _downs(house)) == (("attic", "grace"), 1)
    house.clock.time += GRACE
    await fleet.patrol()
    assert await _seen(fleet) == ("attic", "gone")
    await fleet.beat("wrk_1", 1, "idle", {})
    assert await _seen(fleet) == ("attic", "alive")


async def test_who_comes_when_nothing_waits_is_compared_with_nobody(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand that come back together would be compared with a thousand each, and none let in in time."""
    await house.fleet.join("wrk_1", WORKER_TOKEN, 1, "worker")
    await house.sources.add(SYSTEM, "https://forge.example/a")

    def never(*_: object) -> None:
        raise AssertionError("there was nothing to choose for")

    monkeypatch.setattr("skep.fleet.members.choose", never)
    await house.fleet.join("wrk_2", WORKER_TOKEN, 1, "worker")
    assert {member.state for member, _ in await house.fleet.workers()} == {"alive"}


async def test_that_a_coordinator_was_away_counts_against_nobody(house: House) -> None:
    fleet = _fleet(house)
    await fleet.join("wrk_1", WORKER_TOKEN, 1, "worker")
    await fleet.leave("wrk_1", 1, down=False)
    assert (await _seen(fleet), await _downs(house)) == (("", "grace"), 0)
    await fleet.join("wrk_1", WORKER_TOKEN, 1, "worker")
    house.clock.time += 1000 * BEAT
    again = _fleet(house)
    await again.patrol()
    assert await _downs(house) == 0
    house.clock.time += 4 * BEAT
    await again.patrol()
    assert await _downs(house) == 1, "it had the time to come back"


async def test_who_is_heard_again_is_told_to_those_who_wait_for_it(house: House) -> None:
    """The end of a stream may be noticed when the next one is there: it looks silent until it is heard again."""
    fleet = _fleet(house)
    await fleet.join("wrk_1", WORKER_TOKEN, 1, "worker", Offer())
    for hear in (partial(fleet.beat, "wrk_1", 1, "idle", {}), partial(fleet.renew, "wrk_1", Offer())):
        await fleet.leave("wrk_1", 1)
        async with house.db.listen(OFFERED) as bell:
            await hear()
            assert await bell.wait(60.0)
            await hear()
            assert not await bell.wait(0.0), "nothing is new"
        assert (await _seen(fleet))[1] == "alive"
