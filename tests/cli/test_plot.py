"""Curves out of dots."""

from hypothesis import given
from hypothesis import strategies as st

from skep.interfaces.terminal import plot


def test_a_slope_runs_from_corner_to_corner() -> None:
    assert plot([1.0, 2.0, 3.0, 4.0], 10, 1) == ["⡠⠊"]


def test_a_step_is_joined_and_a_flat_line_lies_in_the_middle() -> None:
    assert plot([1.0, 1.0, 5.0, 5.0], 10, 2) == ["⠀⡏", "⣀⠇"]
    assert plot([3.0] * 4, 10, 1) == ["⠤⠤"]


def test_more_values_than_places_share_them() -> None:
    (line,) = plot([0.0] * 500 + [1.0] * 500, 10, 1)
    assert len(line) == 10
    assert (line[0], line[-1]) == ("⣀", "⠉")


@given(st.lists(st.floats(-1e12, 1e12), max_size=300), st.integers(1, 50), st.integers(1, 20))
def test_it_fits_whatever_it_is(values: list[float], columns: int, rows: int) -> None:
    lines = plot(values, columns, rows)
    assert len(lines) == rows
    assert all(len(line) <= columns for line in lines)
