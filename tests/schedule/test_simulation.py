"""The schedule replayed: numbers that follow from the policy alone, the same in every run."""

import pytest

from skep.sources.polling.schedule import Bounds, Policy
from skep.sources.polling.simulate import SOURCEGRAPH, mix, simulate

DAY = 86_400.0


def test_at_the_same_load_commits_are_seen_nearly_twice_as_soon() -> None:
    """With rates that it had to find out; the best possible, with rates known, is about 2."""
    rates = mix(300).rates()
    theirs = simulate(rates, 90, Policy("age", SOURCEGRAPH))
    ours = simulate(rates, 90, Policy("share", Bounds(60.0, DAY), theirs.looks_per_day / DAY))
    assert ours.looks_per_day <= theirs.looks_per_day
    assert theirs.mean / ours.mean >= 1.8
    assert ours.p95 < theirs.p95
    # the figures of the rule as others have worked them out for this mix: 4.83 looks a day, 103 minutes
    assert theirs.looks_per_day / len(rates) == pytest.approx(4.83, rel=0.05)
    assert theirs.mean / 60 == pytest.approx(103, rel=0.1)


@pytest.mark.parametrize("rule", ["share", "age", "cube_root"])
def test_a_budget_is_kept_and_nobody_is_forgotten(rule: str) -> None:
    rates = mix(100).rates()
    found = simulate(rates, 10, Policy(rule, Bounds(60.0, DAY), 200 / DAY), seed=3)  # type: ignore[arg-type]
    assert 150 < found.looks_per_day < 204
    assert found.longest < 1.5 * DAY


def test_the_same_seed_is_the_same_world() -> None:
    rates = mix(50).rates()
    runs = [simulate(rates, 5, Policy(), seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
