"""Workers come, go and are emptied: sources follow, copied before they are let go, and nothing is told twice."""

from collections import Counter
from functools import partial
from pathlib import Path

import msgspec
import pytest

from skep.base.caller import SYSTEM
from skep.base.errors import Conflict, NotAllowed, NotFound, NotHere
from skep.fleet.api import Offer
from skep.mirrors.sync import Gathering
from skep.rpc.messages import Ack, Beat, Failed, Looked, Outcome, Refused, Release
from skep.sources.model import Copied, CopyWanted, Failure
from skep.storage.code_index.model import Limits
from skep.tasks.model import Await, ContextSpec, Extend, Submit, TaskSpec
from tests.fleet.yard import OPEN, Machine, holders, machines, told, until
from tests.support.forge import Forge
from tests.tasks.house import Engine, coordinator, hand


async def at_rest(engine: Engine, machines: list[Machine]) -> bool:
    """Every source has one mirror, at the member that holds it, and nothing is left to do."""
    if await engine.db.read("SELECT source FROM ordered UNION SELECT source FROM source_replica"):
        return False
    sources = await engine.db.read("SELECT id FROM source WHERE state = 'current'")
    held = [source for machine in machines for source in machine.mirrors]
    return len(sources) > 0 and sorted(held) == sorted(row["id"] for row in sources)


async def test_a_second_worker_gets_its_share_by_copies_and_gives_it_back(tmp_path: Path, forge: Forge) -> None:
    async with coordinator(tmp_path, "sqlite:", **OPEN) as engine, machines(engine, tmp_path, 2) as (one, two):
        one.start()
        repos = [forge.create(f"move/{n}", {"a.txt": b"%d\n" % n}) for n in range(16)]
        for n in range(16):
            await engine.core.sources.add(SYSTEM, forge.url(f"move/{n}"))
        await until(lambda: at_rest(engine, [one]))
        two.start()

        async def shared() -> bool:
            counts = await holders(engine)
            return len(counts) == 2 and min(counts.values()) >= 3 and await at_rest(engine, [one, two])

        await until(shared)
        epochs = {row["id"]: row["epoch"] for row in await engine.db.read("SELECT id, epoch FROM source")}
        assert {epoch for id, epoch in epochs.items() if id in two.mirrors} == {2}
        assert {epoch for id, epoch in epochs.items() if id in one.mirrors} == {1}

        clones = Counter(request.path for request in forge.requests if request.clone)
        assert set(clones.values()) == {1}  # copies came from the first worker
        await until(lambda: gathered(engine, 16))

        async def reported() -> bool:
            return len(await engine.db.read("SELECT DISTINCT source FROM report")) == 16

        await until(reported)  # and what analysis found came along
        assert list((tmp_path / "incoming").iterdir()) == []

        (second,) = [id for id in await holders(engine) if id != await member_of(engine, one)]
        await engine.core.workers._fleet.drain(str(second))
        await until(lambda: at_rest(engine, [one]))
        await until(lambda: at_rest(engine, [one, two]))  # what it let go of is removed when nobody reads it
        assert two.mirrors == set()
        commits = [repo.commit({"b.txt": b"after\n"}) for repo in repos]
        await until(lambda: told(engine, commits))
        # one clone, one later commit: each told once, whoever told it
        changes = await engine.db.read("SELECT entry, new FROM change WHERE entry = 'refs/heads/main'")
        assert len(changes) == 2 * len(repos)

        async def seen() -> bool:
            copies = await engine.db.read("SELECT state FROM task WHERE kind = 'replicate'")
            return bool(copies) and {row["state"] for row in copies} == {"FINISHED"}

        await until(seen)
        moved = await engine.db.read("SELECT what FROM audit WHERE verb = 'source.move'")
        assert {row["what"].split()[1] for row in moved} == set(await holders(engine)) | {second}


async def gathered(engine: Engine, count: int) -> bool:
    """Every source can be searched and read at the coordinator, which mirrors none itself."""
    hits = (await engine.core.search.search(SYSTEM, "file:a.txt", Limits(lines=1000))).hits
    waiting = await engine.db.read("SELECT source FROM gather WHERE due IS NOT NULL")
    if len(hits) < count or waiting:
        return False
    try:
        read = [await engine.core.gather.file(SYSTEM, hit.source, "a.txt") for hit in hits]
    except NotHere:  # another change is due by now
        return False
    assert all(one.text for one in read)
    return len(hits) == count


async def member_of(engine: Engine, machine: Machine) -> str:
    """Which of the members holds what this machine mirrors."""
    source = next(iter(machine.mirrors))
    rows = await engine.db.read("SELECT member FROM holding WHERE source = :source", source=source)
    return str(rows[0]["member"])


async def test_what_a_dead_worker_held_moves_after_the_grace_and_not_before(tmp_path: Path, forge: Forge) -> None:
    async with (
        coordinator(tmp_path, "sqlite:", workers_expected=2, **OPEN, grace=60.0) as engine,
        machines(engine, tmp_path, 2) as (one, two),
    ):
        one.start()
        repos = [forge.create(f"die/{n}", {"a.txt": b"%d\n" % n}) for n in range(16)]
        for n in range(16):
            await engine.core.sources.add(SYSTEM, forge.url(f"die/{n}"))
        assert await holders(engine) == {None: 16}  # one alone is too early
        two.start()
        await until(lambda: at_rest(engine, [one, two]))
        before = await holders(engine)
        assert len(before) == 2 and None not in before
        dead = await member_of(engine, two)

        # back within its grace it finds all it had
        await two.stop()
        await until(lambda: silent(engine, dead))
        two.start()
        await until(lambda: alive(engine, dead))
        assert await holders(engine) == before
        with pytest.raises(Conflict):
            await engine.core.workers._fleet.forget(dead)

        await until(lambda: gathered(engine, 16))
        await two.stop()
        await until(lambda: silent(engine, dead))
        # its grace, and that much of listening, are over
        engine.core.workers._fleet._listening -= 60.0
        await engine.sql("UPDATE member SET last_alive = last_alive - 60 WHERE id = :id", id=dead)
        await until(lambda: holds_all(engine, 16, but=dead))
        commits = [repo.commit({"b.txt": b"after\n"}) for repo in repos]
        await until(lambda: told(engine, commits))
        # the gathered copies were a better beginning than another clone
        assert max(Counter(request.path for request in forge.requests if request.clone).values()) == 1
        # what it comes back with is not its own any more: it lets go, and gets its share again by copies
        two.start()
        await until(lambda: at_rest(engine, [one, two]))
        changes = await engine.db.read("SELECT entry, new FROM change WHERE entry = 'refs/heads/main'")
        assert len(changes) == 2 * len(repos)
        with pytest.raises(NotFound):
            await engine.core.workers._fleet.forget("wrk_nobody")


async def test_a_list_is_read_whoever_holds_it(tmp_path: Path, forge: Forge) -> None:
    forge.create("listed/one", {"a.txt": b"1\n"})
    lists = forge.create("lists", {"a.yaml": f"- {forge.url('listed/one')}\n".encode()})
    async with coordinator(tmp_path, "sqlite:", **OPEN) as engine, machines(engine, tmp_path, 1) as (far,):
        far.start()
        await engine.core.lists.add(SYSTEM, forge.url("lists"))
        await until(lambda: known(engine, 2))
        forge.create("listed/two", {"a.txt": b"2\n"})
        lists.commit({"b.yaml": f"- {forge.url('listed/two')}\n".encode()})
        await until(lambda: known(engine, 3))
        assert await engine.db.read("SELECT id FROM list WHERE failure <> '' OR state <> 'current'") == []


async def test_an_older_copy_is_still_one_and_none_is_not(tmp_path: Path, forge: Forge) -> None:
    """A holder that died before its last change was gathered leaves such copies: they are due until it is replaced."""
    async with coordinator(tmp_path, "sqlite:", **OPEN) as engine, machines(engine, tmp_path, 1) as (far,):
        far.start()
        forge.create("copied", {"a.txt": b"1\n"})
        source = (await engine.core.sources.add(SYSTEM, forge.url("copied"))).source.id
        await until(lambda: gathered(engine, 1))
        await engine.stop_serving()
        gathering = next(one for loop in engine.rooms.loops if isinstance(one := _owner(loop), Gathering))
        has, gathering._me = gathering._me, "srv_who_asks"
        await engine.sql("UPDATE gather SET due = 1e12 WHERE server = :id", id=has)
        assert await gathering.others(source) == [has]
        copy = "INSERT INTO gather VALUES (:id, :source, 'mirror', :due, 1, :had)"
        for id, due, had in ("srv_none", 1e12, 0), ("srv_whole", None, 1):
            await engine.sql(copy, id=id, source=source, due=due, had=had)
        assert await gathering.others(source) == ["srv_whole", has]


def _owner(loop: object) -> object:
    return getattr(loop, "__self__", None)


async def known(engine: Engine, sources: int) -> bool:
    return len(await engine.db.read("SELECT id FROM source WHERE state = 'current'")) == sources


async def silent(engine: Engine, member: str) -> bool:
    return not await alive(engine, member)


async def alive(engine: Engine, member: str) -> bool:
    rows = await engine.db.read("SELECT state FROM member WHERE id = :id", id=member)
    return [row["state"] for row in rows] == ["alive"]


async def holds_all(engine: Engine, count: int, *, but: str) -> bool:
    found = await holders(engine)
    return but not in found and sum(found.values()) == count


async def test_nobody_takes_a_source_by_claiming_to_have_it(tmp_path: Path) -> None:
    async with (
        coordinator(tmp_path, "sqlite:", **OPEN) as engine,
        hand(engine, offer=Offer(("noop",), {"own": 1}, mirror=False)) as liar,
    ):
        for lie in (Copied("src_1"), CopyWanted("src_1")):
            with pytest.raises(NotAllowed):
                await liar.client.ask(lie)


async def test_workers_divide_what_hosts_permit(tmp_path: Path) -> None:
    offer = Offer(("noop",), {"own": 1}, mirror=True)
    three = msgspec.structs.replace(offer, capacity=3.0)
    async with coordinator(tmp_path, "sqlite:", **OPEN) as engine, hand(engine, offer=offer) as one:
        assert one.part == (0.0, 1.0)
        async with hand(engine, "wrk_2", offer=three) as two:

            async def divided() -> bool:
                return (one.part, two.part) == ((0.0, 0.25), (0.25, 1.0))

            await until(divided)

        async def alone() -> bool:
            return one.part == (0.0, 1.0)

        await until(alone)


async def test_a_worker_asks_for_nothing_but_its_own(tmp_path: Path) -> None:
    offer = Offer(("noop",), {"own": 1}, mirror=True)
    async with coordinator(tmp_path, "sqlite:", **OPEN) as engine, hand(engine, offer=offer) as one:
        context = await engine.submit(TaskSpec("a", "magic"))
        spec = ContextSpec("x", (TaskSpec("x", "command", argv=("id",)),))
        for ask in (
            Submit(spec, "", ""),
            Await(context.id, 0.0),
            Extend(context.id, (TaskSpec("b", "index.batch"),)),
        ):
            with pytest.raises(NotAllowed):
                await one.client.ask(ask)
        source = (await engine.core.sources.add(SYSTEM, "https://host.example/x")).source.id
        outcome = Outcome(1, source, 1, 0.0, 0.0, Failed(Failure("network", "no"), 1))
        (refused,) = await engine.rooms.desk.outcomes("wrk_other", [outcome])
        assert isinstance(refused, Refused) and "does not hold" in refused.message
        (taken,) = await engine.rooms.desk.outcomes("wrk_1", [outcome])
        assert taken == Ack((1,))
        look = Looked(source, 1, 1234.0, 5678.0)
        async with hand(engine, "wrk_2", 0):
            for member, seen in (("wrk_2", 0.0), ("wrk_1", 1234.0)):
                await engine.rooms.desk.beat(member, 1, Beat("idle", looked=(look,)))
                (row,) = await engine.sql("SELECT last_looked FROM source WHERE id = :id", id=source)
                assert (row["last_looked"] or 0.0) == seen
        # nothing was seen tomorrow, whatever a worker's clock says
        tomorrow = engine.clock.now() + 86_400
        late = msgspec.structs.replace(outcome, n=2, at=tomorrow)
        for tell in (
            partial(engine.rooms.desk.outcomes, "wrk_1", [late]),
            partial(engine.rooms.desk.beat, "wrk_1", 1, Beat("idle", looked=(Looked(source, 1, tomorrow, tomorrow),))),
        ):
            await engine.sql("UPDATE source SET last_looked = 0")
            await tell()
            (row,) = await engine.sql("SELECT last_looked FROM source WHERE id = :id", id=source)
            assert 0 < row["last_looked"] <= engine.clock.now()


async def test_one_that_was_forgotten_while_it_was_attached_says_hello_again(tmp_path: Path) -> None:
    """As a manager is when nobody could store its beats for too long."""
    async with coordinator(tmp_path, "sqlite:", **OPEN) as engine, hand(engine):
        await engine.sql("DELETE FROM member")
        await until(lambda: alive(engine, "wrk_1"))


async def test_an_order_for_a_source_that_is_gone_is_dropped(tmp_path: Path) -> None:
    async with coordinator(tmp_path, "sqlite:", **OPEN) as engine:
        for n, kind in enumerate(("hold", "fetch", "release")):
            insert = "INSERT INTO ordered (n, member, kind, source) VALUES (:n, 'wrk_1', :kind, 'src_gone')"
            await engine.sql(insert, n=n, kind=kind)
        # what may still be on its disk goes
        assert [order.body for order in await engine.rooms.desk.orders("wrk_1")] == [Release("src_gone")]
        assert [row["kind"] for row in await engine.sql("SELECT kind FROM ordered")] == ["release"]
