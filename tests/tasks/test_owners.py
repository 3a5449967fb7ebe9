"""Several coordinators on one PostgreSQL: each acts on its own keys, and a dead one's keys move."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.base.caller import SYSTEM
from skep.tasks.model import ContextSpec
from skep.tasks.placer import owner_of
from skep.tasks.transitions import BUCKETS, bucket_of
from tests.support.postgres import fresh_database
from tests.tasks.house import Effects, Engine, MovableClock, command, coordinator, hand

BEAT = 0.1


@given(st.sets(st.text("abc", min_size=1), min_size=2, max_size=6))
def test_only_the_keys_of_the_dead_move(living: set[str]) -> None:
    before = {bucket: owner_of(bucket, sorted(living)) for bucket in range(BUCKETS)}
    dead = min(living)
    after = {bucket: owner_of(bucket, sorted(living - {dead}, reverse=True)) for bucket in range(BUCKETS)}
    assert all(after[bucket] == owner for bucket, owner in before.items() if owner != dead)


@pytest.fixture
async def three(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[list[Engine]]:
    """Each with a data folder of its own, and one clock."""
    clock = MovableClock()
    async with fresh_database(postgres_url) as url, AsyncExitStack() as stack:
        engines = [
            await stack.enter_async_context(coordinator(tmp_path_factory.mktemp("t"), url, clock, beat_every=BEAT))
            for _ in range(3)
        ]
        yield engines


async def divided(engines: list[Engine]) -> list[frozenset[int]]:
    """What each owns once every bucket has one owner; a stall may make one take the others for dead for a moment."""
    while True:
        shares = [one.owned for one in engines]
        if all(shares) and sorted(bucket for share in shares for bucket in share) == list(range(BUCKETS)):
            return shares
        await asyncio.sleep(0.01)


async def _states(engine: Engine, buckets: frozenset[int]) -> set[str]:
    rows = await engine.db.read("SELECT bucket, state FROM task")
    return {row["state"] for row in rows if row["bucket"] in buckets}


async def test_each_acts_on_its_share_and_a_dead_ones_share_moves(three: list[Engine]) -> None:
    first, second, dead = three
    shares = await divided(three)
    await dead.stop_serving()  # without a word: it says that it leaves only when it is closed
    made = [await first.core.contexts.submit(SYSTEM, ContextSpec("c", (command("a"),))) for _ in range(120)]
    counted = Counter(bucket_of(context.id) for context in made)
    stuck = sum(counted[bucket] for bucket in shares[2])
    assert 0 < stuck < 120
    mine = shares[0] | shares[1]
    async with asyncio.timeout(30):
        while "SUBMITTED" in await _states(first, mine):
            await asyncio.sleep(0.01)
    assert await _states(first, mine) == {"WAITING"}
    left = await _states(first, shares[2])
    if first.owned | second.owned <= mine:  # looked at after the read: nobody had got them yet
        assert left == {"SUBMITTED"}
    async with asyncio.timeout(30):
        while not (first.owned.isdisjoint(second.owned) and len(first.owned | second.owned) == BUCKETS):
            await asyncio.sleep(0.01)
    assert first.owned >= shares[0]
    assert second.owned >= shares[1]
    async with hand(second, "wrk_1", 8):
        for context in made:
            assert (await second.ended(context)).state == "FINISHED"


async def test_tasks_of_a_dead_coordinators_worker_run_elsewhere(three: list[Engine], data: Path) -> None:
    """The worker was attached to the one that died, and dies with it; whoever got the keys sees to its tasks."""
    effects = Effects()
    effects.shut = True
    dead, others = three[2], three[:2]
    async with AsyncExitStack() as stack:
        async with hand(dead, "wrk_dead", 64, command=effects.on("wrk_dead")):
            made = [await dead.submit(command(f"t{n}", backoff=0.1)) for n in range(40)]
            for n, context in enumerate(made):
                await dead.become(context, **{f"t{n}": "RUNNING"})
            await dead.stop_serving()
        assert len(effects.begun()) == 40
        assert isinstance(dead.clock, MovableClock)
        dead.clock.ahead += 60.0  # the clock of all three: the lease of its worker is over
        effects.shut = False
        for engine in others:
            await stack.enter_async_context(hand(engine, f"wrk_{engine.link}", 8, command=effects.on("other")))
        for context in made:
            assert (await others[0].ended(context)).state == "FINISHED"
    effects.check()
    assert Counter(effects.begun()) == {f"t{n}": 2 for n in range(40)}


async def test_a_stop_in_good_order_gives_its_keys_away_at_once(
    postgres_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with fresh_database(postgres_url) as url, coordinator(tmp_path_factory.mktemp("t"), url) as stays:
        async with coordinator(tmp_path_factory.mktemp("t"), url) as leaves:
            assert leaves.owned
        await stays.dispatcher._owners.beat()
        assert len(stays.owned) == BUCKETS
