"""How many workers there should be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.base.answers import TaskLoad
from skep.fleet.ring import Aim, wanted

_SOME = st.integers(0, 10_000)
_WORKERS = st.integers(0, 100)
_TASKS = st.builds(TaskLoad, ready=_SOME, placed=_SOME, ended=_SOME)
_AIMS = st.builds(
    lambda least, more, within: Aim(least, least + more, within),
    st.integers(0, 20),
    st.integers(0, 100),
    st.floats(1.0, 3600.0),
)


@pytest.mark.parametrize(
    ("workers", "tasks", "number"),
    [
        (0, TaskLoad(0, 0, 0), 1),
        (0, TaskLoad(5, 0, 0), 1),
        (2, TaskLoad(0, 2, 0), 2),
        (2, TaskLoad(0, 1, 50), 1),
        (1, TaskLoad(0, 0, 0), 1),
        (2, TaskLoad(4, 2, 0), 3),  # nothing was done yet: nobody knows how fast they are
        (2, TaskLoad(30, 4, 60), 3),  # half of what they did comes on top
        (2, TaskLoad(1_000, 4, 60), 4),
        (9, TaskLoad(1_000, 9, 60), 10),
    ],
)
def test_as_many_as_do_what_waits_within_a_minute(workers: int, tasks: TaskLoad, number: int) -> None:
    assert wanted(workers, tasks, Aim()) == number


def test_who_has_longer_needs_fewer() -> None:
    tasks = TaskLoad(100, 8, 100)
    assert [wanted(4, tasks, Aim(within=within)) for within in (60.0, 120.0, 600.0)] == [8, 6, 5]


@given(_WORKERS, _TASKS, _AIMS)
def test_within_bounds_and_in_small_steps(workers: int, tasks: TaskLoad, aim: Aim) -> None:
    number = wanted(workers, tasks, aim)
    assert aim.least <= number <= aim.most
    if aim.least <= workers <= aim.most and workers:
        assert workers - 1 <= number <= 2 * workers
        if tasks.ready:
            assert number >= workers


@given(_WORKERS, _TASKS, _AIMS, st.integers(1, 1_000))
def test_more_work_never_needs_fewer(workers: int, tasks: TaskLoad, aim: Aim, more: int) -> None:
    busier = TaskLoad(tasks.ready + more, tasks.placed, tasks.ended)
    assert wanted(workers, busier, aim) >= wanted(workers, tasks, aim)
