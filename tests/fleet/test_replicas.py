"""Copies beside the holder's: they follow it, take its place, and are let go by order."""

import asyncio
import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from skep.base.caller import SYSTEM
from skep.base.clock import SystemClock
from skep.base.errors import NotFound, Unavailable
from skep.config.settings import Settings
from skep.fleet.api import Offer
from skep.fleet.assignments import changed
from skep.mirrors.replication import Moves, Moving, Replicating
from skep.rpc.connect import Dial
from skep.rpc.messages import AnswerBody, AskBody
from skep.sources.git.mirror import folder_of
from skep.sources.git.source_type import GitKind
from skep.sources.model import Copied, CopyFrom, CopyWanted, Held
from skep.sources.polling.store import Watch
from skep.spaces.api import Nothing
from skep.tasks.model import TaskSpec
from tests.fleet.yard import OPEN, SETTINGS, Machine, machines, told, until
from tests.support.forge import Forge
from tests.tasks.house import Engine, coordinator, hand


class Where:
    """Who has what, by the name of the machine."""

    def __init__(self, holders: dict[str, str], copies: dict[str, set[str]], *, rests: bool) -> None:
        self.holders, self.copies, self.rests = holders, copies, rests

    @classmethod
    async def of(cls, engine: Engine) -> "Where":
        named = {row["id"]: row["name"] for row in await engine.db.read("SELECT id, name FROM member")}
        held = {row["source"]: row["member"] for row in await engine.db.read("SELECT * FROM holding")}
        copies: dict[str, set[str]] = {source: set() for source in held}
        rests = not await engine.db.read(
            "SELECT n FROM ordered JOIN member ON member.id = ordered.member WHERE member.state = 'alive'"
        )
        for row in await engine.db.read("SELECT * FROM source_replica"):
            copies[row["source"]].add(named.get(row["member"], "?"))
            rests = rests and bool(row["complete"])
        return cls({source: named.get(member, "?") for source, member in held.items()}, copies, rests=rests)


async def copied(engine: Engine, living: list[Machine], count: int) -> Where | None:
    """Each source has so many mirrors, where the tables say so, and nothing is left to do, nor will be."""
    core = engine.core
    _, plan = await Moves(engine.db, engine.clock, core.fleet, core.sources.raise_epoch, count).plan()
    if plan.changes or plan.copies or plan.spare:
        return None
    where = await Where.of(engine)
    mirrors = {(source, machine.data.name) for machine in living for source in machine.mirrors}
    wanted = {(source, one) for source, copies in where.copies.items() for one in copies}
    enough = all(len(copies) == count - 1 for copies in where.copies.values())
    return where if where.rests and enough and mirrors == wanted | set(where.holders.items()) else None


async def moved(engine: Engine) -> list[tuple[str, str, str]]:
    """Source, from whom, to whom: as the audit says."""
    named = {row["id"]: row["name"] for row in await engine.db.read("SELECT id, name FROM member")}
    rows = await engine.db.read("SELECT what FROM audit WHERE verb = 'source.move' ORDER BY at")
    return [(source, named[old], named[new]) for source, old, new in (row["what"].split() for row in rows)]


def heads(machines: list[Machine]) -> Counter[str]:
    return Counter(
        subprocess.run(["git", "-C", mirror, "rev-parse", "main"], capture_output=True, text=True, check=False).stdout
        for machine in machines
        for mirror in (machine.data / "mirrors").glob("*/*/*.git")
    )


async def test_replicas_follow_their_holder_take_its_place_and_go(tmp_path: Path, forge: Forge, place: str) -> None:
    settings = OPEN | {"replicas": 2, "grace": 6.0}
    repos = [forge.create(f"twice/{n}", {"a.txt": b"%d\n" % n}) for n in range(5)]
    async with coordinator(tmp_path, place, **settings) as engine, machines(engine, tmp_path, 3) as all:
        all[0].start()
        for n in range(5):
            await engine.core.sources.add(SYSTEM, forge.url(f"twice/{n}"))
        await until(lambda: copied(engine, all[:1], 1))
        for one in all[1:]:
            one.start()
        where: Where = await until(lambda: copied(engine, all, 2))
        shown = await engine.core.sources.show(SYSTEM, next(iter(where.holders)))
        assert len(shown.replicas) == 1 and shown.holder not in shown.replicas
        assert sum(one.replicas for one in await engine.core.workers.list(SYSTEM)) == 5

        commits = [repo.commit({"b.txt": b"followed\n"}) for repo in repos]
        await until(lambda: told(engine, commits))

        async def followed() -> bool:
            # in a thread: the workers live in this one, and would not come to their turn
            return await asyncio.to_thread(heads, all) == Counter({f"{commit}\n": 2 for commit in commits})

        await until(followed)
        where = await until(lambda: copied(engine, all, 2))

        # the machine is lost with its disk; while nobody knows, upstream moves on
        dead = next(one for one in all if one.data.name in where.holders.values())
        living = [one for one in all if one is not dead]
        before = len(await moved(engine))
        await dead.stop()
        shutil.rmtree(dead.data / "mirrors")
        commits = [repo.commit({"c.txt": b"later\n"}) for repo in repos]
        await until(lambda: copied(engine, living, 2))
        heirs = {source: new for source, old, new in (await moved(engine))[before:] if old == dead.data.name}
        assert heirs == {id: min(where.copies[id]) for id, one in where.holders.items() if one == dead.data.name}
        await until(lambda: told(engine, commits))
        clones = Counter(request.path for request in forge.requests if request.clone)
        assert set(clones.values()) == {1} and len(clones) == len(repos)

        # it comes back: what it had is not its own any more, and it gets its share again
        dead.start()
        await until(lambda: copied(engine, all, 2))
        changes = await engine.db.read("SELECT new FROM change WHERE entry = 'refs/heads/main'")
        assert len(changes) == 3 * len(repos)

        await engine.core.sources.remove(SYSTEM, shown.id)
        await until(lambda: copied(engine, all, 2))
        await engine.stop_serving()
        async with coordinator(tmp_path, place, **settings | {"replicas": 1}) as later:
            await until(lambda: copied(later, all, 1))


async def test_a_disk_that_was_lost_is_filled_again_though_nothing_moved(tmp_path: Path, forge: Forge) -> None:
    settings = OPEN | {"replicas": 2, "workers_expected": 2}
    async with coordinator(tmp_path, "sqlite:", **settings) as engine, machines(engine, tmp_path, 2) as all:
        for one in all:
            one.start()
        for n in range(4):
            forge.create(f"lost/{n}", {"a.txt": b"1"})
            await engine.core.sources.add(SYSTEM, forge.url(f"lost/{n}"))
        await until(lambda: copied(engine, all, 2))
        await all[1].stop()
        shutil.rmtree(all[1].data / "mirrors")
        all[1].start()
        await until(lambda: copied(engine, all, 2))
        assert sum(request.clone for request in forge.requests) == 4


async def test_what_has_arrived_of_a_copy_that_is_given_up_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer = Offer(("noop",), {"own": 1}, mirror=True)
    async with (
        coordinator(tmp_path, "sqlite:", **OPEN) as engine,
        hand(engine, offer=offer),
        machines(engine, tmp_path, 1) as (machine,),
    ):
        source = (await engine.core.sources.add(SYSTEM, "https://host.example/x")).source.id
        await engine.sql("UPDATE source SET last_fetched = 1.0")
        machine.start()

        async def joined() -> str:
            rows = await engine.db.read("SELECT id FROM member WHERE name = :name", name=machine.data.name)
            return str(rows[0]["id"]) if rows else ""

        member = await until(joined)

        async def plan_nothing(self: Moving) -> None: ...

        # the coordinator plans for itself, whenever somebody comes: it would not want this copy
        monkeypatch.setattr(Moving, "_plan", plan_nothing)
        moves = Moves(engine.db, engine.clock, engine.core.fleet, engine.core.sources.raise_epoch)

        async def obeyed() -> bool:
            return not await engine.db.read("SELECT n FROM ordered WHERE member = :member", member=member)

        part = folder_of(machine.data, source)
        while True:
            await moves.copy([(source, member), (source, "wrk_1"), ("src_gone", member)])
            rows = await engine.db.read("SELECT source, member FROM source_replica")
            assert rows in ([{"source": source, "member": member}], []), "not its holder, and nothing that is gone"
            await until(obeyed)
            subprocess.run(["git", "init", "-q", "--bare", part], check=True)
            await machine.stop()
            if await moves.under_way() == 1:
                break
            machine.start()  # a plan had begun before
        await moves.release([(source, member)])
        await changed(engine.db, source)  # nobody has to follow any more
        machine.start()
        await until(obeyed)

        async def removed() -> bool:
            return not part.exists()

        await until(removed)
        assert await moves.under_way() == 0


async def test_only_when_nobody_who_has_it_can_be_reached_the_upstream_is_asked(tmp_path: Path, forge: Forge) -> None:
    commit = forge.create("last/resort", {"a.txt": b"a\n"}).commit({"b.txt": b"b\n"})
    held = Held("src_1", 1, "git", forge.url("last/resort"), 1, primary=False)
    asked: list[AskBody] = []

    async def ask(body: AskBody, seconds: float | None) -> AnswerBody:
        asked.append(body)
        return Nothing() if isinstance(body, Copied) else CopyFrom(held)

    clock, settings = SystemClock(), Settings(data=str(tmp_path), allow_networks=SETTINGS.allow_networks)
    kind = GitKind(settings, tmp_path, clock)
    replicating = Replicating(settings, "wrk_1", {"git": kind}, ask, lambda: Dial(("unix:/nowhere",)), clock)
    try:
        for failures, complete in ((0, 0.0), (5, 0.0), (9, 1.0)):
            watch = Watch(held, failures=failures, last_looked=complete)
            assert "can be reached" in await replicating.follow(watch)
        assert not forge.requests and Copied("src_1") not in asked
        assert await replicating.follow(Watch(held, failures=6)) == ""
        assert (await kind.versions(held))["refs/heads/main"] == commit
        assert asked[-1] == Copied("src_1")

        async def refused(body: AskBody, seconds: float | None) -> AnswerBody:
            raise NotFound("the source src_1 was removed")

        gone = Replicating(settings, "wrk_1", {"git": kind}, refused, lambda: Dial(("unix:/nowhere",)), clock)
        before = len(forge.requests)
        assert "was removed" in await gone.follow(Watch(held, failures=6))
        assert len(forge.requests) == before
    finally:
        await kind.close()


async def test_a_new_holder_waits_for_who_has_it_before_it_clones(tmp_path: Path, forge: Forge) -> None:
    held = Held("src_1", 1, "git", forge.url("wait/first"), 2, told={"refs/heads/main": "a" * 40})
    answers: list[str] = []

    async def ask(body: AskBody, seconds: float | None) -> AnswerBody:
        assert isinstance(body, CopyWanted)
        return CopyFrom(held, ticket=answers[-1] if body.open else "")

    clock, settings = SystemClock(), Settings(data=str(tmp_path))
    replicating = Replicating(settings, "wrk_1", {}, ask, lambda: Dial(("unix:/nowhere",)), clock)
    replicating._bounds = msgspec.structs.replace(replicating._bounds, breaks=0)
    answers.append("of somebody who cannot be reached")
    for failures in (0, 1):
        with pytest.raises(Unavailable):
            await replicating.recover(held, failures)
    await replicating.recover(held, 2)  # then it may be cloned
    answers.append("")
    await replicating.recover(held, 0)  # nobody has it


@pytest.mark.servers  # its worker starts children
async def test_a_copy_that_is_not_wanted_any_more_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans follow each other: what an earlier one ordered is withdrawn, and its task must end."""
    monkeypatch.setattr("skep.mirrors.replication._LOOK_SECONDS", 0.1)
    async with coordinator(tmp_path, "sqlite:", **OPEN) as engine, machines(engine, tmp_path, 1) as (one,):
        one.start()
        context = await engine.submit(TaskSpec("copy", "replicate", arguments={"source": "src_of_an_earlier_plan"}))
        await engine.ended(context)
        (task,) = await engine.sql("SELECT state, result FROM task WHERE context = :id", id=context.id)
        assert task["state"] == "FINISHED"
        assert "was not asked to copy" in json.loads(task["result"])["withdrawn"]
