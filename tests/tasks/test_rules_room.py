"""Making and changing rules, and all that can be wrong with one; rules of the clock; rules of skep.toml."""

from pathlib import Path
from typing import Any

import pytest

from skep.base.caller import SYSTEM, Caller
from skep.base.errors import BadInput, Conflict, NeedsToken, NotAllowed, NotFound, TooLarge
from skep.config.loading import load, load_tables
from skep.rules import service as room
from skep.rules.api import RuleEdit, RuleSpec
from skep.tasks.model import ContextSpec, Need, TaskSpec
from tests.rooms.house import MovedClock
from tests.tasks.rules_house import MAIN, NOOP, RulesHouse, oid, rule, rules_house

READER = Caller("reader", frozenset({"read"}))
NOBODY = Caller("nobody", frozenset(), known=False)


def context(*tasks: TaskSpec) -> ContextSpec:
    return ContextSpec("c", tasks)


@pytest.mark.parametrize(
    ("spec", "wrong"),
    [
        (rule("no name"), "is not a name for a rule"),
        (rule("x" * 201), "is not a name for a rule"),
        (RuleSpec("a", NOOP), "neither source, labels nor cron"),
        (rule(cron="* * * * *", source="**"), "cron waits for no change"),
        (rule(cron="* * * * *", paths=("a",)), "cron waits for no change"),
        (rule(cron="* * * *"), "4 fields"),
        (rule(source="*"), "matches no name"),
        (rule(source="example.org/["), "source: 'example.org/[' is no pattern"),
        (rule(refs=("[",)), "refs: 'refs/heads/['"),
        (rule(paths=("",)), "paths: a pattern has 1"),
        (rule(context=context()), "without tasks"),
        (rule(context=context(TaskSpec())), "says nothing to run"),
        (rule(context=context(TaskSpec("a", kind="noop", needs=(Need("b"),)))), "needs 'b'"),
        (rule(context=context(TaskSpec(kind="noop", selector="os =="))), ""),
        (rule(cron="* * * * *", context=context(TaskSpec(kind="noop", holder=True))), "names none"),
    ],
)
async def test_bad_rules(tmp_path: Path, spec: RuleSpec, wrong: str) -> None:
    async with rules_house(tmp_path, "memory:") as house:
        with pytest.raises(BadInput) as error:
            await house.core.rules.create(SYSTEM, spec)
        assert wrong in error.value.message
        assert (await house.core.rules.list(SYSTEM)).items == []


async def test_the_holder_of_what_changed(tmp_path: Path) -> None:
    async with rules_house(tmp_path, "memory:") as house:
        await house.core.rules.create(SYSTEM, rule(context=context(TaskSpec(kind="noop", holder=True))))


async def test_a_rule_too_large(tmp_path: Path) -> None:
    async with rules_house(tmp_path, "memory:") as house:
        with pytest.raises(TooLarge):
            await house.core.rules.create(
                SYSTEM, rule(context=context(*[TaskSpec(f"t{n}", kind="noop") for n in range(5000)]))
            )


async def test_make_change_and_remove(house: RulesHouse) -> None:
    rules = house.core.rules
    made = await rules.create(SYSTEM, rule())
    assert (made.spec, made.origin, made.created_at, made.last) == (rule(), "api", house.clock.now(), None)
    with pytest.raises(Conflict, match="already"):
        await rules.create(SYSTEM, rule())
    changed = await rules.update(SYSTEM, "check", RuleEdit(refs=("dev",), latest=True))
    assert changed.spec == rule(refs=("dev",), latest=True)
    assert (await rules.update(SYSTEM, "check", RuleEdit(refs=()))).spec == rule(latest=True)
    with pytest.raises(BadInput):
        await rules.update(SYSTEM, "check", RuleEdit(paths=("[",)))
    assert (await rules.show(READER, "check")).spec == rule(latest=True)
    await rules.remove(SYSTEM, "check")
    for gone in (rules.show(SYSTEM, "check"), rules.remove(SYSTEM, "check"), rules.fire(SYSTEM, "check")):
        with pytest.raises(NotFound):
            await gone


async def test_who_may(tmp_path: Path) -> None:
    async with rules_house(tmp_path, "memory:") as house:
        rules = house.core.rules
        await rules.create(SYSTEM, rule())
        for caller, refusal in ((READER, NotAllowed), (NOBODY, NeedsToken)):
            for refused in (
                rules.create(caller, rule("b")),
                rules.update(caller, "check", RuleEdit(enabled=False)),
                rules.remove(caller, "check"),
                rules.fire(caller, "check"),
            ):
                with pytest.raises(refusal):
                    await refused
        with pytest.raises(NeedsToken):
            await rules.list(NOBODY)


async def test_by_hand_it_wants_a_source_that_is_there_and_seen(tmp_path: Path) -> None:
    async with rules_house(tmp_path, "memory:") as house:
        await house.core.rules.create(SYSTEM, rule())
        empty = await house.source()
        secret = await house.source("https://example.org/secret", visibility="private")
        await house.change(secret, {MAIN: oid(1)})
        with pytest.raises(BadInput, match="fires for changes"):
            await house.core.rules.fire(SYSTEM, "check")
        with pytest.raises(Conflict, match="no commits"):
            await house.core.rules.fire(SYSTEM, "check", empty.id)
        with pytest.raises(NotFound):
            await house.core.rules.fire(Caller("w", frozenset({"read", "write"})), "check", secret.id)
        assert "source_name" not in (await house.core.rules.fire(SYSTEM, "check", secret.id)).properties


async def test_not_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_RULES", 2)
    async with rules_house(tmp_path, "memory:") as house:
        for name in ("a", "b"):
            await house.core.rules.create(SYSTEM, rule(name))
        with pytest.raises(Conflict, match="2 rules"):
            await house.core.rules.create(SYSTEM, rule("c"))


# the clock


async def test_each_due_minute_once_and_of_those_missed_the_newest(house: RulesHouse) -> None:
    house.clock.time = 1_000_000 * 60.0 + 30  # between two minutes
    await house.core.rules.create(SYSTEM, rule(cron="* * * * *"))
    await house.triggers.tick()
    assert await house.contexts() == []
    house.clock.time += 60
    for one in (house.triggers, house.triggers, house.another()):
        await one.tick()
    assert len(await house.contexts()) == 1
    house.clock.time += 3600
    for one in (house.another(), house.triggers):
        await one.tick()
    causes = await house.causes()
    assert sorted(causes) == ["clock:1971-11-26T10:41Z", "clock:1971-11-26T11:41Z"]
    assert {tuple(one.properties) for one in await house.contexts()} == {("rule",)}


async def test_a_rule_switched_on_does_not_make_up_for_lost_time(house: RulesHouse) -> None:
    await house.core.rules.create(SYSTEM, rule(cron="0 * * * *"))
    await house.core.rules.update(SYSTEM, "check", RuleEdit(enabled=False))
    house.clock.time += 7200
    await house.triggers.tick()
    await house.core.rules.update(SYSTEM, "check", RuleEdit(enabled=True))
    await house.another().tick()
    assert await house.contexts() == []
    house.clock.time += 3600
    await house.triggers.tick()
    assert len(await house.contexts()) == 1


async def test_the_clock_takes_the_latest_only_too(house: RulesHouse) -> None:
    await house.core.rules.create(SYSTEM, rule(cron="* * * * *", latest=True))
    for _ in range(2):
        house.clock.time += 60
        await house.triggers.tick()
    rows = await house.core.topics.db.read("SELECT abort_by FROM context ORDER BY created_at")
    assert [bool(row["abort_by"]) for row in rows] == [True, False]
    assert (await house.core.rules.fire(SYSTEM, "check")).cause == "person:skep"


# skep.toml

FILE = """
poll_min = 30.0
[[rule]]
name = "nightly"
cron = "0 3 * * *"
[rule.context]
name = "nightly"
tasks = [{kind = "noop"}]
[[rule]]
name = "docs"
source = "example.org/*"
paths = ["doc/**"]
context = {name = "docs", tasks = [{argv = ["make", "docs"]}]}
"""


def written(folder: Path, text: str) -> str:
    (folder / "skep.toml").write_text(text)
    return str(folder / "skep.toml")


async def test_rules_of_the_file(place: str, tmp_path: Path) -> None:
    config = written(tmp_path, FILE)
    assert load({}, config=config)[0].poll_min == 30.0
    file, clock = load_tables(RuleSpec, {}, config=config), MovedClock()
    async with rules_house(tmp_path, place, clock=clock) as house:
        await house.core.rules.create(SYSTEM, rule("docs"))
        await house.core.rules.create(SYSTEM, rule("own"))
    async with rules_house(tmp_path, place, file, clock) as house:
        rules = house.core.rules
        found = {one.spec.name: (one.origin, one.spec) for one in (await rules.list(SYSTEM)).items}
        assert found == {"docs": ("file", file[1]), "nightly": ("file", file[0]), "own": ("api", rule("own"))}
        for refused in (rules.remove(SYSTEM, "docs"), rules.update(SYSTEM, "docs", RuleEdit(enabled=False))):
            with pytest.raises(NotAllowed, match=r"skep\.toml"):
                await refused
        with pytest.raises(Conflict):
            await rules.create(SYSTEM, rule("nightly"))
    # down over the due minute: a restart with the same file still owes it
    clock.time += 2 * 86_400
    async with rules_house(tmp_path, place, file, clock) as house:
        await house.triggers.tick()
        assert len(await house.contexts("nightly")) == 1
    async with rules_house(tmp_path, place, file[1:], clock) as house:
        assert [one.spec.name for one in (await house.core.rules.list(SYSTEM)).items] == ["docs", "own"]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("rule = 3", "[[rule]]"),
        ("[rule]\nname = 'a'", "[[rule]]"),
        ("[[rule]]\nname = 'a'", "context"),
        ("[[rule]]\nname = 'a'\nwhen = 'now'\ncontext = {name = 'x'}", "when"),
        ("[[rule]]\nname = 'a'\ncontext = {name = 'x', tasks = [{argw = 1}]}", "argw"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str, wrong: str) -> None:
    with pytest.raises(BadInput) as error:
        load_tables(RuleSpec, {}, config=written(tmp_path, text))
    assert "skep.toml" in error.value.message and wrong in error.value.message


@pytest.mark.parametrize("bad", [[rule(), rule()], [rule(paths=("[",))], [rule(context=context())]])
async def test_a_rule_of_the_file_that_cannot_be(tmp_path: Path, bad: Any) -> None:
    with pytest.raises(BadInput):
        async with rules_house(tmp_path, "memory:", bad):
            pass
