"""The checker finds nothing in a correct run, and finds each kind of broken promise."""

from typing import Any

import msgspec
import pytest

from tests.chaos.checker import check
from tests.chaos.journal import (
    ChangeRead,
    Committed,
    ContextSubmitted,
    Entry,
    Handled,
    Published,
    Pushed,
    Searched,
    SourceAdded,
    TuplePut,
    TupleTaken,
    Unexpected,
)
from tests.chaos.observation import (
    Change,
    ContextState,
    Effect,
    MirrorState,
    Observation,
    StoredMessage,
    TaskState,
)

MAIN = "refs/heads/main"
ONCE = ("SUBMITTED", 0), ("SCHEDULED", 1), ("RUNNING", 1), ("FINISHED", 1)
JOURNAL: tuple[Entry, ...] = (
    Published(1.0, "p0", 0, "k", 0, 0),
    Published(1.1, "p0", 1, "k", 0, 1),
    Handled(1.2, "m0", 1, 0, 0, "p0", 0),
    Handled(1.3, "m0", 1, 0, 1, "p0", 1),
    Committed(1.4, 1.5, 0, 1),
    Committed(1.6, 1.7, 0, 2),
    Pushed(2.0, "r0", MAIN, "a1", "alpha"),
    Pushed(2.1, "r0", MAIN, "a2", "beta"),
    Pushed(2.2, "r0", MAIN, "a3", "gamma"),
    SourceAdded(2.3, "r0", "src"),
    ChangeRead(2.4, 0, "id1"),
    Searched(2.5, "c1", "alpha", ("src",)),
    ContextSubmitted(3.0, "ctx", "x0"),
    TuplePut(4.0, 0),
    TuplePut(4.1, 1),
    TupleTaken(4.2, 4.3, 0, 4.4),
)
FIRST, SECOND = TaskState("tsk1", "first", "FINISHED", ONCE), TaskState("tsk2", "second", "FINISHED", ONCE)
EFFECTS = [
    Effect("begin", "x0.first", 1),
    Effect("end", "x0.first", 1),
    Effect("begin", "x0.second", 1),
    Effect("end", "x0.second", 1),
]
FINAL = Observation(
    messages=[StoredMessage(0, 0, "p0", 0, "k"), StoredMessage(0, 1, "p0", 1, "k")],
    upstream={"r0": {MAIN: "a3"}},
    sources={"r0": "src"},
    changes=[Change(0, "id1", "src", MAIN, 1, None, "a1"), Change(1, "id2", "src", MAIN, 2, "a1", "a3")],
    listed={"src": ["id2", "id1"]},
    mirrors={"src": [MirrorState("w1", {MAIN: "a3"})]},
    holders={"src": ["w1"]},
    served={"c1": {"src": {MAIN: "a3"}}},
    found={"c1": {"gamma": ["src"], "alpha": []}},
    contexts={"ctx": ContextState("ctx", "x0", "FINISHED", (FIRST, SECOND))},
    ended={"ctx": ["FINISHED"], "tsk1": ["FINISHED"], "tsk2": ["FINISHED"]},
    effects=EFFECTS,
    tuples=[1],
)


def kinds(entries: tuple[Entry, ...], final: Observation) -> set[str]:
    return {one.kind for one in check(list(entries), final)}


def without(*numbers: int) -> tuple[Entry, ...]:
    return tuple(entry for n, entry in enumerate(JOURNAL) if n not in numbers)


def finished(first: TaskState = FIRST, second: TaskState = SECOND, state: str = "FINISHED") -> dict[str, ContextState]:
    return {"ctx": ContextState("ctx", "x0", state, (first, second))}


def moved(*moves: tuple[str, int], state: str = "FINISHED") -> TaskState:
    return TaskState("tsk1", "first", state, moves)


def test_check_of_a_correct_run_finds_nothing() -> None:
    assert check(list(JOURNAL), FINAL) == []


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("message lost", {"messages": FINAL.messages[:1]}),
        ("message lost", {"messages": [FINAL.messages[1], FINAL.messages[0]], "_swap": True}),
        ("message stored twice", {"messages": [*FINAL.messages, StoredMessage(0, 2, "p0", 1, "k")]}),
        ("gap in a partition", {"messages": [*FINAL.messages, StoredMessage(0, 3, "p0", 2, "k")]}),
        (
            "messages out of order",
            {"messages": [*FINAL.messages, StoredMessage(0, 2, "p0", 3, "k"), StoredMessage(0, 3, "p0", 2, "k")]},
        ),
        ("message not handled", {"messages": [*FINAL.messages, StoredMessage(0, 2, "p0", 2, "k")]}),
        ("group behind", {"lag": 1}),
        ("change published twice", {"changes": [*FINAL.changes, FINAL.changes[1]]}),
        ("change lost", {"changes": []}),
        ("changes differ", {"listed": {"src": ["id1"]}}),
        ("numbers of changes", {"changes": [FINAL.changes[0], Change(1, "id2", "src", MAIN, 3, "a1", "a3")]}),
        ("broken chain", {"changes": [FINAL.changes[0], Change(1, "id2", "src", MAIN, 2, "a2", "a3")]}),
        ("change that was never pushed", {"changes": [FINAL.changes[0], Change(1, "id2", "src", MAIN, 2, "a1", "b1")]}),
        ("change missing", {"changes": FINAL.changes[:1]}),
        ("change missing", {"upstream": {"r0": {}}}),
        ("source lost", {"sources": {}}),
        ("not one holder", {"holders": {"src": ["w1", "w2"]}}),
        ("not one holder", {"holders": {}}),
        ("not one mirror", {"mirrors": {"src": [MirrorState("w1", {MAIN: "a3"}), MirrorState("w2", {MAIN: "a3"})]}}),
        ("mirror differs", {"mirrors": {"src": [MirrorState("w1", {MAIN: "a2"})]}}),
        ("mirror damaged", {"mirrors": {"src": [MirrorState("w1", {MAIN: "a3"}, "missing blob")]}}),
        ("served refs differ", {"served": {"c1": {"src": {MAIN: "a1"}}}}),
        ("last commit not found", {"found": {"c1": {"gamma": []}}}),
        ("deleted word found", {"found": {"c1": {"gamma": ["src"], "alpha": ["src"]}}}),
        ("context lost", {"contexts": {}}),
        ("context not finished", {"contexts": finished(state="FAILED")}),
        ("end not reported once", {"ended": {**FINAL.ended, "tsk1": ["FINISHED", "FINISHED"]}}),
        ("end not reported once", {"ended": {}}),
        ("not finished once", {"contexts": finished(moved(*ONCE, ("FINISHED", 1)))}),
        ("old attempt accepted", {"contexts": finished(moved(("RUNNING", 1), ("SCHEDULED", 2), ("FINISHED", 1)))}),
        ("effect missing", {"effects": [EFFECTS[0], *EFFECTS[2:]]}),
        ("need not kept", {"effects": [*EFFECTS[2:], *EFFECTS[:2]]}),
        ("attempt ran twice", {"effects": [*EFFECTS, EFFECTS[0]]}),
        ("attempts overlap", {"effects": [*EFFECTS, Effect("overlap", "x0.first", 2)]}),
        ("tuple lost", {"tuples": []}),
    ],
)
def test_check_of_a_wrong_final_state_names_the_violation(kind: str, fields: dict[str, Any]) -> None:
    if fields.pop("_swap", False):
        first, second = fields["messages"]
        fields["messages"] = [msgspec.structs.replace(first, offset=0), msgspec.structs.replace(second, offset=1)]
    assert kind in kinds(JOURNAL, msgspec.structs.replace(FINAL, **fields))


@pytest.mark.parametrize(
    ("kind", "entry"),
    [
        ("another message handled", Handled(1.4, "m1", 2, 0, 1, "p0", 7)),
        ("message skipped", Handled(1.4, "m0", 1, 0, 5, "p0", 5)),
        ("place went back", Committed(1.8, 1.9, 0, 1, seen=True)),
        ("place went back", Committed(1.8, 1.9, 0, 0)),
        ("change lost", ChangeRead(2.5, 9, "id9")),
        ("wrong hit", Searched(2.6, "c1", "alpha", ("other",))),
        ("tuple came again", TupleTaken(4.6, 4.7, 0, None)),
        ("unexpected", Unexpected(5.0, "c1 ended by itself")),
    ],
)
def test_check_of_a_wrong_journal_names_the_violation(kind: str, entry: Entry) -> None:
    assert kind in kinds((*JOURNAL, entry), FINAL)


def test_check_of_a_place_read_while_a_commit_was_under_way_finds_nothing() -> None:
    assert check([*JOURNAL, Committed(1.65, 1.9, 0, 1, seen=True)], FINAL) == []


def test_check_of_a_failing_task_that_finished_at_once_names_the_lost_failure() -> None:
    tasks = (TaskState("tsk1", "fails", "FINISHED", ONCE),)
    final = msgspec.structs.replace(
        FINAL,
        contexts={"ctx": ContextState("ctx", "x0", "FINISHED", tasks)},
        effects=[Effect("begin", "x0.fails", 1), Effect("end", "x0.fails", 1)],
    )
    assert kinds(JOURNAL, final) == {"failure lost"}


@pytest.mark.parametrize(
    ("state", "effects", "found"),
    [
        ("FINISHED", ["begin", "end"], set()),
        ("FAILED", [], set()),
        ("FAILED", ["begin"], set()),
        ("FAILED", ["begin", "begin"], {"started again"}),
        ("FINISHED", ["begin"], {"effect missing"}),
        ("RUNNING", ["begin"], {"context not finished"}),
    ],
)
def test_check_of_a_task_that_may_run_at_most_once(state: str, effects: list[str], found: set[str]) -> None:
    final = msgspec.structs.replace(
        FINAL,
        contexts=FINAL.contexts | {"ctx2": ContextState("ctx2", "x1", state, ())},
        effects=[*EFFECTS, *(Effect(what, "x1.once", n) for n, what in enumerate(effects))],
    )
    assert kinds((*JOURNAL, ContextSubmitted(5.0, "ctx2", "x1", once=True)), final) == found


def test_check_of_a_tuple_whose_put_was_repeated_permits_that_it_comes_again() -> None:
    entries = (TuplePut(6.0, 5, repeated=True), TupleTaken(6.1, 6.2, 5, 6.3), TupleTaken(6.5, 6.6, 5, 6.7))
    assert check([*JOURNAL, *entries], FINAL) == []


def test_check_of_a_running_fleet_marks_what_may_still_come_as_pending() -> None:
    final = msgspec.structs.replace(FINAL, lag=2, holders={}, contexts=finished(state="RUNNING"))
    found = check(list(JOURNAL), final)
    assert {one.kind for one in found} == {"group behind", "not one holder", "context not finished"}
    assert all(one.pending for one in found)
