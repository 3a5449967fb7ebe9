"""A change becomes a context: which, with what, and how often."""

from pathlib import Path

import pytest

from skep.base.caller import SYSTEM, Caller
from skep.base.errors import Unavailable
from skep.rules import triggers
from skep.rules.api import RuleEdit
from skep.rules.service import Firing, fire
from skep.sources.git.mirror import folder_of
from skep.storage.database import Tx
from skep.tasks.model import ContextSpec, TaskSpec
from skep.topics.service import CHANGES
from tests.support.forge.repository import Files
from tests.tasks.rules_house import MAIN, NOOP, RulesHouse, oid, rule, rules_house

WRITER = Caller("writer", frozenset({"read", "write"}))


async def test_a_change_of_the_default_branch_fires_with_what_changed(house: RulesHouse) -> None:
    source = await house.source()
    await house.change(source, {MAIN: oid(1)}, first=True)
    await house.core.rules.create(SYSTEM, rule())
    batch = await house.change(source, {MAIN: oid(2), "refs/heads/side": oid(3), "refs/tags/v1": oid(3)})
    await house.step()
    (context,) = await house.contexts()
    assert context.cause == f"change:{batch}"
    assert context.properties == {
        "source": source.id,
        "source_name": "example.org/a",
        "ref": MAIN,
        "old": oid(1),
        "new": oid(2),
        "batch": batch,
        "rule": "check",
    }
    (task,) = (await house.core.contexts.show(SYSTEM, context.id)).tasks
    spec = (await house.core.tasks.show(SYSTEM, task.id)).spec
    assert spec.source == source.id and spec.properties == context.properties
    fired = (await house.core.rules.show(SYSTEM, "check")).last
    assert fired is not None and (fired.context, fired.cause) == (context.id, context.cause)


async def test_what_a_rule_is_not_about(house: RulesHouse) -> None:
    make = house.core.rules.create
    await make(SYSTEM, rule("elsewhere", source="example.com/*"))
    await make(SYSTEM, rule("labelled", labels=("gold",)))
    await make(SYSTEM, rule("tags", refs=("refs/tags/v*",)))
    await make(SYSTEM, rule("branches", refs=("release/*",)))
    await make(SYSTEM, rule("clones", first=True))
    await make(SYSTEM, rule("off", enabled=False))
    source = await house.source()
    gold = await house.source("https://example.org/b", labels=["gold", "heavy"])
    first = await house.change(source, {"HEAD": MAIN, MAIN: oid(1)}, first=True)
    moved = await house.change(gold, {MAIN: oid(2), "refs/heads/release/2": oid(2), "refs/tags/x1": oid(2)})
    tagged = await house.change(source, {"refs/tags/v1": oid(3), "refs/heads/deep/release/1": oid(3)})
    await house.change(source, {"HEAD": "refs/heads/other", MAIN: None})  # deleted: nothing to run on
    await house.step()
    assert {name: await house.causes(name) for name in ("elsewhere", "off")} == {"elsewhere": [], "off": []}
    assert await house.causes("labelled") == [f"change:{moved}"]
    assert await house.causes("tags") == [f"change:{tagged}"]
    assert await house.causes("branches") == [f"change:{moved}"]
    assert await house.causes("clones") == [f"change:{first}", f"change:{moved}"]


async def test_nothing_from_before_the_rule_and_nothing_of_removed_sources(house: RulesHouse) -> None:
    source = await house.source()
    await house.change(source, {MAIN: oid(1)})
    await house.core.rules.create(SYSTEM, rule())
    await house.change(source, {MAIN: oid(2)})
    await house.core.sources.remove(SYSTEM, source.id)
    await house.step()
    assert await house.contexts() == []
    again = await house.source()
    await house.core.rules.update(SYSTEM, "check", RuleEdit(enabled=False))
    await house.change(again, {MAIN: oid(3)})
    await house.core.rules.update(SYSTEM, "check", RuleEdit(enabled=True))
    batch = await house.change(again, {MAIN: oid(4)})
    await house.step()
    assert await house.causes() == [f"change:{batch}"]


async def test_told_again_it_fires_no_more(house: RulesHouse) -> None:
    """A log that repeats, a place that was lost, a context that is forgotten: what was fired for is remembered."""
    source = await house.source()
    await house.core.rules.create(SYSTEM, rule())
    batch = await house.change(source, {MAIN: oid(1)})
    await house.step()
    db = house.core.topics.db
    await db.write(lambda tx: tx.rows("DELETE FROM place WHERE reader = :reader", reader=triggers.READER))
    await house.step()
    assert await house.causes() == [f"change:{batch}"]
    await db.write(lambda tx: tx.rows("DELETE FROM context"))
    await db.write(lambda tx: tx.rows("DELETE FROM place WHERE reader = :reader", reader=triggers.READER))
    await house.step()
    assert await house.contexts() == []


async def test_paths_are_read_from_the_mirror(house: RulesHouse) -> None:
    source = await house.source()
    repo = house.mirror(source)
    await house.core.rules.create(SYSTEM, rule("docs", paths=("doc/**", "**/*.md")))
    await house.core.rules.create(SYSTEM, rule("code", paths=("src/*.py",)))
    commits: list[Files] = [
        {"src/a.py": b"1"},
        {"README.md": b"2", b"x\xff\n.txt": b"2"},
        {"src/deep/b.py": b"3"},
        {"src/a.py": None},
    ]
    batches = [await house.change(source, {MAIN: repo.commit(files)}) for files in commits]
    await house.step()
    # the first has nothing to be compared with: all its paths are new
    assert await house.causes("docs") == [f"change:{batches[1]}"]
    assert await house.causes("code") == [f"change:{batches[0]}", f"change:{batches[3]}"]


async def test_of_several_refs_the_one_whose_paths_fit(house: RulesHouse) -> None:
    source = await house.source()
    repo = house.mirror(source)
    await house.core.rules.create(SYSTEM, rule(refs=("**",), paths=("doc/*",)))
    main, side = repo.commit({"a": b"1"}), repo.commit({"doc/b": b"2"}, branch="side")
    await house.change(source, {MAIN: main, "refs/heads/side": side})
    await house.step()
    assert [one.properties["ref"] for one in await house.contexts()] == ["refs/heads/side"]


async def test_commits_that_are_gone_and_very_many_paths_count_as_fitting(house: RulesHouse) -> None:
    source = await house.source()
    repo = house.mirror(source)
    await house.core.rules.create(SYSTEM, rule(paths=("nowhere",)))
    gone = await house.change(source, {MAIN: oid(9)})
    small = repo.commit({"a": b"1"})
    await house.change(source, {MAIN: small})
    many = await house.change(source, {MAIN: repo.commit({f"f{n}": b"" for n in range(10_001)})})
    blob = repo.git("hash-object", "-w", "--stdin", input=b"x").decode().strip()
    await house.core.rules.create(SYSTEM, rule("tags", refs=("refs/tags/*",), paths=("nowhere",)))
    odd = await house.change(source, {"refs/tags/blob": blob})
    await house.step()
    causes = await house.causes("check")
    assert causes[0] == f"change:{gone}" and causes[-1] == f"change:{many}"
    assert await house.causes("tags") == [f"change:{odd}"]


async def test_a_mirror_that_cannot_be_read_is_waited_for_and_holds_up_nobody(house: RulesHouse) -> None:
    source, other = await house.source(), await house.source("https://example.org/b")
    await house.core.rules.create(SYSTEM, rule("docs", paths=("doc/*",)))
    await house.core.rules.create(SYSTEM, rule("plain"))
    hidden = house.mirror(source)
    commits = [hidden.commit({name: b"1"}) for name in ("doc/a", "b")]
    away = house.data / "away"
    hidden.folder.rename(away)
    batches = [await house.change(source, {MAIN: commit}) for commit in commits]
    fine = await house.change(other, {MAIN: oid(1)})
    await house.step()
    assert await house.causes("plain") == [f"change:{one}" for one in (*batches, fine)]
    assert await house.causes("docs") == []
    assert await house.triggers.settle()
    assert await house.count("owed") == 3
    away.rename(folder_of(house.data, source.id))
    house.mirror(other)
    # a restart in between forgets nothing
    assert await house.another().settle()
    assert not await house.another().settle()
    assert await house.causes("docs") == [f"change:{batches[0]}", f"change:{fine}"]


async def test_what_is_owed_goes_with_its_source_and_its_rule(house: RulesHouse) -> None:
    source, other = await house.source(), await house.source("https://example.org/b")
    await house.core.rules.create(SYSTEM, rule(paths=("doc/*",)))
    await house.core.rules.create(SYSTEM, rule("second", paths=("doc/*",)))
    for one in (source, other):
        await house.change(one, {MAIN: oid(1)})
    await house.step()
    assert await house.count("owed") == 4
    await house.core.sources.remove(SYSTEM, source.id)
    await house.core.rules.remove(SYSTEM, "second")
    await house.triggers.settle()
    assert await house.count("owed") == 1
    assert await house.contexts() == []


async def test_the_latest_alone_goes_on(house: RulesHouse) -> None:
    source, other = await house.source(), await house.source("https://example.org/b")
    await house.core.rules.create(SYSTEM, rule(latest=True, refs=("*",)))
    first = await house.change(source, {MAIN: oid(1)})
    await house.change(other, {MAIN: oid(1)})
    await house.step()
    # the one in the middle never begins; another ref and another source are none of its business
    await house.change(source, {MAIN: oid(2)})
    third = await house.change(source, {MAIN: oid(3)})
    await house.change(source, {"refs/heads/side": oid(3)})
    await house.step()
    contexts = await house.contexts()
    assert len(contexts) == 4
    wishes = await house.core.topics.db.read("SELECT id AS context, abort_by FROM context WHERE abort_by <> ''")
    by_id = {one.id: one for one in contexts}
    assert [by_id[row["context"]].cause for row in wishes] == [f"change:{first}"]
    assert wishes[0]["abort_by"] == f"rule check: change:{third} is newer"


async def test_a_newer_one_forgives_what_is_owed_for_an_older(house: RulesHouse) -> None:
    source = await house.source()
    await house.core.rules.create(SYSTEM, rule(latest=True, paths=("doc/*",)))
    await house.change(source, {MAIN: oid(1)})
    await house.step()
    assert await house.count("owed") == 1
    repo = house.mirror(source)
    newer = await house.change(source, {MAIN: repo.commit({"doc/a": b"1"})})
    await house.step()
    await house.triggers.settle()
    assert await house.causes() == [f"change:{newer}"]
    assert await house.count("owed") == 0


async def test_private_sources_fire_for_those_who_may_see_them_and_are_not_named(house: RulesHouse) -> None:
    secret = await house.source("https://example.org/secret", visibility="private")
    await house.core.rules.create(WRITER, rule("curious"))
    await house.core.rules.create(SYSTEM, rule("trusted"))
    await house.change(secret, {MAIN: oid(1)})
    await house.step()
    (context,) = await house.contexts()
    assert context.properties["rule"] == "trusted" and "source_name" not in context.properties
    # who changes a rule gives it his own eyes; who switches it does not
    await house.core.rules.update(WRITER, "trusted", RuleEdit(enabled=False))
    await house.core.rules.update(WRITER, "trusted", RuleEdit(enabled=True))
    await house.change(secret, {MAIN: oid(2)})
    await house.step()
    assert len(await house.contexts()) == 2
    await house.core.rules.update(WRITER, "trusted", RuleEdit(context=NOOP))
    await house.change(secret, {MAIN: oid(3)})
    await house.step()
    assert len(await house.contexts()) == 2


async def test_a_flood_is_taken_in_bounded_steps(house: RulesHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triggers, "_PAGE", 7)
    monkeypatch.setattr(triggers, "_AT_ONCE", 3)
    source = await house.source()
    await house.core.rules.create(SYSTEM, rule())
    await house.core.rules.create(SYSTEM, rule("all", refs=("**",)))
    batches = [await house.change(source, {MAIN: oid(n), f"refs/heads/b{n}": oid(n)}) for n in range(1, 11)]
    huge = await house.change(source, {f"refs/heads/h{n}": oid(n) for n in range(30)})
    await house.step()
    assert await house.causes("check") == [f"change:{one}" for one in batches]
    # a batch longer than a page comes in pieces, and still counts once
    assert await house.causes("all") == [f"change:{one}" for one in (*batches, huge)]
    _, end = await house.core.topics.edges(SYSTEM, CHANGES)
    assert await house.core.topics.place(triggers.READER, CHANGES) == end


async def test_a_database_that_goes_away_in_the_middle_changes_nothing(house: RulesHouse) -> None:
    """The whole step is one transaction: what is done before it is done again."""
    source = await house.source()
    house.mirror(source)
    await house.core.rules.create(SYSTEM, rule("a"))
    await house.core.rules.create(SYSTEM, rule("b"))
    await house.change(source, {MAIN: oid(1)})

    async def dies(tx: Tx, firing: Firing, now: float) -> str | None:
        if firing.spec.name == "b":
            raise Unavailable("killed")
        return await fire(tx, firing, now)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Unavailable):
        patch.setattr(triggers, "fire", dies)
        await house.step()
    assert await house.contexts() == [] and await house.count("fired") == 0
    await house.step()
    assert len(await house.contexts()) == 2


async def test_a_thousand_rules(house: RulesHouse) -> None:
    names = {f"r{n:04}": "a" if n % 100 == 0 else str(n) for n in range(1000)}
    await house.core.rules.start([rule(name, source=f"example.org/{last}") for name, last in names.items()])
    source = await house.source()
    await house.change(source, {MAIN: oid(1)})
    await house.step()
    assert len(await house.contexts()) == 10
    page = await house.core.rules.list(SYSTEM, limit=600)
    rest = await house.core.rules.list(SYSTEM, limit=600, page=page.next_page)
    assert [one.spec.name for one in (*page.items, *rest.items)] == [f"r{n:04}" for n in range(1000)]


async def test_by_hand(house: RulesHouse) -> None:
    source = await house.source()
    await house.core.rules.create(SYSTEM, rule(source="example.com/*"))
    await house.change(source, {MAIN: oid(5)}, first=True)
    await house.step()
    for _ in range(2):
        context = await house.core.rules.fire(WRITER, "check", source.name)
        assert context.cause == "person:writer"
        assert (context.properties["ref"], context.properties["new"]) == (MAIN, oid(5))
    assert len(await house.contexts()) == 2


async def test_tasks_that_name_a_source_keep_it(house: RulesHouse) -> None:
    own = ContextSpec(
        "mixed",
        (TaskSpec("own", kind="noop", source="src_x"), TaskSpec("named", template="t"), TaskSpec("free", kind="noop")),
        templates={"t": TaskSpec(kind="noop", source="src_y")},
        properties={"new": "mine", "colour": "red"},
    )
    source = await house.source()
    await house.core.rules.create(SYSTEM, rule(context=own))
    await house.change(source, {MAIN: oid(1)})
    await house.step()
    (context,) = await house.contexts()
    tasks = (await house.core.contexts.show(SYSTEM, context.id)).tasks
    specs = {one.name: (await house.core.tasks.show(SYSTEM, one.id)).spec for one in tasks}
    assert {name: spec.source for name, spec in specs.items()} == {"own": "src_x", "named": "src_y", "free": source.id}
    assert specs["free"].properties["new"] == oid(1) and specs["free"].properties["colour"] == "red"


async def test_a_name_from_outside_stays_a_property(tmp_path: Path) -> None:
    spec = ContextSpec("run", (TaskSpec(argv=("echo", "{ref}", "$SKEP_REF", "{new}")),))
    async with rules_house(tmp_path) as house:
        source = await house.source()
        await house.core.rules.create(SYSTEM, rule(context=spec, refs=("**",)))
        await house.change(source, {"refs/heads/$(reboot);`x`": oid(1)})
        await house.step()
        (context,) = await house.contexts()
        (task,) = (await house.core.contexts.show(SYSTEM, context.id)).tasks
        stored = (await house.core.tasks.show(SYSTEM, task.id)).spec
        assert stored.argv == ("echo", "{ref}", "$SKEP_REF", "{new}")
        assert stored.properties["ref"] == "refs/heads/$(reboot);`x`"
