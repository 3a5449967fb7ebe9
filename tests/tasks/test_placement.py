"""The pure placement against plain rules and, where it is small enough, against trying everything."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from skep.tasks.model import Exclusive
from skep.tasks.placement import Class, Worker, able, all_or_none, keep_for, keep_together, share

contexts = st.sampled_from(["ctx_a", "ctx_b"])


@st.composite
def classes(draw: st.DrawFn, together: str = "") -> Class:
    exclusive: Exclusive = draw(st.sampled_from(get_args(Exclusive)))
    return Class(
        draw(st.integers(1, 10**6)),
        draw(st.sampled_from(["command", "command", "index"])),
        draw(st.sampled_from(["", "", "cpu >= 2", "cpu >= 4"])),
        draw(st.sampled_from(["", "src_1"])),
        False,
        exclusive,
        together or (draw(contexts) if exclusive == "context" else ""),
        bool(together),
        0,
    )


@st.composite
def workers(draw: st.DrawFn, most: int = 4) -> list[Worker]:
    made = []
    for number in range(draw(st.integers(1, most))):
        worker = Worker(
            f"wrk_{number}",
            {"cpu": draw(st.sampled_from([1.0, 2.0, 4.0]))},
            frozenset({"command", "index"}),
            {"command": draw(st.integers(0, 3)), "own": draw(st.integers(0, 2))},
            holds=draw(st.sampled_from([frozenset(), frozenset({"src_1"})])),
        )
        for running in draw(st.lists(st.sampled_from(["ctx_a", "ctx_b"]), max_size=1)):
            one = Class(0, "command", "", "", False, "none", "", False, 0)
            if worker.room(one):
                worker.give(one, running)
        made.append(worker)
    return made


Given = list[tuple[str, Class]]


def check(workers: Sequence[Worker], before: Mapping[str, Mapping[str, int]], given: Given) -> None:
    """Never over its slots; who wants a worker or a context for itself has it."""
    for worker in workers:
        mine = [one for id, one in given if id == worker.id]
        commands = [one for one in mine if one.kind == "command"]
        slots = Counter("command" if one.kind == "command" else "own" for one in mine)
        there = sum(before[worker.id].values())
        assert slots["command"] + there <= worker.slots["command"] or not slots["command"]
        assert slots["own"] <= worker.slots["own"]
        assert all(worker in able(one, workers) for one in mine)
        for one in commands:
            if one.exclusive == "worker":
                assert len(commands) == 1
                assert there == 0
            if one.exclusive == "context":
                assert {other.context for other in commands} | before[worker.id].keys() <= {one.context}


def snapshot(workers: Sequence[Worker]) -> dict[str, dict[str, int]]:
    return {worker.id: dict(worker.contexts) for worker in workers}


@given(workers(), st.lists(st.tuples(classes(), st.integers(1, 6)), max_size=5), st.randoms())
def test_shares_never_break_a_rule(fleet: list[Worker], wanted: list[tuple[Class, int]], random: st.DataObject) -> None:
    before, given = snapshot(fleet), Given()
    for one, count in wanted:
        room = sum(worker.room(one) for worker in able(one, fleet))
        for id, number in share(one, count, fleet, random.random).items():  # type: ignore[attr-defined]
            given += [(id, one)] * number
        placed = sum(other is one for _, other in given)
        if one.exclusive != "worker":
            assert placed == min(count, room)
    check(fleet, before, given)


@given(workers(), st.integers(1, 12), st.randoms())
def test_the_holder_comes_first(fleet: list[Worker], count: int, random: st.DataObject) -> None:
    one = Class(1, "command", "", "src_1", False, "none", "", False, 0)
    holders = sum(worker.room(one) for worker in fleet if worker.holds)
    shares = share(one, count, fleet, random.random)  # type: ignore[attr-defined]
    assert sum(shares.get(worker.id, 0) for worker in fleet if worker.holds) == min(count, holders)


@given(workers(), st.integers(1, 12), st.randoms())
def test_the_emptier_one_comes_first(fleet: list[Worker], count: int, random: st.DataObject) -> None:
    one = Class(1, "command", "", "", False, "none", "", False, 0)
    before = {worker.id: worker.fullness for worker in fleet}
    shares = share(one, count, fleet, random.random)  # type: ignore[attr-defined]
    for taken, free in itertools.permutations(fleet, 2):
        if taken.id in shares and free.id not in shares and free.room(one):
            assert before[taken.id] <= before[free.id]


def brute_force(wanted: Sequence[tuple[Class, int]], fleet: Sequence[Worker]) -> bool:
    units = [one for one, count in wanted for _ in range(count)]
    before = snapshot(fleet)
    for places in itertools.product(fleet, repeat=len(units)):
        try:
            check(fleet, before, [(worker.id, one) for worker, one in zip(places, units, strict=True)])
        except AssertionError:
            continue
        return True
    return False


@settings(max_examples=300)
@given(workers(3), st.lists(st.tuples(classes("ctx_g"), st.integers(1, 2)), min_size=1, max_size=3))
def test_all_or_none_finds_a_way_whenever_there_is_one(fleet: list[Worker], wanted: list[tuple[Class, int]]) -> None:
    wanted = list({one.id: (one, count) for one, count in wanted}.values())
    before, possible = snapshot(fleet), brute_force(wanted, fleet)
    plan = all_or_none(wanted, fleet)
    assert (plan is not None) == possible
    if plan is None:
        assert snapshot(fleet) == before
        return
    assert {one.id: sum(plan[one.id].values()) for one, _ in wanted} == {one.id: count for one, count in wanted}
    placed = [(id, one) for one, _ in wanted for id, count in plan[one.id].items() for _ in range(count)]
    check(fleet, before, placed)


def busy(id: str, slots: int, tasks: int) -> Worker:
    worker = Worker(id, {}, frozenset({"command"}), {"command": slots})
    if tasks:
        worker.give(PLAIN, "ctx_other", tasks)
    return worker


PLAIN = Class(1, "command", "", "", False, "none", "", False, 0)


def test_a_worker_is_kept_for_who_wants_it_whole() -> None:
    fleet = [busy("wrk_1", 4, 3), busy("wrk_2", 4, 1)]
    keep_for(Class(2, "command", "", "", False, "worker", "", False, 0), fleet)
    assert share(PLAIN, 10, fleet, lambda: 0.5) == {"wrk_1": 1}


def test_who_waits_for_an_index_does_not_wait_for_what_is_found_out_about_others() -> None:
    kinds = ("analyse", "fsck", "index")
    worker = Worker("wrk_1", {}, frozenset(kinds), {"own": 2, "background": 2})
    study, check, index = (Class(n, kind, "", "", False, "none", "", False, 0) for n, kind in enumerate(kinds))
    assert share(study, 10, [worker], lambda: 0.5) == {"wrk_1": 2}
    assert share(check, 10, [worker], lambda: 0.5) == {}
    assert share(index, 10, [worker], lambda: 0.5) == {"wrk_1": 2}


def test_places_are_kept_for_those_who_go_together() -> None:
    fleet = [busy("wrk_1", 2, 1), busy("wrk_2", 2, 0), busy("wrk_3", 2, 2)]
    gang = Class(2, "command", "", "", False, "none", "ctx_g", True, 0)
    assert all_or_none([(gang, 4)], fleet) is None
    keep_together("ctx_g", [(gang, 4)], fleet)
    assert sum(share(PLAIN, 10, fleet, lambda: 0.5).values()) <= 1
    fleet[0].contexts, fleet[0].used = {}, {}
    assert all_or_none([(gang, 4)], fleet) is not None
    other = [busy("wrk_1", 2, 1)]
    keep_together("ctx_g", [(gang, 4)], other)
    assert share(PLAIN, 10, other, lambda: 0.5) == {"wrk_1": 1}, "nothing is kept for what can never fit"
