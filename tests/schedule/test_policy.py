"""Who is looked at how often: estimate, rules, budget. All pure."""

import heapq
import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.config.settings import PollRule
from skep.sources.model import Failure, SourceSettings
from skep.sources.polling.schedule import FIRST_OBSERVED, MONTH, Bounds, Plan, Policy, cube_root, observe, rate

HOUR, DAY, YEAR = 3600.0, 86_400.0, 365 * 86_400.0
WIDE = Bounds(1.0, 1e9)


@pytest.mark.parametrize(("per_day", "every"), [(20.0, 1600.0), (2.0, 6 * HOUR), (24.0, 8 * HOUR), (0.2, 12 * HOUR)])
def test_the_rate_is_found_though_changes_hide_behind_each_other(per_day: float, every: float) -> None:
    chance = random.Random(1)
    changes, observed = 0.0, FIRST_OBSERVED
    found = []
    for _ in range(6000):
        hidden = chance.random() < 1 - pow(2.718281828, -per_day * every / DAY)
        changes, observed = observe(changes, observed, every, hidden)
        found.append(rate(changes, observed) * DAY)
    mean = sum(found[1000:]) / 5000
    assert 0.8 * per_day < mean < 1.25 * per_day


def test_a_source_that_falls_asleep_or_wakes_is_believed_soon() -> None:
    state = 0.0, FIRST_OBSERVED
    for _ in range(300):
        state = observe(*state, HOUR, True)
    busy = rate(*state)
    for _ in range(30):
        state = observe(*state, DAY, False)
    assert rate(*state) < busy / 20
    asleep = rate(*state)
    for _ in range(72):
        state = observe(*state, HOUR, True)
    assert rate(*state) > 4 * asleep


@given(st.lists(st.tuples(st.floats(1e-3, 1e9), st.booleans()), max_size=50))
def test_a_rate_is_always_a_rate(looks: list[tuple[float, bool]]) -> None:
    state = 0.0, FIRST_OBSERVED
    for interval, changed in looks:
        state = observe(*state, interval, changed)
        assert 0 < rate(*state) < float("inf")


def test_the_cube_root_as_it_was_worked_out() -> None:
    ages = (HOUR, DAY, 7 * DAY, MONTH, YEAR)
    assert [round(cube_root(age), 1) for age in ages] == [15.3, 44.2, 84.6, 137.4, 315.9]
    assert MONTH == 2_592_000
    for unknown in (None, -1.0):
        assert cube_root(unknown) == pytest.approx(137.4, abs=0.05)
    assert cube_root(HOUR, failures=2) == pytest.approx(3 * cube_root(MONTH))
    assert round(cube_root(MONTH) / cube_root(HOUR)) == 9
    assert round(cube_root(YEAR) / cube_root(HOUR)) == 21


def test_the_cube_root_is_a_share_of_the_looks() -> None:
    """An hour-old source beside one of a month and one of a year, at any budget."""
    for budget in (0.001, 1.0):
        policy = Policy("cube_root", WIDE, budget)
        for age in (HOUR, MONTH, YEAR):
            policy.count(WIDE, policy.wait(age, 0, DAY), 1)
        policy.weigh()
        assert policy.load() == pytest.approx(budget, rel=0.01)
        young, month, year = (policy.after_success(WIDE, policy.wait(a, 0, DAY), 0.0, 0.5) for a in (HOUR, MONTH, YEAR))
        assert (round(month / young), round(year / young)) == (9, 21)


def test_a_failing_source_waits_by_the_cube_root_too() -> None:
    plan, policy = Plan(), Policy("cube_root", Bounds(60.0, 1e9))
    plan.succeeded(1000.0, None, policy, 0.5)
    plan.failed(2000.0, Failure("network", ""), policy, 0.5)
    assert plan.next_look - 2000.0 == pytest.approx(100 * 2 * cube_root(MONTH), rel=0.01)


@given(
    st.lists(st.tuples(st.floats(1, 1e8), st.sampled_from([WIDE, Bounds(60, DAY), Bounds(5, 10)])), min_size=1),
    st.floats(1e-4, 1e3),
)
def test_all_together_use_the_budget_or_the_bounds_forbid_it(
    sources: list[tuple[float, Bounds]], budget: float
) -> None:
    policy = Policy("share", WIDE, budget)
    for wait, bounds in sources:
        policy.count(bounds, wait, 1)
    policy.weigh()
    load = policy.load()
    policy.pace *= 2
    most = policy.load()
    policy.pace /= 4
    least = policy.load()
    assert load <= budget * 1.01 or least == pytest.approx(load)
    assert load >= budget * 0.99 or most == pytest.approx(load)
    for wait, bounds in sources:
        policy.count(bounds, wait, -1)
    assert policy.load() == 0


def test_twice_the_rate_is_looked_at_a_square_root_as_often() -> None:
    policy = Policy("share", WIDE)
    slow, fast = (policy.wait(0.0, changes, 100 * DAY) for changes in (9.5, 39.5))
    assert slow / fast == pytest.approx(2.0)


def test_a_source_may_have_bounds_of_its_own() -> None:
    policy = Policy("share", Bounds(60.0, DAY))
    for own, wanted in (
        (SourceSettings(), (60.0, DAY)),
        (SourceSettings(poll_max=300.0), (60.0, 300.0)),
        (SourceSettings(poll_max=30.0), (30.0, 30.0)),
        (SourceSettings(poll_min=5.0), (5.0, DAY)),
        (SourceSettings(poll_min=7 * DAY), (7 * DAY, 7 * DAY)),
    ):
        assert policy.bounds_of(own) == Bounds(*wanted)
        plan = Plan()
        plan.succeeded(1000.0, None, policy, 0.9, own)
        assert wanted[0] <= plan.next_look - 1000.0 <= wanted[1]


def test_a_newcomer_among_a_thousand_comes_in_where_the_others_are() -> None:
    """It is looked at once, and then as often as its like: never again and again until it has caught up."""
    chance = random.Random(7)
    rules: tuple[PollRule, ...] = ("share", "age", "cube_root")
    for rule in rules:
        policy = Policy(rule, Bounds(60.0, DAY), budget=1.0)
        plans = {n: Plan() for n in range(1000)}
        queue = [(0.0, n) for n in plans]
        looks: list[int] = []
        now = 1e9
        while len(looks) < 12_000:
            if len(looks) == 6000:
                plans[1000] = Plan(next_look=now)
                heapq.heappush(queue, (now, 1000))
            due, who = queue[0]
            now = max(now + 1.0, due)
            plans[who].succeeded(now, now if chance.random() < 0.01 else None, policy, chance.random())
            heapq.heapreplace(queue, (plans[who].next_look, who))
            looks.append(who)
        mine = [at for at, who in enumerate(looks) if who == 1000]
        assert 0 < len(mine) < (60 if rule == "share" else 300)  # others take it for young
        assert all(later - earlier > 1 for earlier, later in itertools.pairwise(mine))
        if rule == "share":
            assert set(looks[-6000:]) == set(range(1001)), "nobody starves"
