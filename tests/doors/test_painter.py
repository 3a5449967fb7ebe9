"""Code in colours, by a child that may be killed at any time."""

import re
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from skep.interfaces.web.highlighter import LARGEST, Painter, colour

_SPAN = re.compile(r'<span class="\w">|</span>')


@pytest.fixture
async def painter() -> AsyncIterator[Painter]:
    one = Painter(seconds=60.0)
    yield one
    await one.close()


async def test_colours_known_languages_line_by_line(painter: Painter) -> None:
    lines = await painter.lines("a/b.py", 'def f():\n    """two\n    lines"""\r\n    return "<b>"')
    assert len(lines) == 4
    assert lines[0] == '<span class="k">def</span> <span class="f">f</span>():'
    assert "&lt;b&gt;" in lines[3] and "<b>" not in lines[3]


@pytest.mark.parametrize(
    ("name", "text"),
    [("x.unknown", "a < b"), ("x.py", "x" * 6000 + "<"), ("big.py", "<\n" * LARGEST), ("x.py", "a\rb <"), ("", "<")],
)
async def test_what_is_not_coloured_is_plain_and_escaped(painter: Painter, name: str, text: str) -> None:
    lines = await painter.lines(name, text)
    assert [Markup(line).unescape() for line in lines] == text.split("\n")
    assert not any("<" in line for line in lines)


async def test_a_slow_child_is_killed_and_the_file_stays_plain() -> None:
    painter = Painter(seconds=0.0)
    assert await painter.lines("x.py", "def f(): pass") == ["def f(): pass"]
    assert await painter.lines("x.py", "def g(): pass") == ["def g(): pass"]
    await painter.close()


async def test_a_dead_child_is_replaced(painter: Painter) -> None:
    await painter.lines("x.py", "pass")
    assert painter._child is not None
    painter._child.kill()
    await painter._child.wait()
    assert 'class="k"' in (await painter.lines("x.py", "pass"))[0]


@given(
    st.sampled_from(["x.py", "x.c", "x.html", "x.md", "x.json", "Makefile"]),
    st.text("<>&'\"\n\tabc(){}#/*", max_size=60),
)
def test_colouring_changes_no_text(name: str, text: str) -> None:
    lines = colour(name, text)
    assert lines is not None
    assert "\n".join(Markup(_SPAN.sub("", line)).unescape() for line in lines) == text
