"""Selectors: what they match, against the same expression evaluated by Python; and where they are wrong."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.base.errors import BadInput
from skep.tasks.selector import FACTS, Facts, parse

words = st.sampled_from(["linux", "gcc", "x", "", "slow", "a b", "src_1"])
numbers = st.sampled_from(["0", "1", "4", "2.5", "1KB", "1KiB", "50%", "3MB", "2GiB"])
WORTH = {"1KB": 1000, "1KiB": 1024, "50%": 0.5, "3MB": 3_000_000, "2GiB": 2 << 30}
facts_of = st.fixed_dictionaries(
    {},
    optional={
        name: {
            "text": words,
            "number": st.sampled_from([0.0, 0.5, 1.0, 1024.0, 4.0, 3e6]),
            "list": st.frozensets(words),
        }[kind]
        for name, kind in FACTS.items()
    },
)


@st.composite
def comparisons(draw: st.DrawFn) -> tuple[str, str]:
    """A selector, and Python for the same."""
    name = draw(st.sampled_from(sorted(FACTS)))
    word = draw(words)
    if FACTS[name] == "list":
        return f'{name} has "{word}"', f"({word!r} in f.get({name!r}, ()))"
    if FACTS[name] == "text":
        op = draw(st.sampled_from(["==", "!="]))
        return f"{name} {op} '{word}'", f"(f.get({name!r}, '') {op} {word!r})"
    op, number = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">="])), draw(numbers)
    return f"{name}{op}{number}", f"(f.get({name!r}, 0.0) {op} {WORTH.get(number, number)})"


def joined(inner: st.SearchStrategy[tuple[str, str]]) -> st.SearchStrategy[tuple[str, str]]:
    both = st.tuples(inner, st.sampled_from(["and", "or"]), inner)
    return st.one_of(
        both.map(lambda p: (f"{p[0][0]} {p[1]} {p[2][0]}", f"{p[0][1]} {p[1]} {p[2][1]}")),
        inner.map(lambda p: (f"( {p[0]})", f"({p[1]})")),
        inner.map(lambda p: (f"not ({p[0]})", f"(not ({p[1]}))")),
    )


@given(st.recursive(comparisons(), joined, max_leaves=8), facts_of)
def test_a_selector_means_what_python_says(pair: tuple[str, str], facts: Facts) -> None:
    text, python = pair
    assert parse(text).matches(facts) == bool(eval(python, {"f": facts}))


@given(st.text(max_size=40) | st.text("()<>=! andorthasosabel\"'4KMB.%", max_size=40))
def test_any_text_is_a_selector_or_bad_input(text: str) -> None:
    try:
        parse(text).matches({})
    except BadInput as error:
        assert error.message


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("os = 'linux'", 4),
        ("colour == 'red'", 1),
        ("os == ", 6),
        ("os == 4", 7),
        ("cpu == 'x'", 8),
        ("os < 'x'", 4),
        ("tools == 'gcc'", 7),
        ("tools has 4", 7),
        ("cpu has 'x'", 5),
        ("cpu > 4 cpu", 9),
        ("(cpu > 4", 9),
        ("cpu > 4)", 8),
        ("cpu > 4 and", 12),
        ("and", 1),
        ("os == 'linux", 7),
        ("cpu > 4XB", 7),
        ("  ~", 3),
    ],
)
def test_errors_point_at_their_place(text: str, column: int) -> None:
    with pytest.raises(BadInput) as error:
        parse(text)
    assert error.value.column == column, error.value.message


def test_bounds() -> None:
    with pytest.raises(BadInput, match="nested too deeply"):
        parse("(" * 400 + "cpu > 1" + ")" * 400)
    with pytest.raises(BadInput, match="characters"):
        parse("cpu > 1 or " * 1000 + "cpu > 1")


def test_what_is_asked_of_holdings_is_known() -> None:
    assert parse("holds has 'src_1' or not holds has 'mine'").held == {"src_1", "mine"}
    everything: dict[str, Any] = {}
    assert parse("  ").matches(everything)
