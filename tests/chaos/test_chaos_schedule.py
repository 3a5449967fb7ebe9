"""The schedule is the same for the same seed, and heals everything that it breaks."""

from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.schedule import COORDINATORS, DECK, MEMBERS, PROCESS_KINDS, QUIET, WORKERS, Event, plan

SEEDS = st.integers(0, 2**32)
SECONDS = st.floats(10.0, 400.0)


def at_once(events: tuple[Event, ...]) -> list[list[Event]]:
    """For the begin of each event: all events that last at that moment."""
    return [[one for one in events if one.at <= moment.at < one.end] for moment in events]


@given(SEEDS, SECONDS)
def test_plan_with_the_same_seed_gives_the_same_events(seed: int, seconds: float) -> None:
    assert plan(seed, seconds) == plan(seed, seconds)


@given(SEEDS)
def test_plan_with_another_seed_gives_other_events(seed: int) -> None:
    assert plan(seed, 120.0) != plan(seed + 1, 120.0)


@given(SEEDS, SECONDS)
def test_plan_of_any_seed_heals_each_fault_before_the_end(seed: int, seconds: float) -> None:
    events = plan(seed, seconds)
    assert list(events) == sorted(events, key=lambda event: event.at)
    assert all(event.at >= QUIET and event.seconds > 0 and event.end <= seconds - QUIET for event in events)


@given(SEEDS, SECONDS)
def test_plan_of_any_seed_names_two_different_members_in_each_cut(seed: int, seconds: float) -> None:
    for event in plan(seed, seconds):
        assert event.target in MEMBERS
        assert bool(event.other) == (event.kind not in PROCESS_KINDS)
        for sender, receiver in event.directions:
            assert sender in MEMBERS and receiver in MEMBERS and sender != receiver


@given(SEEDS, SECONDS)
def test_plan_of_any_seed_gives_a_process_one_fault_at_a_time(seed: int, seconds: float) -> None:
    for events in at_once(plan(seed, seconds)):
        targets = [event.target for event in events if event.kind in PROCESS_KINDS]
        assert len(targets) == len(set(targets))


@given(SEEDS, SECONDS)
def test_plan_of_any_seed_leaves_a_coordinator_and_a_worker_running(seed: int, seconds: float) -> None:
    for events in at_once(plan(seed, seconds)):
        targets = {event.target for event in events if event.kind in PROCESS_KINDS}
        assert set(COORDINATORS) - targets and set(WORKERS) - targets


@given(SEEDS)
def test_plan_of_ten_minutes_contains_each_card(seed: int) -> None:
    events = plan(seed, 600.0)
    for card in DECK:
        assert any(
            event.kind == card.kind
            and event.target in card.targets
            and event.one_way == card.one_way
            and card.seconds[0] - 0.01 <= event.seconds <= card.seconds[1] + 0.01
            for event in events
        ), card


@given(SEEDS)
def test_plan_of_a_minute_has_faults_that_last_at_the_same_time(seed: int) -> None:
    events = plan(seed, 60.0)
    assert len(events) > 10
    assert max(len(some) for some in at_once(events)) > 1


@given(SEEDS)
def test_plan_of_some_kinds_has_events_of_these_kinds_only(seed: int) -> None:
    assert {event.kind for event in plan(seed, 60.0, ["pause"])} == {"pause"}
