"""The table of moves: nothing leaves it, and what has ended stays so until a person asks for it again."""

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from skep.tasks.model import Actor, TaskState
from skep.tasks.transitions import ACTIVE, ENDED, legal, retry_pause, state_of_counts
from tests.tasks.house import context_state

STATES: tuple[TaskState, ...] = get_args(TaskState)
ACTORS: tuple[Actor, ...] = get_args(Actor)
states, actors = st.sampled_from(STATES), st.sampled_from(ACTORS)


@given(st.lists(st.tuples(states, actors)))
def test_a_walk_through_the_table(wishes: list[tuple[TaskState, Actor]]) -> None:
    state: TaskState = "CREATED"
    for wish, actor in wishes:
        if not legal(state, wish, actor):
            continue
        if state in ENDED:
            assert (state, wish, actor) in {("FAILED", "SUBMITTED", "person"), ("ABORTED", "SUBMITTED", "person")}
        if wish == "FINISHED":
            assert (state, actor) == ("RUNNING", "worker")
        if wish in ACTIVE:
            assert actor == ("dispatcher" if wish == "SCHEDULED" else "worker")
        state = wish


def test_every_state_can_be_reached_and_every_unended_one_left() -> None:
    reached, new = set[TaskState](), {STATES[0]}
    while new:
        reached |= new
        new = {new for old in reached for new in STATES for by in ACTORS if legal(old, new, by)} - reached
    assert reached == set(STATES)
    for state in STATES:
        assert legal(state, "ABORTED", "person") == (state not in ENDED)
        assert not any(legal(state, state, by) for by in ACTORS)


@given(st.lists(states, min_size=1))
def test_a_context_has_failed_only_when_all_have_ended(tasks: list[TaskState]) -> None:
    failed = sum(task in ("FAILED", "ABORTED") for task in tasks)
    assert context_state(tasks) == state_of_counts(sum(task not in ENDED for task in tasks), failed)


@given(st.floats(0, 100), st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_pauses_double_and_stay_within_an_hour(backoff: float, failures: int, random: float) -> None:
    pause = retry_pause(backoff, failures, random)
    assert 0 <= pause <= 3600 * 1.1
    assert retry_pause(backoff, failures + 1, random) >= pause
