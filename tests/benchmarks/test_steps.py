"""Steps in synthetic series, and the statistics below them."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.steps.run import count, make, ours
from skep.benchmarks.step_detection import between, compare, divided, find_steps, noise, spread_of, student


@pytest.mark.parametrize(("size", "noisy", "least"), [(0.10, 0.01, 1.0), (0.05, 0.01, 1.0), (0.10, 0.03, 0.97)])
def test_clear_steps_are_found_where_they_are(size: float, noisy: float, least: float) -> None:
    series = make(size, noisy, 40, seed=5, spiky=False)
    hits, there, wrong = count(ours([values for values, _ in series]), series)
    assert hits >= least * there
    assert wrong <= 2


@pytest.mark.parametrize("spiky", [False, True])
def test_noise_without_a_step_is_silence(spiky: bool) -> None:
    series = [one for noisy in (0.01, 0.03, 0.05) for one in make(0.0, noisy, 40, round(1000 * noisy), spiky)]
    assert sum(map(len, ours([values for values, _ in series]))) <= 2


def test_improvements_and_several_steps_are_told_apart() -> None:
    dice = np.random.default_rng(1)
    levels = np.repeat([100.0, 110.0, 95.0], 30)
    found = find_steps([float(v) for v in levels * (1 + 0.01 * dice.standard_normal(90))])
    assert [abs(one.at - at) <= 1 for one, at in zip(found, (30, 60), strict=True)] == [True, True]
    assert found[0].change == pytest.approx(0.10, abs=0.02)
    assert found[1].change == pytest.approx(95 / 110 - 1, abs=0.02)
    assert all(one.low <= one.at <= one.high for one in found)


def test_small_changes_are_none_when_they_are_not_wanted() -> None:
    values = [100.0] * 20 + [102.0] * 20
    assert [one.at for one in find_steps(values)] == [20]
    assert find_steps(values, least=0.03) == []


def test_exact_numbers_and_too_few_of_them() -> None:
    assert find_steps([]) == find_steps([5.0]) == find_steps([5.0] * 50) == []
    assert find_steps([1.0, 1.0, 2.0, 2.0]) == []


@given(st.lists(st.floats(min_value=1e-9, max_value=1e12), min_size=2, max_size=60))
def test_whatever_comes_it_answers(values: list[float]) -> None:
    for one in find_steps(values):
        assert 0 < one.low <= one.at <= one.high < len(values)
        assert math.isfinite(one.change)
    assert noise(values) >= 0


@given(st.lists(st.floats(min_value=0.001, max_value=1e6), min_size=1, max_size=40))
def test_a_median_lies_in_its_interval(values: list[float]) -> None:
    found = spread_of(values)
    assert min(values) <= found.low <= found.median <= found.high <= max(values)
    assert found.median == statistics.median(values)


def test_intervals_cover_the_true_median() -> None:
    dice = np.random.default_rng(2)
    covered = [spread_of(list(dice.exponential(size=15))) for _ in range(400)]
    assert sum(one.low <= math.log(2) <= one.high for one in covered) >= 0.93 * 400


def test_student_agrees_with_the_tables() -> None:
    for t, freedom, p in ((2.228, 10, 0.05), (12.706, 1, 0.05), (3.169, 10, 0.01), (1.96, 1e6, 0.05)):
        assert student(t, freedom) == pytest.approx(p, rel=0.01)


def test_pairs_see_what_is_below_the_noise_of_the_machine() -> None:
    dice = np.random.default_rng(4)
    weather = 1 + 0.3 * dice.random(12)
    found = compare([float(v) for v in weather], [float(v) for v in weather * 1.02])
    assert found.ratio == pytest.approx(1.02)
    assert found.p < 0.001
    assert compare([1.0] * 5, [1.0] * 5).p == 1.0
    assert compare([1.0, 2.0, 1.0, 2.0], [2.0, 1.0, 2.0, 1.0]).p > 0.5


def test_two_ends_and_the_place_between_them() -> None:
    assert between([1.0, 1.01, 0.99], [1.0, 1.02, 0.98]) is None
    assert between([1.0], [2.0]) is None
    found = between([1.0, 1.01, 0.99, 1.0], [1.2, 1.21, 1.19, 1.2])
    assert found is not None
    assert found.change == pytest.approx(0.2)
    assert divided([1.0, 1.01, 1.19, 1.2, 1.21]).at == 2
    assert divided([1.0, 2.0]).at == 1
