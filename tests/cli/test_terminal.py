from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.base.errors import BadInput
from skep.interfaces.terminal import Bar, ago, clean, table
from skep.status.cli import span

cells = st.lists(st.tuples(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60)), max_size=5)


@given(st.text())
def test_nothing_steers_the_terminal_and_places_stay(text: str) -> None:
    shown = clean(text)
    assert len(shown) == len(text)
    assert not any((ord(char) < 32 and char != "\t") or 0x7F <= ord(char) < 0xA0 for char in shown)
    assert not set(shown) & set("\u202e\u2066\u2028")


@given(cells, st.integers(40, 200))
def test_a_table_fits(rows: list[tuple[str, str, str]], room: int) -> None:
    lines = table(("A", "B", "C"), rows, room).split("\n")
    assert len(lines) == len(rows) + 1
    assert max(map(len, lines)) <= room


@pytest.mark.parametrize(
    ("then", "words"),
    [(None, "never"), (1000.0, "now"), (820.0, "3 min ago"), (1090.0, "in 1 min"), (-1e6, "11 d ago")],
)
def test_times_as_people_say_them(then: float | None, words: str) -> None:
    assert ago(then, 1000.0) == words


def test_a_bar_that_nobody_watches_says_each_stage_once() -> None:
    stream = StringIO()
    bar = Bar(stream)
    for done in range(3):
        bar.show("a", "clone", done, 3)
    bar.show("a", "index", 0, 0)
    bar.done()
    assert stream.getvalue() == "a: clone\na: index\n"


def test_a_bar_on_a_terminal_is_redrawn_in_place() -> None:
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

        def fileno(self) -> int:
            raise OSError("no real terminal")

    stream = Terminal()
    bar = Bar(stream)
    bar.show("a", "clone", 1, 2)
    assert stream.getvalue() == f"\r\x1b[Ka: clone [{'#' * 12}{'.' * 12}]  50%"


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("2m", 120), ("1h", 3600), ("2w", 1_209_600)])
def test_lengths_of_time(text: str, seconds: float) -> None:
    assert span(text) == seconds


@pytest.mark.parametrize("text", ["", "d", "0d", "-1d", "1.5h", "1y", "٣d"])
def test_lengths_of_time_that_are_none(text: str) -> None:
    with pytest.raises(BadInput):
        span(text)
