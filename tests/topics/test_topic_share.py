"""Who reads which partition: balanced, and nothing moves that need not."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from skep.topics.groups import fair

MEMBERS = ["a", "b", "c", "d", "e"]
owned = st.dictionaries(st.integers(0, 40), st.none() | st.sampled_from([*MEMBERS, "gone"]))
members = st.lists(st.sampled_from(MEMBERS), unique=True, min_size=1)


@given(owned, members)
def test_shares_differ_by_at_most_one(owners: dict[int, str | None], members: list[str]) -> None:
    shared = fair(owners, members)
    assert shared.keys() == owners.keys()
    counts = [list(shared.values()).count(member) for member in members]
    assert sum(counts) == len(owners)
    assert max(counts) - min(counts) <= 1


@given(owned, members)
def test_once_shared_nothing_moves(owners: dict[int, str | None], members: list[str]) -> None:
    shared = fair(owners, members)
    assert fair(shared, members) == shared
    assert fair(owners, members[::-1]) == shared


small = st.dictionaries(st.integers(0, 5), st.none() | st.sampled_from(["a", "b", "gone"]), max_size=6)


@given(small, st.sampled_from([["a"], ["a", "b"], ["a", "b", "c"]]))
def test_no_other_fair_share_moves_fewer(owners: dict[int, str | None], members: list[str]) -> None:
    def stays(shared: dict[int, str]) -> int:
        return sum(owners[partition] == member for partition, member in shared.items())

    best = 0
    for choice in product(members, repeat=len(owners)):
        counts = [choice.count(member) for member in members]
        if max(counts) - min(counts) <= 1:
            best = max(best, stays(dict(zip(owners, choice, strict=True))))
    assert stays(fair(owners, members)) == best


def test_without_members_nobody_reads() -> None:
    assert fair({0: "a", 1: None}, []) == {}
