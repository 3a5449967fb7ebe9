"""Files and queries that nobody would write by hand: bounded, correct, or clearly refused."""

import pytest

from skep.base.errors import BadQuery
from skep.search.query import parse
from skep.storage.code_index.model import Limits, Or, Term
from skep.storage.code_index.trigram.matchers import finder
from skep.storage.code_index.trigram.searcher import TrigramSearcher
from tests.index.conftest import VISIBLE, Adopt, find, places


def content(pattern: str, regex: bool = False, case: bool = True) -> Term:
    return Term("content", pattern, regex, case)


@pytest.mark.usefixtures("engine")
async def test_a_minified_file(searcher: TrigramSearcher, adopt: Adopt) -> None:
    """One line of five megabytes: found, cut around the match, and not copied for each match."""
    await adopt({b"min.js": b"var a=1;" * 650_000 + b"needle()" + b";b();" * 10_000})
    for term in (content("needle"), content("NEEDLE", case=False), content("n[e]+dle", regex=True)):
        (hit,) = await find(searcher, term)
        (line,) = hit.lines
        assert (line.number, line.column) == (1, 8 * 650_000 + 1)
        assert len(line.text) < 500


@pytest.mark.usefixtures("engine")
async def test_of_a_line_too_long_for_a_pattern_nothing_is_claimed(searcher: TrigramSearcher, adopt: Adopt) -> None:
    """A large pattern is matched against its beginning only, and the answer says so."""
    await adopt({b"min.js": b"ab" * 500_000 + b"1needle\n", b"short": b"ab1needle\n"})
    for pattern, whole in (("b[0-9]needle", True), ("b\\PL(?:[^a-y]?x){0,200}needle", False)):
        hits = searcher.search(content(pattern, regex=True), VISIBLE, Limits())
        found = {hit.path async for hit in hits}
        assert (found == {"min.js", "short"}, hits.partial, hits.counted.exact) == (whole, not whole, whole)


@pytest.mark.usefixtures("engine")
async def test_a_text_of_any_length_is_found(searcher: TrigramSearcher, adopt: Adopt) -> None:
    """However much was read before: it needs no pattern, by which a long line would be matched in part only."""
    await adopt({b"long": b"x" * 30_000 + b"\n"})
    for case in (True, False):
        (hit,) = await find(searcher, content("x" * 9_999, case=case))
        assert [line.column for line in hit.lines] == [1]


def test_of_matches_at_every_character_few_are_looked_at() -> None:
    """Of a line of megabytes, looking at all of them takes longer than a search may."""
    empty = finder(content("y*", regex=True))
    assert empty.spans(b"xxyyx") == [(0, 0), (2, 4)]
    assert empty.spans(b"x" * 100_000 + b"y") == [(0, 0)]


async def test_a_file_with_only_carriage_returns(searcher: TrigramSearcher, adopt: Adopt) -> None:
    await adopt({b"mac.txt": b"one\rtwo\rthree"})
    (hit,) = await find(searcher, content("two"))
    assert (hit.lines[0].number, hit.lines[0].column) == (1, 5)


async def test_names_with_newlines_and_no_unicode(searcher: TrigramSearcher, adopt: Adopt) -> None:
    await adopt({b"a\nb": b"word\n", b"\xff\xfe": b"word \xff\xfe\n", b"c": b"\x80word\n"})
    assert {hit.path for hit in await find(searcher, content("word"))} == {"a\nb", "\\xff\\xfe", "c"}
    assert [hit.path for hit in await find(searcher, Term("path", "^b$", True, True))] == ["a\nb"]
    assert [hit.path for hit in await find(searcher, content("\udcff\udcfe"))] == ["\\xff\\xfe"]


@pytest.mark.usefixtures("engine")
async def test_one_and_two_letters(searcher: TrigramSearcher, adopt: Adopt) -> None:
    await adopt({b"f": b"ab\nxb\nb\n", b"g": b"zz\n", b"h": b"a\nb\n", b"empty": b""})
    assert await places(searcher, content("ab")) == [("f", 1, 1)]
    assert await places(searcher, content("B", case=False)) == [("f", 1, 2), ("f", 2, 2), ("f", 3, 1), ("h", 2, 1)]
    assert await places(searcher, content("a$", regex=True)) == [("h", 1, 1)]
    assert [hit.path for hit in await find(searcher, Term("any", "em", False, True))] == ["empty"]


async def test_a_huge_file(searcher: TrigramSearcher, adopt: Adopt) -> None:
    """Forty megabytes; what is one line of a million like it is not looked at."""
    await adopt({b"big": b"all work and no play\n" * 2_000_000 + b"the end\n", b"small": b"the end\n"})
    assert {hit.path for hit in await find(searcher, content("the end"))} == {"big", "small"}
    hits = searcher.search(content("no play"), VISIBLE, Limits(lines=5, count=1000))
    assert [len(hit.lines) async for hit in hits] == [5]
    assert hits.counted.lines >= 1000
    assert not hits.counted.exact


def test_what_is_refused() -> None:
    with pytest.raises(BadQuery, match="at most"):
        parse("x" * 1_000_000)
    with pytest.raises(BadQuery, match="more than"):
        parse(" ".join(f"w{n}" for n in range(1500)))
    with pytest.raises(BadQuery):
        parse("/(a{1000}){1000}/")


async def test_many_terms(searcher: TrigramSearcher, adopt: Adopt) -> None:
    await adopt({b"f": b"".join(b"word%d\n" % n for n in range(300)), b"g": b"word7\n"})
    query = Or(tuple(content(f"word{n}") for n in range(150)))
    assert {hit.path: len(hit.lines) for hit in await find(searcher, query)} == {"f": 150 + 150, "g": 1}
