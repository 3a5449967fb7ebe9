"""Which commit comes next: everything is measured once, steps become narrow, wishes come first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.base.errors import BadInput, SkepError
from skep.benchmarks.api import BenchmarkSpec, Commit, Span, Want
from skep.benchmarks.commit_selection import Wanted, choose, key_of, spread
from skep.benchmarks.service import check, variants

PUSH = BenchmarkSpec("b", "src_1", ("true",))
RANGE = BenchmarkSpec("b", "src_1", ("true",), mode="range", range="a..b")


def commits(count: int) -> list[Commit]:
    return [Commit(f"{n:040x}", f"{n - 1:040x}" if n else "", float(n), "A", "s") for n in range(count)]


def keys(*places: int) -> set[str]:
    return {key_of("main", f"{place:040x}") for place in places}


def test_push_measures_the_tip_and_then_waits() -> None:
    choice, narrow, fulfilled = choose(PUSH, {"main": commits(5)}, ())
    assert choice is not None
    assert (choice.key, narrow, fulfilled) == (next(iter(keys(4))), [], 0)
    assert choose(PUSH, {"main": commits(5)}, keys(4)) == (None, [], 0)


@given(st.integers(1, 60), st.integers(0, 60))
def test_a_range_is_measured_once_each_and_ends(length: int, points: int) -> None:
    spec = BenchmarkSpec("b", "s", ("true",), mode="range", range="a..b", points=points)
    done: list[str] = []
    while (choice := choose(spec, {"main": commits(length)}, set(done))[0]) is not None:
        done.append(choice.key)
    assert len(set(done)) == len(done)
    assert len(done) == (min(points, length) if points else length)


@given(st.integers(1, 100), st.integers(2, 100))
def test_spread_has_both_ends_first(length: int, most: int) -> None:
    chosen = spread(commits(length), most)
    assert len(chosen) == len({one.id for one in chosen}) == min(length, most)
    assert chosen[0].made_at == length - 1
    assert length == 1 or chosen[1].made_at == 0


@given(st.integers(2, 200), st.data())
def test_a_step_is_narrowed_in_logarithmic_time(length: int, data: st.DataObject) -> None:
    slow = data.draw(st.integers(1, length - 1))
    low, high, generated, turns = 0, length - 1, keys(0, length - 1), 0
    while True:
        span = Span("stp_1", "main", f"{low:040x}", f"{high:040x}")
        choice, narrow, _ = choose(PUSH, {"main": commits(length)}, generated, [span])
        if choice is None:
            break
        generated.add(choice.key)
        place = int(choice.commit.made_at)
        low, high = (low, place) if place >= slow else (place, high)
        turns += 1
    assert (high, narrow) == (slow, ["stp_1"])
    assert turns <= length.bit_length() + 1


def test_what_cannot_be_built_is_gone_around() -> None:
    span = Span("stp_1", "main", f"{0:040x}", f"{2:040x}")
    assert choose(PUSH, {"main": commits(3)}, keys(0, 1, 2), [span]) == (None, ["stp_1"], 0)


def test_history_that_was_rewritten_leaves_no_step_open() -> None:
    span = Span("stp_1", "main", "f" * 40, f"{2:040x}")
    assert choose(PUSH, {"main": commits(3)}, keys(2), [span]) == (None, ["stp_1"], 0)


def test_wishes_come_first_and_again_means_another_round() -> None:
    one = Wanted(Want("x", again=True, round=7), "main", commits(3)[1:])
    generated = keys(1, 2)
    for place in (1, 2):
        choice, _, fulfilled = choose(PUSH, {"main": commits(3)}, generated, [], [one])
        assert choice is not None
        assert (choice.key, fulfilled) == (key_of("main", f"{place:040x}", 7), 0)
        generated.add(choice.key)
    assert choose(PUSH, {"main": commits(3)}, generated, [], [one]) == (None, [], 1)
    nothing = Wanted(Want("gone"), "main", ())
    choice, _, fulfilled = choose(PUSH, {"main": commits(3)}, keys(1), [], [nothing, nothing])
    assert choice is not None
    assert (choice.commit.made_at, fulfilled) == (2.0, 2)


def test_a_bisect_measures_both_ends_first() -> None:
    wish = Wanted(Want("a..b", bisect=True), "main", commits(50))
    first = choose(PUSH, {"main": commits(50)}, (), [], [wish])[0]
    second = choose(PUSH, {"main": commits(50)}, keys(49), [], [wish])[0]
    assert first is not None
    assert second is not None
    assert (first.commit.made_at, second.commit.made_at) == (49.0, 0.0)
    assert choose(PUSH, {"main": commits(50)}, keys(0, 49), [], [wish]) == (None, [], 1)


@pytest.mark.parametrize(
    "more",
    [
        {"name": "No Name"},
        {"command": ()},
        {"code": "x"},
        {"command": ("a", "")},
        {"mode": "range"},
        {"range": "a..b"},
        {"mode": "range", "range": "a.."},
        {"repetitions": 0},
        {"least": float("nan")},
        {"per_hour": 0},
        {"matrix": {"N": ()}},
        {"matrix": {"N": tuple(map(str, range(65)))}},
        {"matrix": {"SKEP_TOKEN": ("x",)}},
        {"environment": {"a=b": "x"}},
        {"webhook": "file:///etc/passwd"},
        {"metrics": ("[",)},
        {"selector": "cpu >"},
        {"build": ("x" * 200_000,)},
    ],
)
def test_what_is_wrong_is_said_when_it_is_made(more: dict[str, object]) -> None:
    given: dict[str, object] = {"name": "b", "source": "s", "command": ("true",), **more}
    with pytest.raises(SkepError) as caught:
        check(BenchmarkSpec(**given))  # type: ignore[arg-type]
    assert caught.value.message
    assert isinstance(caught.value, BadInput) or caught.value.code in ("too_large", "bad_query")


def test_a_matrix_is_every_combination() -> None:
    spec = BenchmarkSpec("b", "s", ("true",), matrix={"A": ("1", "2"), "B": ("x",)})
    check(spec)
    assert variants(spec) == [{"A": "1", "B": "x"}, {"A": "2", "B": "x"}]
    assert variants(PUSH) == [{}]
