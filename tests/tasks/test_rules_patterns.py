"""Patterns and times, against plain readings of what they mean."""

import fnmatch
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.base.cron import Cron
from skep.base.errors import BadInput
from skep.base.globs import compile_globs
from skep.rules.api import RuleSpec
from skep.rules.matching import Matcher, Told
from skep.sources.model import Source
from tests.tasks.rules_house import MAIN, NOOP, oid, rule


def matches(pattern: str, name: str) -> bool:
    return compile_globs([pattern], "paths").fullmatch(name) is not None


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.py", ["a.py", ".py"], ["a/b.py", "a.pyc", "a.py\n"]),
        ("**", ["", "a", "a/b\nc"], []),
        ("**/*.py", ["a.py", "a/b.py", "a/b/c.py"], ["a.pyc"]),
        ("src/**", ["src/", "src/a", "src/a/b"], ["src", "xsrc/a"]),
        ("src/**/t", ["src/t", "src/a/t", "src/a/b/t"], ["src/at", "srct"]),
        ("a**z", ["az", "abz", "a/b/z"], ["a"]),
        ("?", ["a", "ß", "\n"], ["", "/", "ab"]),
        ("[a-c]x", ["ax", "cx"], ["dx", "x"]),
        ("[!a-c]x", ["dx"], ["ax", "/x"]),
        ("[]]", ["]"], ["a"]),
        ("[!]]", ["a"], ["]"]),
        ("[[^\\]", ["[", "^", "\\"], ["a"]),
        ("a.b+(c)|d{1}$", ["a.b+(c)|d{1}$"], ["a.b", "d"]),
        ("\\*", ["\\x"], ["*"]),
    ],
)
def test_a_pattern_means(pattern: str, yes: list[str], no: list[str]) -> None:
    assert [name for name in yes if not matches(pattern, name)] == []
    assert [name for name in no if matches(pattern, name)] == []


@given(st.text("ab*?[]!-.", min_size=1, max_size=8), st.text("ab.-]!", max_size=6))
def test_within_one_part_it_is_the_shells(pattern: str, name: str) -> None:
    """Where there is no slash, a pattern means what fnmatch says, but for `[` that is never closed: we refuse it."""
    try:
        found = matches(pattern, name)
    except BadInput:
        assert "[" in pattern
        return
    if "[!" not in pattern and "-" not in pattern:  # empty and backward ranges are each reader's own affair
        assert found == fnmatch.fnmatchcase(name, pattern)


@pytest.mark.parametrize("pattern", ["[", "a[bc", "[!]", "[z-a]", "", "x" * 501])
def test_no_pattern(pattern: str) -> None:
    with pytest.raises(BadInput, match="pattern"):
        compile_globs([pattern], "paths")


def test_too_many_patterns() -> None:
    with pytest.raises(BadInput, match="101 patterns"):
        compile_globs(["a"] * 101, "refs")


def test_a_pattern_that_would_take_for_ever_elsewhere() -> None:
    assert not matches("*a" * 40 + "b", "a" * 5000)


SOURCE = Source("src_1", 1, "git", "example.org/a", "https://example.org/a", "current", default_branch="main")
ENTRIES = st.sampled_from(["HEAD", MAIN, "refs/heads/dev", "refs/tags/v1", "refs/pull/1/head"])
CHANGES = st.lists(
    st.builds(
        Told,
        st.just("src_1"),
        ENTRIES,
        st.sampled_from([None, oid(1)]),
        st.sampled_from([None, oid(2)]),
        st.just("bat_1"),
        st.booleans(),
        st.sampled_from(["public", "private"]),
    ),
    unique_by=lambda change: change.entry,
)
REFS = st.lists(st.sampled_from(["main", "dev", "*", "**", "refs/tags/*", "refs/**"]), max_size=3)


@given(CHANGES, REFS, st.booleans())
def test_candidates(changes: list[Told], refs: list[str], first: bool) -> None:
    found = Matcher(rule(refs=tuple(refs), first=first)).candidates(SOURCE, changes)
    fitting = {
        change.entry
        for change in changes
        if change.new
        and change.entry != "HEAD"
        and change.visibility == "public"
        and (first or not change.first)
        and (any(_fits(ref, change.entry) for ref in refs) if refs else change.entry == MAIN)
    }
    assert {one.ref for one in found} == fitting and len(found) == len(fitting)
    if MAIN in fitting:
        assert found[0].ref == MAIN


def _fits(ref: str, entry: str) -> bool:
    if ref in ("*", "**"):
        return entry.startswith("refs/heads/")
    if ref.startswith("refs/"):
        return entry.startswith(ref.rstrip("*"))
    return entry == f"refs/heads/{ref}"


@given(st.sets(st.sampled_from("abc")), st.sets(st.sampled_from("abc")))
def test_all_labels(wanted: set[str], has: set[str]) -> None:
    source = Source("src_1", 1, "git", "x/y", "u", "current", labels=tuple(has))
    assert Matcher(RuleSpec("r", NOOP, source="**", labels=tuple(wanted))).about(source) == (wanted <= has)


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("cron", "until", "newest"),
    [
        ("* * * * *", "2026-05-05 10:20:59", "2026-05-05 10:20"),
        ("*/15 * * * *", "2026-05-05 10:20", "2026-05-05 10:15"),
        ("0 3 * * mon-fri", "2026-05-03 12:00", "2026-05-01 03:00"),  # a Sunday
        ("0 3 * * 7", "2026-05-03 12:00", "2026-05-03 03:00"),
        ("30 23 31 dec *", "2026-05-03 12:00", "2025-12-31 23:30"),
        ("0 0 29 2 *", "2026-05-03 12:00", "2024-02-29 00:00"),
        ("5,10-12 1 * JAN,feb *", "2026-05-03 12:00", "2026-02-28 01:12"),
        ("10-40/10 8-18/5 * * *", "2026-05-03 18:50", "2026-05-03 18:40"),
        ("0 0 13 * fri", "2026-05-12 12:00", "2026-05-08 00:00"),  # either: a Friday that is no 13th
        ("0 0 13 * fri", "2026-05-14 12:00", "2026-05-13 00:00"),  # either: a 13th that is no Friday
        ("0 12 */2 * 1", "2026-05-12 13:00", "2026-05-11 12:00"),  # a star counts as not set: both
        ("59 23 * * *", "2026-03-01 00:00", "2026-02-28 23:59"),
    ],
)
def test_newest(cron: str, until: str, newest: str) -> None:
    assert Cron(cron).newest(0.0, at(until)) == at(newest)
    assert Cron(cron).newest(at(newest), at(until)) is None
    assert Cron(cron).newest(at(newest) - 1, at(until)) == at(newest)


MINUTE = st.sampled_from(["*", "0", "*/7", "5-50/15", "1,59"])
HOUR = st.sampled_from(["*", "0", "3-5", "*/6", "23"])
DAY = st.sampled_from(["*", "1", "15-17", "*/10", "31"])
MONTH = st.sampled_from(["*", "feb", "1-3", "*/5"])
WEEKDAY = st.sampled_from(["*", "0", "7", "mon-wed", "5,6"])
PARTS = st.tuples(MINUTE, HOUR, DAY, MONTH, WEEKDAY)


@given(PARTS, st.integers(0, 2 * 366 * 24 * 60), st.integers(0, 3 * 24 * 60))
def test_newest_against_minute_by_minute(parts: tuple[str, ...], start: int, span: int) -> None:
    try:
        cron = Cron(" ".join(parts))
    except BadInput as error:
        assert "never comes" in error.message and parts[2] == "31" and parts[3] == "feb"
        return
    until = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=start)
    minutes = (until - timedelta(minutes=n) for n in range(span))
    found = next((one.timestamp() for one in minutes if _due(parts, one)), None)
    assert cron.newest((until - timedelta(minutes=span)).timestamp(), until.timestamp() + 59.9) == found


def _due(parts: tuple[str, ...], when: datetime) -> bool:
    minute, hour, day, month, weekday = parts
    in_month, in_week = _in(day, when.day, 1), _in(weekday, when.isoweekday() % 7, 0)
    both_set = not day.startswith("*") and not weekday.startswith("*")
    days = in_month or in_week if both_set else in_month and in_week
    return days and _in(minute, when.minute, 0) and _in(hour, when.hour, 0) and _in(month, when.month, 1)


MEANT = {
    "5-50/15": {5, 20, 35, 50}, "1,59": {1, 59}, "3-5": {3, 4, 5}, "15-17": {15, 16, 17}, "feb": {2}, "1-3": {1, 2, 3},
    "mon-wed": {1, 2, 3}, "5,6": {5, 6}, "7": {0}, "0": {0}, "1": {1}, "23": {23}, "31": {31},
}  # fmt: skip


def _in(word: str, value: int, low: int) -> bool:
    if word.startswith("*"):
        return (value - low) % int(word[2:] or 1) == 0
    return value in MEANT[word]


@pytest.mark.parametrize(
    ("cron", "wrong"),
    [
        ("* * * *", "4 fields"),
        ("", "0 fields"),
        ("@daily", "1 fields"),
        ("60 * * * *", "minute '60': 60 is not between 0 and 59"),
        ("* 24 * * *", "hour '24'"),
        ("* * 0 * *", "day of the month '0'"),
        ("* * * foo *", "month 'foo': 'foo' is no number"),
        ("* * * * 8", "day of the week '8'"),
        ("*/0 * * * *", "'0' is no step"),
        ("*/ * * * *", "'' is no step"),
        ("5-1 * * * *", "it runs backwards"),
        ("1- * * * *", "'' is no number"),
        (", * * * *", "'' is no number"),
        ("-1 * * * *", "'' is no number"),
        ("\u0661 * * * *", "is no number"),
        ("0 0 31 2 *", "never comes"),
        ("0 0 30 feb,2 *", "never comes"),
    ],
)
def test_no_time(cron: str, wrong: str) -> None:
    with pytest.raises(BadInput) as error:
        Cron(cron)
    assert wrong in error.value.message


@given(st.text("*/-, 0123456789abmonjuSL#?", max_size=20))
def test_any_text_is_a_time_or_bad_input(text: str) -> None:
    try:
        Cron(text)
    except BadInput as error:
        assert "cron" in error.message
