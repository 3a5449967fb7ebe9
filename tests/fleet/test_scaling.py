"""How many workers there should be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.fleet.scaling import Aim, Load, wanted

_SOME = st.integers(0, 10_000)
_LOADS = st.builds(Load, workers=st.integers(0, 100), ready=_SOME, placed=_SOME, ended=_SOME)
_AIMS = st.builds(
    lambda least, more, within: Aim(least, least + more, within),
    st.integers(0, 20),
    st.integers(0, 100),
    st.floats(1.0, 3600.0),
)


@pytest.mark.parametrize(
    ("load", "number"),
    [
        (Load(0, 0, 0, 0), 1),
        (Load(0, 5, 0, 0), 1),
        (Load(2, 0, 2, 0), 2),
        (Load(2, 0, 1, 50), 1),
        (Load(1, 0, 0, 0), 1),
        (Load(2, 4, 2, 0), 3),  # nothing was done yet: nobody knows how fast they are
        (Load(2, 30, 4, 60), 3),  # half of what they did comes on top
        (Load(2, 1_000, 4, 60), 4),
        (Load(9, 1_000, 9, 60), 10),
    ],
)
def test_as_many_as_do_what_waits_within_a_minute(load: Load, number: int) -> None:
    assert wanted(load, Aim()) == number


def test_who_has_longer_needs_fewer() -> None:
    load = Load(4, 100, 8, 100)
    assert [wanted(load, Aim(within=within)) for within in (60.0, 120.0, 600.0)] == [8, 6, 5]


@given(_LOADS, _AIMS)
def test_within_bounds_and_in_small_steps(load: Load, aim: Aim) -> None:
    number = wanted(load, aim)
    assert aim.least <= number <= aim.most
    if aim.least <= load.workers <= aim.most and load.workers:
        assert load.workers - 1 <= number <= 2 * load.workers
        if load.ready:
            assert number >= load.workers


@given(_LOADS, _AIMS, st.integers(1, 1_000))
def test_more_work_never_needs_fewer(load: Load, aim: Aim, more: int) -> None:
    busier = Load(load.workers, load.ready + more, load.placed, load.ended)
    assert wanted(busier, aim) >= wanted(load, aim)
