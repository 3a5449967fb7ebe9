"""What is offered while a query is written."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.search.completion import complete, writing

SOURCES = ["github.com/org/linux", "example.org/a/linux-tools", "example.org/with space", "local/x"]
LANGUAGES = ["C", "C++", "Common Lisp", "Python"]
BRANCHES = ["main", "v1.2"]


def offered(text: str, cursor: int | None = None) -> list[str]:
    """Each offer put into the text."""
    at = len(text) if cursor is None else cursor
    found = complete(text, at, SOURCES, LANGUAGES, BRANCHES)
    return [text[: one.start] + one.text + text[one.end :] for one in found]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("re", ["repo:"]),
        ("c", ["content:", "case:", "count:", "commit:"]),
        ("foo -fi", ["foo -file:"]),
        ("(a or la", ["(a or lang:"]),
        ("repo:linux", ["repo:github.com/org/linux ", "repo:example.org/a/linux-tools "]),
        ("r:LOCAL", ["r:local/x "]),
        ("x -repo:space", ['x -repo:"example.org/with space" ']),
        ("lang:c", ["lang:C ", "lang:C++ ", 'lang:"Common Lisp" ']),
        ("l:py", ["l:Python "]),
        ('lang:"com', ['lang:"Common Lisp" ']),
        ("branch:", ["branch:main ", "branch:v1.2 "]),
        ("case:", ["case:no ", "case:yes ", "case:auto "]),
        ("af", ["after:"]),
        ("type:com", ["type:commit "]),
        ("type:re", ["type:repo ", "type:record ", "type:report "]),
        ("count:a", ["count:all "]),
        ('"a re', []),
        ("std::ve", []),
        ("sym:ma", []),
        ("zzz", []),
    ],
)
def test_offers(text: str, wanted: list[str]) -> None:
    assert offered(text) == wanted


def test_everything_is_offered_where_nothing_stands() -> None:
    assert offered("")[:2] == ["repo:", "file:"]
    assert len(offered("foo ")) == len(offered(""))


def test_a_word_in_the_middle_is_replaced_whole() -> None:
    assert offered("x lang:py y", 9) == ["x lang:Python  y"]
    assert offered("repo:loca)", 7)[0] == "repo:local/x )"


@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.text(alphabet='ab "-:(/\\repolang)\n', max_size=30), st.integers(-2, 40))
def test_any_text_can_be_completed(text: str, cursor: int) -> None:
    at = writing(text, cursor)
    assert 0 <= at.start <= at.end <= len(text)
    offered(text, cursor)
