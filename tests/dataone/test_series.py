"""Heads of series by the rule, and chains whatever is missing or wrong."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.dataone.decision import Version, chain, head, members

V = Version

CASES: dict[str, tuple[list[V], set[str], str | None]] = {
    "none": ([], set(), None),
    "one": ([V("a")], set(), "a"),
    "a whole chain": ([V("a", None, "b", 1), V("b", "a", "c", 2), V("c", "b", None, 3)], set(), "c"),
    "an end without a link back": ([V("a", None, None, 1), V("b", "a", None, 2)], set(), "b"),
    "wrong upload dates": ([V("a", None, None, 9), V("b", "a", None, 2)], set(), "b"),
    "two ends, no links": ([V("a", None, None, 1), V("b", None, None, 2)], set(), "b"),
    "obsoleted by another series": ([V("a", None, "b", 1), V("b", "a", "x", 2)], {"x"}, "b"),
    "obsoleted by an unknown object": ([V("a", None, "b", 1), V("b", "a", "x", 2)], set(), "b"),
    "a gap in the middle": ([V("a", None, "x", 1), V("c", "x", None, 2)], set(), "c"),
    "a gap, and wrong dates": ([V("a", None, "x", 9), V("c", "x", None, 2)], set(), "c"),
    "a branch": ([V("a", None, "b", 1), V("b", "a", None, 2), V("c", "a", None, 3)], set(), "c"),
    "left and come back": ([V("a", None, "x", 1), V("b", "x", None, 3)], {"x"}, "b"),
    "a circle": ([V("a", "b", "b", 1), V("b", "a", "a", 2)], set(), "b"),
    "itself": ([V("a", "a", "a", 1)], set(), "a"),
    "a circle of links back": ([V("a", "b", None, 1), V("b", "a", None, 2)], set(), "a"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_head(name: str) -> None:
    members, elsewhere, expected = CASES[name]
    assert head(members, elsewhere) == expected
    assert head(members[::-1], elsewhere) == expected


def test_the_order_in_which_versions_are_read_does_not_matter() -> None:
    """Two came after one, which says nothing of either."""
    branches = [V("a", None, None, 9), V("b", "a", None, 2), V("c", "a", None, 3), V("d", "b", None, 1)]
    assert {head(some) for some in permutations(branches)} == {"c"}
    assert len({tuple(chain("a", some)) for some in permutations(branches)}) == 1
    before = [V("a", None, "c", 1), V("b", None, "c", 2), V("c")]
    assert {tuple(chain("c", some)) for some in permutations(before)} == {("b", "c")}


_PIDS = st.sampled_from("abcde")


@given(
    st.lists(st.builds(V, _PIDS, st.none() | _PIDS, st.none() | _PIDS, st.integers(0, 3)), unique_by=lambda v: v.pid)
)
def test_no_links_are_too_strange(members: list[V]) -> None:
    assert (head(members) in {one.pid for one in members}) or not members
    for one in members:
        found = chain(one.pid, members)
        assert one.pid in found and len(found) == len(set(found))


def test_chains_from_either_side() -> None:
    links = [V("a", None, "b"), V("c", "b"), V("d", "c")]
    assert chain("c", links) == ["a", "b", "c", "d"]


def _claim(pid: str, said_by: str, since: int, **more: str) -> V:
    return V(pid, **{"node": "A", "said_by": said_by, "since": since, **more})  # type: ignore[arg-type]


CLAIMS: dict[str, tuple[list[V], str]] = {
    "none": ([], ""),
    "of its own node": ([_claim("a", "A", 1), _claim("b", "A", 2)], "ab"),
    "in the name of that node": ([_claim("a", "A", 1), _claim("b", "E", 2)], "a"),
    "in its own name": ([_claim("a", "A", 1), _claim("b", "E", 2, node="E")], "a"),
    "of whoever tells of it, while its node says nothing": ([_claim("a", "R", 1), _claim("b", "E", 2)], "a"),
    "and what that tells no longer counts then": ([_claim("a", "R", 1), _claim("b", "A", 2)], "b"),
    "of another node, by the word of the first": (
        [_claim("a", "A", 1, obsoleted_by="b"), _claim("b", "B", 2, node="B", obsoleted_by="c"), _claim("c", "B", 3)],
        "abc",
    ),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_who_belongs_to_a_series(name: str) -> None:
    claims, expected = CLAIMS[name]
    for some in (claims, claims[::-1]):
        assert "".join(sorted(one.pid for one in members(some))) == expected


def test_a_chain_does_not_lead_to_what_another_node_puts_there() -> None:
    mine, theirs = V("a", None, "x", node="A", said_by="A"), V("e", "a", node="A", said_by="E")
    behind = V("f", "x", node="E", said_by="E")
    assert chain("a", [mine, theirs, behind]) == ["a", "x"]
    assert chain("e", [mine, theirs]) == ["a", "e"], "as it says itself"
