"""Nobody is to hold a source while another may still poll it."""

import pytest

from skep.base.caller import SYSTEM
from skep.fleet import assignments
from skep.fleet.assignments import hand_over
from tests.rooms.house import WORKER_TOKEN, House

OLD, NEW = "wrk_1", "wrk_2"


@pytest.fixture
async def moved(house: House) -> str:
    """A source that has just been handed over, and nobody has heard of it."""
    await house.fleet.join(OLD, WORKER_TOKEN, 1, "worker")
    source = (await house.sources.add(SYSTEM, "https://forge.example/a")).source
    await house.fleet.join(NEW, WORKER_TOKEN, 1, "worker")
    await assignments.confirm(house.db, OLD, [one.n for one in await assignments.pending(house.db, OLD, 10)], 0.0)
    raised = house.sources.raise_epoch
    await house.db.write(lambda tx: hand_over(tx, source.id, OLD, NEW, raised, keep=False, now=0.0))
    return source.id


async def told(house: House, member: str) -> list[tuple[str, bool]]:
    return [(one.kind, one.waits) for one in await assignments.pending(house.db, member, 10)]


async def test_the_new_holder_waits_until_the_old_one_has_let_go(house: House, moved: str) -> None:
    assert await told(house, NEW) == [("hold", True)]
    (release,) = await assignments.pending(house.db, OLD, 10)
    assert (release.kind, release.source, release.waits) == ("release", moved, False)
    await assignments.confirm(house.db, OLD, [release.n], 0.0)
    assert await told(house, NEW) == [("hold", False)]


async def test_also_for_one_that_is_not_heard_until_it_is_gone(house: House, moved: str) -> None:
    await house.fleet.leave(OLD, 1)
    assert await told(house, NEW) == [("hold", True)], "it may poll for as long as it has its grace"
    house.clock.time += 1_000_000.0
    await house.fleet.listen()
    house.clock.time += 1_000_000.0
    await house.fleet.patrol()
    assert await told(house, NEW) == [("hold", False)]


async def test_also_when_the_order_to_let_go_has_become_another_one(house: House, moved: str) -> None:
    """A plan that follows may want a copy where the source was: that order comes later than the one to hold."""
    await house.db.write(lambda tx: assignments.order_instead(tx, "copy", [(moved, OLD)]))
    assert await told(house, OLD) == [("copy", False)]
    assert await told(house, NEW) == [("hold", True)]
