"""What is offered while a query is written."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.analysis.service import NAMES
from skep.search.completion import complete, narrowed, writing
from skep.search.query import Kind

SOURCES = ["github.com/org/linux", "example.org/a/linux-tools", "example.org/with space", "local/x", "local/a+b"]
LANGUAGES = ["C", "C++", "Common Lisp", "Python"]
BRANCHES = ["main", "v1.2"]
FIELDS: dict[Kind, dict[str, str]] = {"report": NAMES, "record": {"beginDate": ""}}


def offered(text: str, cursor: int | None = None) -> list[str]:
    """Each offer put into the text."""
    at = len(text) if cursor is None else cursor
    found = complete(text, at, SOURCES, LANGUAGES, BRANCHES, FIELDS)
    return [text[: one.start] + one.text + text[one.end :] for one in found]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("re", ["repo:"]),
        ("c", ["content:", "case:", "count:", "commit:"]),
        ("foo -fi", ["foo -file:"]),
        ("(a or la", ["(a or lang:"]),
        ("repo:linux", [r"repo:^github\.com/org/linux$ ", r"repo:^example\.org/a/linux-tools$ "]),
        (r"repo:^github\.com/o", [r"repo:^github\.com/org/linux$ "]),
        ("r:LOCAL/X", ["r:^local/x$ "]),
        (r"repo:\^github\\.com/o", [r"repo:^github\.com/org/linux$ "]),  # as a shell has it
        ('repo:"a+', [r"repo:^local/a\+b$ "]),
        ("x -repo:space", [r"x -repo:^example\.org/with\ space$ "]),
        ("lang:c", ["lang:C ", "lang:C++ ", 'lang:"Common Lisp" ']),
        ("l:py", ["l:Python "]),
        ('lang:"com', ['lang:"Common Lisp" ']),
        ("branch:", ["branch:^main$ ", r"branch:^v1\.2$ "]),
        ("case:", ["case:no ", "case:yes ", "case:auto "]),
        ("af", ["after:"]),
        ("type:com", ["type:commit "]),
        ("type:re", ["type:repo ", "type:record ", "type:report "]),
        ("count:a", ["count:all "]),
        ('"a re', []),
        ("std::ve", []),
        ("sym:ma", []),
        ("zzz", []),
        ("type:report l", ["type:report lang:", "type:report licence:", "type:report lines:"]),
        ("t:report lang:py", ["t:report lang:Python "]),
        ("type:report repo:l", []),
        ("type:report ty", []),
        ("type:record ", ["type:record beginDate:"]),
        ("type:record lang:", []),
        ("type:commit l", []),
        ("type:commit a", ["type:commit author:", "type:commit after:"]),
        ('"type:report" la', ['"type:report" lang:']),
    ],
)
def test_offers(text: str, wanted: list[str]) -> None:
    assert offered(text) == wanted


def test_everything_is_offered_where_nothing_stands() -> None:
    assert offered("")[:2] == ["repo:", "file:"]
    assert len(offered("foo ")) == len(offered(""))


def test_a_word_in_the_middle_is_replaced_whole() -> None:
    assert offered("x lang:py y", 9) == ["x lang:Python  y"]
    assert offered("c type:report", 1) == ["complexity: type:report"]
    assert offered("repo:local)", 7)[0] == "repo:^local/x$ )"


@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.text(alphabet='ab "-:(/\\repolang)\n', max_size=30), st.integers(-2, 40))
def test_any_text_can_be_completed(text: str, cursor: int) -> None:
    at = writing(text, cursor)
    assert 0 <= at.start <= at.end <= len(text)
    offered(text, cursor)


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("a", "a lang:C++"),
        ("a or b", "(a or b) lang:C++"),
        ("a b or c", "(a b or c) lang:C++"),
        ("a (b or c)", "a (b or c) lang:C++"),
        ("(a or b)", "(a or b) lang:C++"),
        ('"a or b"', '"a or b" lang:C++'),
        ("type:file a or b", "(type:file a or b) lang:C++"),
    ],
)
def test_a_query_is_narrowed_as_a_whole(query: str, wanted: str) -> None:
    assert narrowed(query, "lang", "C++") == wanted
    assert narrowed(query, "repo", "local/a+b") == wanted.replace("lang:C++", r"repo:^local/a\+b$")
    assert narrowed(query, "lang", "Common Lisp") == wanted.replace("C++", '"Common Lisp"')


def test_a_query_that_is_as_long_as_can_be_is_narrowed_too() -> None:
    assert narrowed("x" * 10_000, "lang", "C").endswith("x lang:C")
