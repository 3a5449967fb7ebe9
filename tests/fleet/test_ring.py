"""Who should hold what: bounded loads, few moves, no replica twice at one member."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.fleet.ring import NOBODY, SLACK, Holders, Holding, Member, Node, Ring, numbers_of, plan

NUMBERS = numbers_of([f"src_{n}" for n in range(20_000)])
EVEN = np.ones(len(NUMBERS))
NONE = np.full(len(NUMBERS), NOBODY, np.int32)


def nodes(count: int, capacity: float = 1.0) -> list[Node]:
    return [Node(f"wrk_{n}", capacity) for n in range(count)]


def loads(ring: Ring, holders: Holders, weights: np.typing.NDArray[np.float64]) -> np.typing.NDArray[np.float64]:
    """In shares of what each should have."""
    found: np.typing.NDArray[np.float64] = np.bincount(holders, weights, len(ring.nodes)) / (
        ring.shares * weights.sum()
    )
    return found


def test_everybody_gets_about_its_share_by_capacity() -> None:
    ring = Ring([*nodes(5), Node("large", 5.0)])
    held = ring.assign(NUMBERS, EVEN, NONE)
    spread = loads(ring, held, EVEN)
    assert spread.max() <= 1 + SLACK + 0.001
    assert spread.min() > 0.6
    assert (held == 5).mean() == pytest.approx(0.5, abs=0.06)


def test_the_same_answer_on_every_machine_and_nothing_moves_without_a_reason() -> None:
    first = Ring(nodes(7)).assign(NUMBERS, EVEN, NONE)
    assert np.array_equal(Ring(nodes(7)).assign(NUMBERS, EVEN, NONE), first)
    assert np.array_equal(Ring(nodes(7)).assign(NUMBERS, EVEN, first), first)


def test_who_joins_takes_its_share_and_nothing_else_moves() -> None:
    before = Ring(nodes(10)).assign(NUMBERS, EVEN, NONE)
    after = Ring(nodes(11)).assign(NUMBERS, EVEN, before)
    moved = after != before
    assert moved.mean() <= 1.15 / 11
    assert (after[moved] == 10).mean() > 0.9
    assert (after == 10).mean() > 0.6 / 11


def test_only_what_the_gone_one_held_moves() -> None:
    before = Ring(nodes(10)).assign(NUMBERS, EVEN, NONE)
    gone = np.where(before == 9, NOBODY, before).astype(np.int32)
    ring = Ring(nodes(9))
    after = ring.assign(NUMBERS, EVEN, gone)
    assert np.array_equal(after[before != 9], before[before != 9])
    assert loads(ring, after, EVEN).max() <= 1 + SLACK + 0.001


def test_who_comes_back_soon_finds_all_it_had() -> None:
    """Its sources had not been given away yet: they are still its own."""
    before = Ring(nodes(4)).assign(NUMBERS, EVEN, NONE)
    assert np.array_equal(Ring([Node("wrk_0"), *nodes(4)[1:]]).assign(NUMBERS, EVEN, before), before)


def test_those_in_need_do_not_take_from_each_other() -> None:
    """One has nearly everything, and the others, who have too little, would only exchange what they have."""
    ring, few = Ring(nodes(4)), NUMBERS[:9]
    first, second = (next(n for n in range(9) if ring.owner(ring.next_place(few))[n] == member) for member in (0, 1))
    before = np.full(9, 3, np.int32)
    before[first], before[second] = 1, 0  # each has what belongs to the other
    after = ring.assign(few, np.ones(9), before)
    assert (after[first], after[second]) == (1, 0)
    assert np.array_equal(ring.assign(few, np.ones(9), after), after)


def test_replicas_are_at_different_members_and_missing_where_there_are_too_few() -> None:
    ring = Ring(nodes(4))
    primary = ring.assign(NUMBERS, EVEN, NONE)
    others = ring.replicas(NUMBERS, EVEN, primary, [NONE, NONE])
    held = [primary, *others]
    for n, one in enumerate(held):
        assert one.min() >= 0
        assert loads(ring, one, EVEN).max() <= 1.15
        for other in held[:n]:
            assert not (one == other).any()
    assert len(Ring(nodes(2)).replicas(NUMBERS, EVEN, primary % 2, [NONE, NONE])) == 1
    again = ring.replicas(NUMBERS, EVEN, primary, others)
    assert all(np.array_equal(one, other) for one, other in zip(others, again, strict=True))


def test_who_joins_takes_its_share_of_replicas_and_nothing_else_moves() -> None:
    ring = Ring(nodes(20))
    primary = ring.assign(NUMBERS, EVEN, NONE)
    (before,) = ring.replicas(NUMBERS, EVEN, primary, [NONE])
    more = Ring(nodes(21))
    joined = more.assign(NUMBERS, EVEN, primary)
    (after,) = more.replicas(NUMBERS, EVEN, joined, [before])
    assert (after != before).mean() <= 1.3 / 21
    assert (after == 20).mean() > 0.5 / 21


def test_pins_hold_whatever_the_loads() -> None:
    pinned = dict.fromkeys(range(0, 12000), 2)
    ring = Ring(nodes(3))
    held = ring.assign(NUMBERS, EVEN, NONE, pinned=pinned)
    assert (held[:12_000] == 2).all()
    assert not (held[12_000:] == 2).any()
    assert np.array_equal(ring.assign(NUMBERS, EVEN, held, pinned=pinned), held)


def test_who_goes_down_again_and_again_is_given_less() -> None:
    holdings = [Holding(f"src_{n}", None) for n in range(4_000)]
    steady, shaky = (
        Member("a", "", "alive", 1.0, draining=False),
        Member("b", "", "alive", 1.0, draining=False, downs=3),
    )
    given = [change.new for change in plan([steady, shaky], holdings).changes]
    assert len(given) == 4_000
    assert given.count("b") == pytest.approx(800, rel=0.4)


def test_without_members_nobody_holds_anything() -> None:
    assert (Ring([]).assign(NUMBERS, EVEN, NONE) == NOBODY).all()


@given(
    capacities=st.lists(st.floats(0.1, 10.0), min_size=1, max_size=12),
    weights=st.lists(st.floats(0.001, 1_000.0), min_size=1, max_size=200),
    seed=st.integers(0, 2**32 - 1),
    replicas=st.integers(1, 3),
)
def test_whatever_came_before_everything_has_a_holder_and_nobody_too_much(
    capacities: list[float], weights: list[float], seed: int, replicas: int
) -> None:
    chance = np.random.default_rng(seed)
    ring = Ring([Node(f"m{n}", capacity) for n, capacity in enumerate(capacities)])
    weighed, numbers = np.array(weights), NUMBERS[: len(weights)]
    before = chance.integers(-1, len(capacities), len(weights)).astype(np.int32)
    primary = ring.assign(numbers, weighed, before)
    nobody = np.full(len(weights), NOBODY, np.int32)
    found = [primary, *ring.replicas(numbers, weighed, primary, [nobody] * (replicas - 1))]
    assert len(found) == min(replicas, len(capacities))
    for n, holders in enumerate(found):
        assert holders.min() >= 0
        assert not any((holders == other).any() for other in found[:n])
    # where one source is heavier than a share, somebody must have more than its share
    most = np.maximum(ring.shares * weighed.sum() * (1 + SLACK), weighed.max())
    assert (np.bincount(found[0], weighed, len(capacities)) <= most + weighed.max() + 1e-6).all()


def test_the_stretches_of_the_circle_are_whose_they_are_said_to_be() -> None:
    ring = Ring([Node(f"wrk_{n}", 1.0 + n) for n in range(3)])
    stretches = ring.stretches()
    assert sum(end - start for _, start, end in stretches) == pytest.approx(1.0)
    middles = np.array([int((start + end) / 2 % 1.0 * 2**64) for _, start, end in stretches], np.uint64)
    assert ring.owner(ring.next_place(middles)).tolist() == [whose for whose, _, _ in stretches]
    assert Ring([Node("alone")]).stretches() == [(0, 0.0, 1.0)]
    assert Ring([]).stretches() == []
