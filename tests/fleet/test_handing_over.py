"""Sources change hands while their upstream takes its time: never do two ask it at once."""

from pathlib import Path

from skep.base.caller import SYSTEM
from tests.fleet.yard import OPEN, holders, machines, until
from tests.support.forge import Fault, Forge
from tests.tasks.house import Engine, coordinator

MANY = 4


async def cloned(engine: Engine, forge: Forge) -> None:
    """Some sources, which take their time from now on: whoever holds them asks for most of it."""
    for n in range(MANY):
        forge.create(f"slow/{n}", {"a.txt": b"1"})
        await engine.core.sources.add(SYSTEM, forge.url(f"slow/{n}"))

    async def current() -> bool:
        return len(await engine.db.read("SELECT id FROM source WHERE state = 'current'")) == MANY

    await until(current)
    forge.fault("", Fault(delay=1.0))


async def asked_again(forge: Forge) -> None:
    asked = len(forge.requests)

    async def twice() -> bool:
        return len(forge.requests) >= asked + 2 * MANY

    await until(twice)


async def test_who_takes_over_begins_when_the_last_look_of_the_other_has_ended(tmp_path: Path, forge: Forge) -> None:
    async with coordinator(tmp_path, "sqlite:", **OPEN) as engine, machines(engine, tmp_path, 2) as (one, two):
        one.start()
        await cloned(engine, forge)
        (first,) = await holders(engine)
        two.start()
        await engine.core.fleet.drain(str(first))

        async def moved() -> bool:
            return first not in await holders(engine) and not await engine.db.read("SELECT n FROM ordered")

        await until(moved)
        await asked_again(forge)
        assert forge.at_once == []


async def test_who_comes_back_hears_what_was_given_to_others_before_it_asks(tmp_path: Path, forge: Forge) -> None:
    settings = {**OPEN, "grace": 6.0}
    async with coordinator(tmp_path, "sqlite:", **settings) as engine, machines(engine, tmp_path, 2) as (two, one):
        one.start()
        await cloned(engine, forge)
        (first,) = await holders(engine)
        await one.stop()
        two.start()

        async def moved() -> bool:
            return first not in await holders(engine)

        await until(moved)
        await asked_again(forge)
        one.start()

        async def heard() -> bool:
            return not await engine.db.read("SELECT n FROM ordered WHERE member = :member", member=first)

        await until(heard)  # some may come back to it, when both are there
        await asked_again(forge)
        assert forge.at_once == []
