"""Every Records engine: what is found, counted and shown."""

import typing
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.base.errors import BadInput, BadQuery, Busy, NotFound
from skep.processes.engines import find
from skep.storage.records.base import Ask, Field, Kind, OneOf, Record, Records
from skep.storage.records.query import All, Any, Not, Range, Tree, Whole, Words, parse

PAPERS = Kind(
    "papers",
    (
        Field("title", "text"),
        Field("abstract", "text", stored=False),
        Field("author", "keyword", many=True, faceted=True),
        Field("words", "int", faceted=True),
        Field("north", "float"),
        Field("date", "date"),
        Field("open", "bool", faceted=True),
        Field("source", "int"),
    ),
    ("title", "abstract"),
)
DAY = 86400.0
RECORDS = [
    Record("a", {"title": "Ice cores of Greenland", "author": ["J. Doe", "A. Roe"], "date": 978307200.0, "source": 1}),
    Record("b", {"title": "Snow", "abstract": "No ice at all", "author": ["J. Doe"], "words": 7, "source": 1}),
    Record("c", {"title": "Éclairs à la crème", "open": True, "words": 7, "north": -1.5, "source": 2}),
    Record("d", {"title": "get_user_name", "open": False, "words": -3, "north": 60.25, "source": 3}),
    Record("e", {"title": "Core of ice", "date": -5e10, "author": [], "source": 3}),
]


@pytest.fixture
def url() -> str:
    return "file:"


@pytest.fixture
async def records(url: str, tmp_path: Path) -> AsyncIterator[Records]:
    opened: Records = await find("records", url)(url, data=tmp_path)
    assert await opened.declare(PAPERS)
    yield opened
    await opened.close()


async def ids(records: Records, text: str, **more: object) -> list[str]:
    page = await records.search("papers", Ask(text, **{"seconds": 60.0, **more}))  # type: ignore[arg-type]
    found = [record.id for record in page.records]
    return found if "sort" in more else sorted(found)


FOUND: list[tuple[str, str]] = [
    ("", "abcde"),
    ("ice", "abe"),
    ("ICE core", "e"),
    ("core*", "ae"),
    ('"ice core*"', ""),
    ('"ice cores"', "a"),
    ("title:ice", "ae"),
    ("ice -title:ice", "b"),
    ("snow or cores", "ab"),
    ("title:(snow OR core)", "be"),
    ("NOT ice", "cd"),
    ("-(ice or snow) AND -open:true", "d"),
    ('author:"J. Doe"', "ab"),
    ("author:J.*", "ab"),
    ("author:doe", ""),
    ("author:*", "ab"),
    ("-author:*", "cde"),
    ("title:*", "abcde"),
    ("words:7", "bc"),
    ("words:[-3 TO 6]", "d"),
    ("words:{-3 TO 7}", ""),
    ("words:{-3 TO 7]", "bc"),
    ("words:[0 TO *]", "bc"),
    ("words:[* TO *]", "bcd"),
    ("words:[8 TO 3]", ""),
    ("north:-1.5", "c"),
    ("north:[-2 TO 60.25]", "cd"),
    ("north:[-2 TO 60.25}", "c"),
    ("date:2001", "a"),
    ("date:2001-01", "a"),
    ("date:2001-01-01", "a"),
    ("date:[2001-01-01T00:00:00Z TO 2005]", "a"),
    ("date:{2001 TO 2005]", ""),
    ("date:[* TO 1999]", "e"),
    ("open:true", "c"),
    ("open:no", "d"),
    ("id:d", "d"),
    ("eclairs creme", "c"),
    ("title:SN?W", "b"),
    ("?ce c?re", "e"),
    ("title:cr?m*", "c"),
    ("title:sn?ow", ""),
    ("author:?.\\ Do?", "ab"),
    ("author:J.\\ *", "ab"),
    ("author:J.\\ D\\?e", ""),
    ("user_name", "d"),
    ("user", "d"),
    ("name_user", ""),
    ("nothing_of_this", ""),
]


async def test_what_a_query_finds(records: Records, subtests: pytest.Subtests) -> None:
    await records.put("papers", RECORDS)
    for text, expected in FOUND:
        with subtests.test(ascii((text, expected))[:200]):
            assert await ids(records, text) == list(expected)


async def test_hits_are_what_was_put(records: Records) -> None:
    await records.put("papers", RECORDS)
    (found,) = (await records.search("papers", Ask("greenland"))).records
    assert (found.id, found.values) == ("a", RECORDS[0].values)
    assert found.score > 0
    (found,) = (await records.search("papers", Ask("snow"))).records
    assert "abstract" not in found.values


async def test_sorting_and_leafing(records: Records) -> None:
    await records.put("papers", RECORDS)
    assert (await ids(records, "", sort="words"))[:3] == ["d", "b", "c"]
    assert (await ids(records, "", sort="-words"))[:3] == ["b", "c", "d"]
    assert (await ids(records, "", sort="-date"))[:2] == ["a", "e"]
    assert await ids(records, "", sort="-id") == list("edcba")
    assert await ids(records, "", sort="id", start=1, limit=2) == ["b", "c"]
    assert await ids(records, "", sort="-words,north") == list("cbdae")
    assert await ids(records, "", sort="words,-id") == list("dcbea")
    assert await ids(records, "", sort="open,-north,id", start=1, limit=3) == ["c", "a", "b"]
    assert await ids(records, "", sort="words,id", start=5) == []
    page = await records.search("papers", Ask(limit=0))
    assert (page.records, page.total) == ([], 5)
    for bad in (
        Ask(sort="title"),
        Ask(sort="author"),
        Ask(sort="id,nope"),
        Ask(sort="nope"),
        Ask(start=-1),
        Ask(limit=1001),
        Ask(start=9999, limit=2),
    ):
        with pytest.raises(BadInput):
            await records.search("papers", bad)


async def test_facets_count_what_the_caller_may_see(records: Records) -> None:
    await records.put("papers", RECORDS)
    everything = await records.search("papers", Ask(facets=("author", "words", "open")))
    assert everything.facets == {
        "author": [("J. Doe", 2), ("A. Roe", 1)],
        "words": [(7, 2), (-3, 1)],
        "open": [(False, 1), (True, 1)],
    } or everything.facets["open"] == [(True, 1), (False, 1)]
    some = await records.search("papers", Ask("ice or snow", (OneOf("source", (2, 1)),), ("author", "words")))
    assert (some.total, [record.id for record in some.records if record.id not in "ab"]) == (2, [])
    assert some.facets == {"author": [("J. Doe", 2), ("A. Roe", 1)], "words": [(7, 1)]}
    both = Ask("", (OneOf("source", (1,)), OneOf("author", ("A. Roe",))))
    assert [record.id for record in (await records.search("papers", both)).records] == ["a"]
    none = await records.search("papers", Ask("", (OneOf("source", ()),), ("words",)))
    assert (none.total, none.facets["words"]) == (0, [])
    with pytest.raises(BadInput, match="counted"):
        await records.search("papers", Ask(facets=("title",)))
    with pytest.raises(BadInput, match="no field"):
        await records.search("papers", Ask(only=(OneOf("nope", ("x",)),)))


async def test_visibility_does_not_change_the_order(records: Records) -> None:
    await records.put("papers", [Record(f"r{n}", {"title": "ice " * n, "source": n % 2}) for n in range(1, 9)])
    everyone = [record.id for record in (await records.search("papers", Ask("ice"))).records]
    odd = (await records.search("papers", Ask("ice", (OneOf("source", (1,)),)))).records
    assert [record.id for record in odd] == [id for id in everyone if int(id[1:]) % 2]


async def test_values_at_their_edges(records: Records) -> None:
    """What a server would refuse or cut: long ids, keywords and words, the largest numbers, many of one choice."""
    long, last = "x" * 1000, (1 << 63) - 1
    edge = Record(long, {"author": ["y" * 40_000, "short"], "title": "z" * 40_000 + " end", "words": last})
    await records.put("papers", [edge, Record("other", {"north": 1.7976931348623157e308, "words": -last - 1})])
    (found,) = (await records.search("papers", Ask("author:short end"))).records
    assert (found.id, found.values) == (long, edge.values)
    assert await ids(records, f"words:{last}") == await ids(records, f"words:[{last} TO *]") == [long]
    assert await ids(records, f"words:{{{last} TO *]") == await ids(records, f"words:[* TO {-last - 1}}}") == []
    assert await ids(records, "north:{1.7976931348623157e308 TO *]") == []
    assert await ids(records, f"words:[* TO {-last - 1}]") == ["other"]
    assert await ids(records, "north:1.7976931348623157e308") == ["other"]
    assert await ids(records, "", only=(OneOf("words", [*range(70_000), last]),)) == [long]
    await records.delete("papers", OneOf("id", (long,)))
    assert await ids(records, "") == ["other"]


async def test_parts_of_words_and_of_keywords(records: Records) -> None:
    await records.put("papers", [*RECORDS, Record("f", {"author": ["what? a*b\\c"]})])
    assert await ids(records, "title:*LAIR*") == ["c"]
    assert await ids(records, "author:*oe") == ["a", "b"]
    assert await ids(records, "author:wh?t*") == ["f"] == await ids(records, "author:what\\?*")
    assert await ids(records, "author:*a\\*b\\\\?") == ["f"]
    assert await ids(records, "author:*a\\?b*") == []
    assert await ids(records, 'author:"what? a*b\\\\c"') == ["f"]
    assert await ids(records, '"get user na"') == []
    assert await ids(records, "get_user_na*") == ["d"]


async def test_putting_again_replaces_and_deleting_removes(records: Records) -> None:
    await records.put("papers", RECORDS)
    await records.put("papers", [Record("a", {"title": "Other"}), Record("a", {"title": "Last"})])
    assert await ids(records, "greenland or other") == []
    assert await ids(records, "last") == ["a"]
    await records.delete("papers", OneOf("source", (3,)))
    await records.delete("papers", OneOf("id", ("a", "unknown")))
    await records.put("papers", [])
    assert await ids(records, "") == ["b", "c"]


BAD_VALUES: list[dict[str, typing.Any]] = [
    {"nope": 1},
    {"words": "7"},
    {"words": True},
    {"words": 1 << 63},
    {"open": 1},
    {"north": float("nan")},
    {"title": 5},
    {"title": ["a", "b"]},
    {"title": "\ud800"},
]


async def test_a_bad_record_is_refused_with_all_it_came_with(records: Records, subtests: pytest.Subtests) -> None:
    for values in BAD_VALUES:
        with subtests.test(ascii(values)[:200]):
            with pytest.raises(BadInput, match="'x'"):
                await records.put("papers", [RECORDS[0], Record("x", values)])
            assert await ids(records, "") == []


WRONG_QUERIES: list[tuple[str, int, str]] = [
    ("ice tilte:x", 5, "no field"),
    ("ice (snow", 5, "never closed"),
    ("ice)", 4, "never opened"),
    ('ice "snow', 5, "quote"),
    ("ice or", 7, "or"),
    ("or ice", 1, "or"),
    ("ice and", 8, "and"),
    ("words:many", 7, "no value"),
    ("words:[1 TO x]", 13, "no value"),
    ("words:[1 2]", 7, "no range"),
    ("title:[a TO b]", 8, "no ranges"),
    ("date:2001-13", 6, "no value"),
    ("date:0000", 6, "no value"),
    ("a*", 1, "letters"),
    ("ice ?", 5, "letters"),
    ("words:42?", 7, "no value"),
    ("ice title:get-us?r", 11, "more than one word"),
    ("ice ()", 5, "nothing"),
    ("ice --", 6, "no word"),
    ("open:maybe", 6, "no value"),
]


async def test_errors_point_at_the_place(records: Records, subtests: pytest.Subtests) -> None:
    for text, column, said in WRONG_QUERIES:
        with subtests.test(ascii((text, column, said))[:200]):
            with pytest.raises(BadQuery, match=said) as caught:
                await records.search("papers", Ask(text))
            assert caught.value.column == column
            assert caught.value.hint


async def test_strangers_queries_are_bounded(records: Records) -> None:
    await records.put("papers", RECORDS)
    for text in ("x" * 10_001, "x " * 300, "(" * 60 + "x" + ")" * 60, "-" * 3000 + "x", "-x " * 201):
        with pytest.raises(BadQuery):
            await records.search("papers", Ask(text))
    with pytest.raises(Busy):
        await records.search("papers", Ask("ice", seconds=0.0))
    with pytest.raises(NotFound):
        await records.search("nope", Ask())


WORDS = ["ice", "snow", "core", "rain"]
LEAVES = st.one_of(
    st.sampled_from(WORDS), st.sampled_from(["title:ice", "words:1", "words:[1 TO 2]", "author:x", "-author:*"])
)
QUERIES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda q: f"-({q})"),
        st.lists(inner, min_size=2, max_size=3).map(lambda qs: "(" + " or ".join(qs) + ")"),
        st.lists(inner, min_size=2, max_size=3).map(lambda qs: "(" + " ".join(qs) + ")"),
    ),
    max_leaves=6,
)
FILED = st.fixed_dictionaries(
    {"title": st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join)},
    optional={"words": st.integers(0, 3), "author": st.lists(st.sampled_from("xy"), max_size=2)},
)


def is_true(tree: Tree, values: dict[str, object]) -> bool:
    """The meaning of a query, said as plainly as can be."""
    match tree:
        case Words(_, text):
            return text in str(values["title"]).split()
        case Whole(field, text):
            return text in list(values.get(field.name, []))  # type: ignore[call-overload]
        case Range(field, bounds):
            value = values.get(field.name)
            return isinstance(value, int) and bounds.low <= value < bounds.after  # type: ignore[operator]
        case All(parts):
            return all(is_true(part, values) for part in parts)
        case Any(parts):
            return any(is_true(part, values) for part in parts)
        case Not(part):
            return not is_true(part, values)
        case _:
            return bool(values.get(tree.field.name))


async def test_found_is_what_the_query_means(records: Records) -> None:
    """Many small collections would cost a commit each: one large one, many queries."""
    filed: dict[str, dict[str, object]] = {}

    @settings(max_examples=200)
    @given(FILED)
    def collect(values: dict[str, object]) -> None:
        filed[f"r{len(filed)}"] = values

    collect()
    await records.put("papers", [Record(id, values) for id, values in filed.items()])  # type: ignore[arg-type]
    queries: list[str] = []

    @settings(max_examples=200)
    @given(QUERIES)
    def ask(text: str) -> None:
        queries.append(text)

    ask()
    for text in queries:
        tree = parse(PAPERS, text)
        expected = sorted(id for id, values in filed.items() if is_true(tree, values))
        assert await ids(records, text, limit=1000) == expected, text
