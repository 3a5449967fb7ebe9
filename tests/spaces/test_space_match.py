"""Which tuples a template matches, and what may be in either."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.base.errors import BadInput, TooLarge
from skep.spaces.api import Typed, template_of
from skep.spaces.batch import Pattern, head_of, packed, unpacked

fields = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
)
tuples = st.lists(fields, min_size=1, max_size=4).map(tuple)


def matches(template: tuple[Any, ...], it: tuple[Any, ...]) -> bool:
    return Pattern(template_of(template)).matches(it)


def test_types_are_exact() -> None:
    assert matches((1,), (1,))
    assert not matches((1,), (1.0,))
    assert not matches((1,), (True,))
    assert not matches((int,), (True,))
    assert not matches((float,), (1,))
    assert not matches((str,), (1,))
    assert matches((bool, int, float, str), (False, 0, 0.0, ""))
    assert matches((any, Any), ("x", 1.5))
    assert not matches((any,), ("x", 1.5))


@given(tuples)
def test_a_tuple_comes_back_as_it_was_and_matches_itself(it: tuple[Any, ...]) -> None:
    back = unpacked(packed(it))
    assert back == it
    assert [type(one) for one in back] == [type(one) for one in it]
    assert matches(it, back)
    assert matches(tuple(type(one) for one in it), back)
    assert matches((any,) * len(it), back)


@given(tuples, tuples)
def test_equal_means_equal_in_value_and_type(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    same = [(type(x), x) for x in one] == [(type(x), x) for x in other]
    assert matches(one, other) == same
    if same:
        assert head_of(one[0]) == head_of(other[0])


def test_minus_zero_is_found_as_zero() -> None:
    assert matches((0.0,), (-0.0,))
    assert head_of(0.0) == head_of(-0.0)


@pytest.mark.parametrize(
    "bad",
    [(), ("x",) * 65, (2**63,), (-(2**63) - 1,), (math.nan,), (math.inf,), (None,), (b"x",), ([1],), ("\ud800",)],
)
def test_what_is_no_tuple(bad: tuple[Any, ...]) -> None:
    with pytest.raises(BadInput):
        packed(bad)
    with pytest.raises(BadInput):
        Pattern(bad)


def test_bounds() -> None:
    packed(("x",) * 64)
    packed(("x" * ((1 << 20) - 10),))
    with pytest.raises(TooLarge):
        packed(("x" * (1 << 20),))
    with pytest.raises(BadInput, match="never a dict"):
        template_of((dict,))
    assert template_of((int, any)) == (Typed("int"), Typed("any"))
