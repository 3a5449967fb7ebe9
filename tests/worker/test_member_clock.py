"""Clocks of members, which the coordinator sets: what was planned by one that was ahead does not wait for it."""

from pathlib import Path

import pytest

from skep.base.clock import MemberClock, behind
from skep.rpc.messages import Hold, Order
from skep.sources.model import Held
from skep.sources.polling.store import Store
from skep.storage.sqlite import Sqlite
from tests.worker.test_far_sources import Hand

HOUR = 3600.0


def test_a_clock_is_set_and_goes_on() -> None:
    clock = MemberClock()
    before = clock.now()
    clock.move(-HOUR)
    assert before - HOUR <= clock.now() < before - HOUR + 5


def test_by_how_much_a_clock_is_off_as_far_as_that_can_be_told() -> None:
    assert behind(1000.0, 1000.2, 1000.0 - HOUR) == pytest.approx(-HOUR - 0.1)
    assert behind(1000.0, 1000.2, 1000.0 + HOUR) == pytest.approx(HOUR - 0.1)
    assert behind(1000.0, 1000.2, 1000.9) == 0.0, "not worth it"
    # a slow link, 20 s there and 10 s back: the clock is right
    assert behind(1000.0, 1030.0, 1020.0) == 0.0
    assert behind(1000.0, 1030.0, 1020.0 + HOUR) == pytest.approx(HOUR + 5)
    # it was set while the answer was on its way: back, and forward
    assert behind(1000.0 + HOUR, 1000.0, 1000.0) == 0.0
    assert behind(1000.0 - HOUR, 1000.0, 1000.0) == 0.0


async def scheduled(file: Path, clock: Hand) -> tuple[float, float]:
    """When the one source is looked at next, and until when its host rests, by who starts now."""
    db = Sqlite(file, full="OFF", runtime="OFF")
    try:
        store = Store(db, clock)
        await store.start()
        watch = await store.watch("s")
        assert watch is not None
        return watch.next_look, (await store.rests())["h"].until
    finally:
        await db.close()


async def test_what_a_clock_ahead_has_planned_goes_back_with_it(tmp_path: Path) -> None:
    file, clock = tmp_path / "worker.db", Hand()
    clock.time = 10 * HOUR
    db = Sqlite(file, full="OFF", runtime="OFF")
    store = Store(db, clock)
    await store.start()
    await store.obey([Order(1, Hold(Held("s", 1, "memory", "x://h/", 1)))])
    watch = await store.watch("s")
    assert watch is not None
    watch.next_look = clock.time + 60
    store.note(watch)
    await db.write(
        lambda tx: tx.rows("INSERT INTO host (name, rests_until, pace) VALUES ('h', :until, 1)", until=36_100)
    )
    await store.flush()
    await db.close()
    clock.time -= 2 * HOUR
    assert await scheduled(file, clock) == (clock.time + 60, clock.time + 100)
    clock.time += 30
    assert await scheduled(file, clock) == (clock.time + 30, clock.time + 70), "once is enough"
    clock.time += 9 * HOUR
    assert await scheduled(file, clock) == (clock.time - 9 * HOUR + 30, clock.time - 9 * HOUR + 70), "it only went on"
