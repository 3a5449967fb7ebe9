"""Clocks of members, which the coordinator sets: what was planned by one that was ahead does not wait for it."""

from pathlib import Path

from skep.clock import MemberClock
from skep.engines.db.sqlite import Sqlite
from skep.link.messages import Hold, Order
from skep.model.source import Held
from skep.worker.store import Store
from tests.worker.test_far_sources import Hand

HOUR = 3600.0


def test_a_clock_is_set_and_goes_on() -> None:
    clock = MemberClock()
    before = clock.now()
    forward = clock.set(before - HOUR)
    assert -HOUR - 1 < forward <= -HOUR + 1
    assert before - HOUR <= clock.now() < before - HOUR + 5


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
