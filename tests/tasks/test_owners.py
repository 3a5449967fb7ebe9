"""Several coordinators on one PostgreSQL: each acts on its own keys, and a dead one's keys move."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.model.caller import SYSTEM
from skep.model.task import ContextSpec
from skep.tasks.dispatcher import NewTask
from skep.tasks.owners import owner_of
from skep.tasks.tables import BUCKETS, bucket_of
from skep.testing.postgres import fresh_database
from tests.tasks.house import Effects, Engine, command, coordinator, hand

BEAT = 0.1


@given(st.sets(st.text("abc", min_size=1), min_size=2, max_size=6))
def test_only_the_keys_of_the_dead_move(living: set[str]) -> None:
    before = {bucket: owner_of(bucket, sorted(living)) for bucket in range(BUCKETS)}
    dead = min(living)
    after = {bucket: owner_of(bucket, sorted(living - {dead}, reverse=True)) for bucket in range(BUCKETS)}
    assert all(after[bucket] == owner for bucket, owner in before.items() if owner != dead)


@pytest.fixture
async def three(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[list[Engine]]:
    """Each with a data folder of its own."""
    async with fresh_database(postgres_url) as url, AsyncExitStack() as stack:
        engines = [
            await stack.enter_async_context(
                coordinator(tmp_path_factory.mktemp("t"), url, beat_every=BEAT, task_lease=5.0)
            )
            for _ in range(3)
        ]
        while sum(len(one.owned) for one in engines) != BUCKETS or not all(one.owned for one in engines):
            await asyncio.sleep(0.01)
        yield engines


async def test_each_acts_on_its_share_and_a_dead_ones_share_moves(three: list[Engine]) -> None:
    first, second, dead = three
    shares = [one.owned for one in three]
    assert frozenset.union(*shares) == frozenset(range(BUCKETS))
    assert sum(map(len, shares)) == BUCKETS
    await dead.stop_serving()  # without a word: it says that it leaves only when it is closed
    made = [await first.core.contexts.submit(SYSTEM, ContextSpec("c", (command("a"),))) for _ in range(120)]
    counted = Counter(bucket_of(context.id) for context in made)
    stuck = sum(counted[bucket] for bucket in shares[2])
    assert 0 < stuck < 120
    for one in (first, second):
        await one.dispatcher.act(NewTask())
    rows = await first.db.read("SELECT bucket, state FROM task")
    mine = shares[0] | shares[1]
    assert {row["state"] for row in rows if row["bucket"] in mine} == {"WAITING"}
    moved_early = first.owned | second.owned > mine
    if not moved_early:
        assert {row["state"] for row in rows if row["bucket"] in shares[2]} == {"SUBMITTED"}
    while len(first.owned | second.owned) < BUCKETS:
        await asyncio.sleep(0.01)
    assert first.owned >= shares[0]
    assert second.owned >= shares[1]
    assert first.owned.isdisjoint(second.owned)
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
