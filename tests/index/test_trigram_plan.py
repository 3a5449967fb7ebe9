"""The planner may only rule out what cannot match: whatever RE2 finds, the plan lets through."""

import string
from pathlib import Path

import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.base.errors import BadQuery
from skep.storage.code_index.base import compile_term
from skep.storage.code_index.model import Term
from skep.storage.code_index.trigram import matchers as patterned
from skep.storage.code_index.trigram.matchers import Finder, Matches, Pattern, finder
from skep.storage.code_index.trigram.query_plan import FOLD, All, Distinct, Grams, Pair, Plan, plan
from skep.storage.code_index.trigram.regex import NotUnderstood, parse

LETTERS = "aAbksKSéÉſ\u212aıİßω日🙂\u0085\u2028 _-.0\t\r"
CLASSES = ["[a-k]", "[^a]", "[ks]", "[^ks]", "[é-ω]", "[[:upper:]]", "[[:^lower:]]", "[^[:alpha:]]", "[\\W_]", "[^\\D]"]
CLASSES += [
    "\\w",
    "\\W",
    "\\d",
    "\\s",
    "\\S",
    "\\pL",
    "\\PL",
    "\\p{Greek}",
    "[\\pL]",
    "[^\\pL]",
    ".",
    "\\x{212a}",
    "\\C",
]
CLASSES += [
    "[]a]",
    "[^]a]",
    "[a\\]]",
    "[\\x61-\\x{7a}]",
    "[a-a]",
    "\\Qk.s\\E",
    "\\141",
    "\\t",
    "[\\n]",
    "[^\\n]",
    "\\n",
]
EDGES = ["^", "$", "\\b", "\\B", "\\A", "\\z"]


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeat = st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "{0}", "{3,4}"])
    group = st.sampled_from(["(", "(?:", "(?i:", "(?-i:", "(?P<n>", "(?s)(?:", "(?-m:", "(?im:"])
    return st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(group, inner).map(lambda pair: f"{pair[0]}{pair[1]})"),
        st.tuples(group, inner, repeat).map(lambda three: f"{three[0]}{three[1]}){three[2]}"),
        inner.map(lambda text: f"(?i){text}"),
    )


atoms = st.one_of(
    st.sampled_from(LETTERS).map(re2.escape), st.sampled_from(CLASSES), st.sampled_from(EDGES), st.just("kisska")
)
patterns = st.recursive(atoms, _grow, max_leaves=8)
texts = st.text(alphabet=LETTERS + "kisska", max_size=30)


def allows(need: Plan | None, keys: set[int]) -> bool:
    if need is None:
        return True
    if isinstance(need, Grams):
        return keys.issuperset(need.keys.tolist())
    if isinstance(need, Pair):
        return any(need.first <= key < need.first + 64 for key in keys)
    results = [allows(part, keys) for part in need.parts]
    return all(results) if isinstance(need, All) else any(results)


def keys_of(text: bytes) -> set[int]:

    return set(Distinct().keys(text).tolist())


@settings(max_examples=600, deadline=None, derandomize=True)
@given(patterns, texts, st.booleans())
def test_whatever_matches_is_a_candidate(pattern: str, text: str, case: bool) -> None:
    term = Term("content", pattern, True, case)
    try:
        regex = compile_term(term)
    except BadQuery:
        return
    content = text.encode() + b"\n"
    if any(regex.search(line) for line in content[:-1].split(b"\n")):
        assert allows(finder(term).plan, keys_of(content))


def test_of_a_long_pattern_not_everything_is_looked_up() -> None:
    need = finder(Term("content", "(a|b)" * 1500 + ".*needle", True, True)).plan
    assert isinstance(need, All)
    assert len(need.parts) < 20
    assert isinstance(need.parts[0], Grams), "what has no alternatives says most"


def lines_of(finder: Finder, text: bytes) -> list[bytes]:
    """The first line stands apart, as it does when it is not the beginning of what was read."""
    apart = b"\n" + text
    found = Matches([], [], [])
    finder.find(apart, [(1, len(apart))], lambda: None, found)
    for start, end, line in zip(found.starts, found.ends, found.lines, strict=True):
        assert start <= end <= line
        assert b"\n" not in apart[start:line]
    return [apart[apart.rfind(b"\n", 0, line) + 1 : line] for line in found.lines]


@settings(max_examples=400, deadline=None, derandomize=True)
@given(patterns, st.lists(texts | st.binary(max_size=8), max_size=5), st.booleans(), st.booleans())
def test_every_way_finds_the_lines_that_match(pattern: str, lines: list[str | bytes], case: bool, quick: bool) -> None:
    term = Term("content", pattern, True, case)
    try:
        regex = compile_term(term)
    except BadQuery:
        return
    raw = [line.encode() if isinstance(line, str) else line for line in lines]
    text = b"".join(line + b"\n" for line in raw)
    worth, patterned._WORTH = patterned._WORTH, -1 if quick else 1 << 30
    try:
        found = lines_of(Pattern(term), text)
    finally:
        patterned._WORTH = worth
    assert found == [line for line in text.split(b"\n")[:-1] if regex.search(line)]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(alphabet=LETTERS, min_size=1, max_size=8), texts, texts, st.booleans())
def test_literals(needle: str, before: str, after: str, case: bool) -> None:
    term = Term("content", needle, False, case)
    text = f"{before}{needle.swapcase() if not case and needle.isascii() else needle}{after}\n".encode()
    assert allows(finder(term).plan, keys_of(text))
    assert lines_of(finder(term), text)


def test_plans_are_worth_something() -> None:
    """Sound is easy when nothing is ever ruled out: these must need trigrams."""
    for pattern in [
        "foobar",
        "foo.*bar",
        "(foo|bar)baz",
        "foo[0-9]bar",
        "^static int \\w+",
        "(?i)mississippi",
        "x(abc)+",
        "fo",
        "0x[0-9a-f]{8}ULL",
    ]:
        assert plan(parse(pattern, ignore_case=False).node) is not None, pattern
    for pattern in ["a.b", "(foo)?", "foo|b", ".*", "[a-z]{5}"]:
        assert plan(parse(pattern, ignore_case=False).node) is None, pattern


@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.text(alphabet=string.punctuation + "abkx12QEpPzAC", max_size=12))
def test_the_parser_never_breaks(pattern: str) -> None:
    try:
        compile_term(Term("content", pattern, True, True))
    except BadQuery:
        return
    try:
        parse(pattern, ignore_case=True)
    except NotUnderstood:
        return


def test_a_catastrophic_pattern_is_linear(tmp_path: Path) -> None:
    text = b"a" * 200_000 + b"\n"
    for pattern in ["(a+)+$x", "(a|aa)+b", "(.*)*(.*)*b", "(a*)*(b*)*c", "(?:a?){50}a{50}b"]:
        assert not lines_of(finder(Term("content", pattern, True, True)), text)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.binary(max_size=60), max_size=6), st.sampled_from([1, 700, 20_000]))
def test_the_keys_of_a_document_short_or_long_are_all_and_distinct(texts: list[bytes], times: int) -> None:
    distinct = Distinct()
    for text in (text * times for text in texts):  # one after the other: nothing is left of the one before
        folded = text.translate(FOLD)
        wanted = {folded[n] << 12 | folded[n + 1] << 6 | folded[n + 2] for n in range(min(len(text), 4_000) - 2)}
        found = distinct.keys(text).tolist()
        assert len(found) == len(set(found))
        assert set(found) == wanted
