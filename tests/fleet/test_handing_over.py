"""Sources change hands while their upstream takes its time: never do two ask it at once."""

from pathlib import Path

from skep.model.caller import SYSTEM
from skep.testing.forge import Fault, Forge
from tests.fleet.yard import OPEN, holders, machines, until
from tests.tasks.house import coordinator

MANY = 4


async def test_who_takes_over_begins_when_the_last_look_of_the_other_has_ended(tmp_path: Path, forge: Forge) -> None:
    async with coordinator(tmp_path, "sqlite:", **OPEN) as engine, machines(engine, tmp_path, 2) as (one, two):
        one.start()
        for n in range(MANY):
            forge.create(f"slow/{n}", {"a.txt": b"1"})
            await engine.core.sources.add(SYSTEM, forge.url(f"slow/{n}"))

        async def cloned() -> bool:
            return len(await engine.db.read("SELECT id FROM source WHERE state = 'current'")) == MANY

        await until(cloned)
        forge.fault("", Fault(delay=1.0))  # whoever holds them asks for most of the time
        (first,) = await holders(engine)
        two.start()
        await engine.core.fleet.drain(str(first))

        async def moved() -> bool:
            return first not in await holders(engine) and not await engine.db.read("SELECT n FROM ordered")

        await until(moved)
        asked = len(forge.requests)

        async def asked_again() -> bool:
            return len(forge.requests) >= asked + 2 * MANY

        await until(asked_again)
        assert forge.at_once == []
