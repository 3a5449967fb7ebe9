"""Pages neither repeat nor pass over a file, whatever becomes of the others in between."""

from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from skep.base.errors import BadInput
from skep.search.hits import MOST_SHOWN, Shown, pieces, size
from skep.search.http import Searching
from skep.storage.code_index.model import FileHit, Line


def hit(path: str, lines: int = 1, source: int = 1) -> FileHit:
    return FileHit(source, path, "", tuple(Line(n, 1, "x", ()) for n in range(1, lines + 1)))


def first_page(hits: list[FileHit], lines: int) -> list[tuple[str, int, bool]]:
    return [(one.path, len(one.lines), one.more) for one in Shown().page(pieces(hits), lines)[0]]


def test_a_page_has_as_many_lines_as_it_may() -> None:
    hits = [hit("a", 3), hit("b", 2), hit("c", 1)]
    assert first_page(hits, 3) == [("a", 3, False)]
    assert first_page(hits, 4) == [("a", 3, False), ("b", 1, True)]
    assert first_page(hits, 9) == [("a", 3, False), ("b", 2, False), ("c", 1, False)]
    assert first_page([hit("name", 0), hit("a", 1)], 1) == [("name", 0, False)]
    assert first_page([], 5) == []


@pytest.mark.parametrize("token", ["x", "????", "AAAA", "é", "A" * 100_000, "kwDEAJA"])
def test_a_token_of_somebody_else_is_refused(token: str) -> None:
    with pytest.raises(BadInput, match="page token"):
        Shown.read(token)


def test_a_token_says_what_was_shown() -> None:
    _, shown = Shown().page(pieces([hit("a", 3), hit("b", 0)]), 9)
    assert Shown.read(shown.token()) == shown
    assert shown.lines == 4
    assert shown.rest(pieces([hit("b"), hit("a", source=2), hit("c")])) == pieces([hit("a", source=2), hit("c")])
    _, full = Shown().page(pieces([hit(str(n)) for n in range(MOST_SHOWN)]), MOST_SHOWN)
    assert full.is_full
    assert len(full.token()) < 8200


def test_the_longest_token_can_be_given_back() -> None:
    """As many files as one can name, and of the last as many lines."""
    _, most = Shown().page(pieces([hit(str(n)) for n in range(MOST_SHOWN - 2)]), MOST_SHOWN - 2)
    numbers = tuple(range(1 << 20, (1 << 20) + MOST_SHOWN))
    token = replace(most, files=most.files + most.files[:6], begun=numbers, head=9999).token()
    assert msgspec.convert({"q": "x", "page": token}, Searching).page == token


files = st.dictionaries(st.sampled_from("abcdefghij"), st.integers(0, 3))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(files, st.lists(files, max_size=12), st.integers(1, 6), st.randoms(use_true_random=False))
def test_what_stays_comes_once(always: dict[str, int], others: list[dict[str, int]], lines: int, order: Random) -> None:
    shown, seen = Shown(), list[tuple[str, int]]()
    for other in [*others, *({} for _ in range(40))]:
        names = sorted({**{f"other-{name}": n for name, n in other.items()}, **always}.items())
        order.shuffle(names)
        page, then = shown.page(shown.rest(pieces([hit(*one) for one in names])), lines)
        assert size(page) <= lines
        seen += [(one.path, line.number) for one in page for line in one.lines]
        seen += [(one.path, 0) for one in page if not one.lines]
        shown = Shown.read(then.token())
    wanted = [(name, n) for name, lines in always.items() for n in (range(1, lines + 1) if lines else [0])]
    assert sorted(one for one in seen if one[0] in always) == sorted(wanted)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.dictionaries(st.sampled_from("abcdefghij"), st.integers(1, 9), min_size=1), st.integers(1, 6), st.integers(1, 4)
)
def test_heads_come_before_tails_and_all_of_both(sizes: dict[str, int], lines: int, most: int) -> None:
    whole = [hit(*one) for one in sorted(sizes.items())]
    heads = [replace(one, lines=one.lines[::-1][:most], more=len(one.lines) > most) for one in whole]
    shown, seen, firsts = Shown(), list[tuple[str, int]](), list[str]()
    while True:
        rest = shown.rest(pieces(heads)) + shown.rest(shown.tails(heads, whole))
        page, shown = shown.page(rest, lines, most)
        if not page:
            break
        shown = Shown.read(shown.token())
        seen += [(one.path, line.number) for one in page for line in one.lines]
        firsts += [one.path for one in page if one.path not in firsts]
        assert len(firsts) == len(sizes) or all(number > sizes[path] - most for path, number in seen)
    assert sorted(seen) == [(path, n) for path, lines in sorted(sizes.items()) for n in range(1, lines + 1)]


def test_a_tail_that_a_limit_of_lines_has_cut_waits_for_a_deeper_search() -> None:
    head, whole = replace(hit("a", 2), more=True), hit("a", 9)
    _, shown = Shown().page(pieces([head]), 5, 2)
    assert [len(tail.lines) for _, tail in shown.tails([head], [whole])] == [7]
    assert shown.tails([head], [replace(hit("a", 6), more=True)]) == []
