"""Several coordinators read the same changes at the same time."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from skep.base.caller import SYSTEM
from skep.rules import triggers
from skep.topics.service import CHANGES
from tests.rooms.house import MovedClock
from tests.support.postgres import fresh_database
from tests.tasks.rules_house import MAIN, RulesHouse, oid, rule, rules_house


async def test_three_coordinators_fire_once_for_each_batch(postgres_url: str, tmp_path: Path) -> None:
    async with fresh_database(postgres_url) as url, AsyncExitStack() as stack:
        clock = MovedClock()
        houses = [await stack.enter_async_context(rules_house(tmp_path / str(n), url, clock=clock)) for n in range(3)]
        first = houses[0]
        for spec in (rule("a"), rule("b", latest=True), rule("c", paths=("doc/*",)), rule("d", cron="* * * * *")):
            await first.core.rules.create(SYSTEM, spec)
        source = await first.source()
        batches: list[str] = []
        told = asyncio.Event()

        async def tell() -> None:
            for n in range(1, 60):
                batches.append(await first.change(source, {MAIN: oid(n)}))
            told.set()

        async def read(house: RulesHouse) -> None:
            while not told.is_set():
                await house.triggers.step()
                await house.triggers.tick()
                clock.time += 10
                await asyncio.sleep(0)
            await house.step()
            await house.triggers.settle()

        await asyncio.gather(tell(), *map(read, houses))
        assert await first.causes("a") == [f"change:{batch}" for batch in batches]
        # how many were collapsed depends on who read when; none came twice, and the last came
        latest = await first.causes("b")
        assert len(set(latest)) == len(latest) and latest[-1] == f"change:{batches[-1]}"
        minutes = await first.causes("d")
        assert minutes and len(set(minutes)) == len(minutes)
        owed = await first.core.topics.db.read("SELECT batch FROM owed WHERE rule = 'c'")
        assert {row["batch"] for row in owed} == set(batches)
        for house in houses:
            house.mirror(source)
        # the mirror has none of these commits: all count, each once
        await asyncio.gather(*(house.triggers.settle() for house in houses))
        assert sorted(await first.causes("c")) == sorted(f"change:{batch}" for batch in batches)
        _, end = await first.core.topics.edges(SYSTEM, CHANGES)
        assert await first.core.topics.place(triggers.READER, CHANGES) == end
