"""How things look to people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.interfaces.web import render
from skep.storage.code_index.model import Line


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (None, "never"),
        (1000.0, "now"),
        (999.0, "1 s ago"),
        (940.0, "1 min ago"),
        (1120.0, "in 2 min"),
        (-90_000.0, "1 d ago"),
    ],
)
def test_ago(at: float | None, words: str) -> None:
    assert render.ago(at, 1000.0) == words


@pytest.mark.parametrize(("count", "words"), [(None, ""), (7, "7 B"), (1234, "1.2 KB"), (812_345_678, "812 MB")])
def test_size(count: int | None, words: str) -> None:
    assert render.size(count) == words


@given(st.text(max_size=40), st.lists(st.tuples(st.integers(-5, 50), st.integers(-5, 50)), max_size=6))
def test_parts_keep_the_text_whatever_the_ranges(text: str, ranges: list[tuple[int, int]]) -> None:
    pieces = render.parts(Line(1, 1, text, tuple(ranges)))
    assert "".join(piece for piece, _ in pieces) == text
    assert all(piece for piece, _ in pieces)


def test_parts_mark_the_matches() -> None:
    line = Line(1, 1, "one two one", ((0, 3), (8, 11)))
    assert render.parts(line) == [("one", True), (" two ", False), ("one", True)]


def test_url_path_keeps_slashes_and_odd_bytes() -> None:
    assert render.url_path("a b/#?%\udcff") == "a%20b/%23%3F%25%FF"


@pytest.mark.parametrize(
    ("column", "parts"), [(None, ("a(b", "", "")), (2, ("a", "(", "b")), (4, ("a(b", " ", "")), (9, ("a(b", " ", ""))]
)
def test_pointed(column: int | None, parts: tuple[str, str, str]) -> None:
    assert render.pointed("a(b", column) == parts


def test_the_readme_of_a_folder() -> None:
    assert render.readme(["main.py", "README", "readme.md"]) == "readme.md"
    assert render.readme(["main.py"]) is None
