"""Pages neither repeat nor pass over a file, whatever becomes of the others in between."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.errors import BadInput
from skep.model.search import FileHit, Line
from skep.search.paging import MOST_SHOWN, Shown, first_page, size


def hit(path: str, lines: int = 1, source: int = 1) -> FileHit:
    return FileHit(source, path, "", tuple(Line(n, 1, "x", ()) for n in range(1, lines + 1)))


def test_a_page_ends_with_a_whole_file() -> None:
    hits = [hit("a", 3), hit("b", 2), hit("c", 1)]
    assert first_page(hits, 4) == hits[:1]
    assert first_page(hits, 5) == hits[:2]
    assert first_page(hits, 3) == hits[:1]
    assert first_page([hit("name", 0), hit("a", 1)], 1) == [hit("name", 0)]
    assert first_page([], 5) == []


@pytest.mark.parametrize("token", ["x", "????", "AAAA", "é", "A" * 100_000])
def test_a_token_of_somebody_else_is_refused(token: str) -> None:
    with pytest.raises(BadInput, match="page token"):
        Shown.read(token)


def test_a_token_says_what_was_shown() -> None:
    shown = Shown().with_page([hit("a", 3), hit("b", 0)])
    assert Shown.read(shown.token()) == shown
    assert shown.lines == 4
    assert shown.rest([hit("b"), hit("a", source=2), hit("c")]) == [hit("a", source=2), hit("c")]
    assert len(Shown().with_page([hit(str(n)) for n in range(MOST_SHOWN)]).token()) < 8200


files = st.dictionaries(st.sampled_from("abcdefghij"), st.integers(0, 3))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(files, st.lists(files, max_size=12), st.integers(3, 6), st.randoms(use_true_random=False))
def test_what_stays_comes_once(always: dict[str, int], others: list[dict[str, int]], lines: int, order: object) -> None:
    shown, seen = Shown(), list[str]()
    for other in [*others, {}, {}, {}, {}, {}]:
        names = sorted({**{f"other-{name}": n for name, n in other.items()}, **always}.items())
        order.shuffle(names)  # type: ignore[attr-defined]
        page = first_page(shown.rest([hit(*one) for one in names]), lines)
        assert size(page) <= lines
        seen += [one.path for one in page]
        shown = Shown.read(shown.with_page(page).token())
    for _ in always:
        page = first_page(shown.rest([hit(*one) for one in always.items()]), lines)
        seen += [one.path for one in page]
        shown = shown.with_page(page)
    assert sorted(name for name in seen if name in always) == sorted(always)
