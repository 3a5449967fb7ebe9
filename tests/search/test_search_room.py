"""The room over a real index: what each kind of query answers, for whom, page by page."""

from pathlib import Path
from random import Random

import msgspec
import pytest

from skep.base.caller import SYSTEM, Caller
from skep.base.errors import BadQuery, NeedsToken
from skep.indexing.updates import requested
from skep.search.api import Hit, RecordHit, RecordPage, SearchSummary, SourceHit
from skep.spaces.api import Typed
from skep.storage.code_index.model import Counted, Delta, Fence, Limits, Tip
from skep.storage.code_index.trigram.builder import TrigramBuilder

from .conftest import READER, Library, document

TOOLS = {
    "src/honey.py": "def honey():\n    return 1\n\n\nprint(honey())\n",
    "src/wax.go": "package wax\n\nfunc Wax() {}\n",
    "tests/test_honey.py": "from honey import honey\n",
    "docs/honey.md": "about bees\n",
}
STRANGER = Caller("nobody", frozenset(), known=False)


@pytest.fixture
async def bees(library: Library) -> Library:
    await library.add("bees/tools", TOOLS)
    await library.add("bees/secret", {"honeypot.txt": "honey plans\n"}, "private")
    await library.add("other/empty", {"a.txt": "nothing\n"})
    return library


async def test_a_bare_word_is_in_content_or_path(bees: Library) -> None:
    assert set(await bees.paths("honey")) == {"src/honey.py", "tests/test_honey.py", "docs/honey.md"}
    assert set(await bees.paths("content:honey")) == {"src/honey.py", "tests/test_honey.py"}
    assert await bees.paths("bees") == ["docs/honey.md"]
    (hit,) = (await bees.search("file:docs honey")).hits
    assert (hit.lines, hit.path_ranges) != ((), ())


async def test_languages_facets_and_marks(bees: Library) -> None:
    assert set(await bees.paths("lang:py")) == {"src/honey.py", "tests/test_honey.py"}
    assert await bees.paths("lang:golang") == ["src/wax.go"]
    assert "src/wax.go" not in await bees.paths("-lang:go repo:tools")
    answer = await bees.search("repo:tools file:.")
    assert answer.facets is not None
    assert ("Python", 2) in [(one.name, one.files) for one in answer.facets.languages]
    assert [(one.name, one.files) for one in answer.facets.sources] == [("example.org/bees/tools", 4)]
    assert (answer.facets.files, answer.facets.exact) == (4, True)
    marks = {hit.path: hit.marks for hit in answer.hits}
    assert marks["tests/test_honey.py"] == ("test",)
    assert marks["src/honey.py"] == ()


async def test_facets_of_some_files_say_so(library: Library) -> None:
    await library.add("many/x", {f"{n}.py": "word\n" * 60 for n in range(400)})
    found = (await library.search("word")).facets
    assert found is not None
    assert not found.exact
    assert found.files == found.languages[0].files < 400


async def test_files_paths_and_sources(bees: Library) -> None:
    answer = await bees.search("type:file honey")
    assert len(answer.hits) == 3
    assert not any(hit.lines or hit.more for hit in answer.hits)
    assert set(await bees.paths("type:path honey")) == set(await bees.paths("file:honey"))
    assert [one.name for one in (await bees.search("type:repo")).sources] == [
        "example.org/bees/tools",
        "example.org/other/empty",
    ]
    (tools,) = (await bees.search("type:repo BEES case:no")).sources
    assert (tools.name, tools.branch) == ("example.org/bees/tools", "main")
    assert tools.commit
    assert [one.name for one in (await bees.search("type:repo -bees")).sources] == ["example.org/other/empty"]
    assert [one.name for one in (await bees.search("type:repo content:wax")).sources] == ["example.org/bees/tools"]
    assert (await bees.search("type:repo zzz")).sources == []


async def test_nobody_learns_of_private_sources(bees: Library) -> None:
    for text in ("plans", "type:repo secret", "type:repo content:plans", "repo:secret file:.", "type:repo -tools"):
        answer = await bees.search(text)
        assert "secret" not in str(answer), text
    assert (await bees.search("plans")).counted.files == 0
    assert {one.text for one in await bees.core.search.complete(READER, "repo:e", 6)} == {
        r"repo:^example\.org/bees/tools$ ",
        r"repo:^example\.org/other/empty$ ",
    }
    assert len(await bees.core.search.complete(SYSTEM, "repo:bees", 9)) == 2
    assert (await bees.search("plans", caller=SYSTEM)).hits[0].path == "honeypot.txt"
    with pytest.raises(NeedsToken):
        await bees.search("x", caller=STRANGER)
    with pytest.raises(NeedsToken):
        await bees.core.search.complete(STRANGER, "repo:", 5)


async def test_what_is_made_private_or_removed_is_gone_at_once(bees: Library) -> None:
    await bees.core.sources.update(SYSTEM, "example.org/bees/tools", visibility="private")
    await bees.core.search.catalogue.refresh(bees.core.search._db)
    assert await bees.paths("honey") == []
    assert await bees.paths("wax", caller=SYSTEM) == ["src/wax.go"]
    await bees.core.sources.remove(SYSTEM, "example.org/bees/tools")
    (removed,) = await bees.core.search.catalogue.refresh(bees.core.search._db)
    assert removed.name == "example.org/bees/tools"
    assert await bees.paths("wax", caller=SYSTEM) == []
    assert (await bees.search("type:repo tools", caller=SYSTEM)).sources == []


async def test_names_are_matched_line_by_line(bees: Library) -> None:
    for text, number in (
        ("^example", 2),
        ("tools$", 1),
        (r"\Aexample", 2),
        (r"tools\z", 1),
        ("s.o", 0),
        ("x*", 2),
        ("BEES", 0),
        ("bees", 1),
    ):
        assert len((await bees.search(f"type:repo repo:{text}")).sources) == number, text


async def test_count_and_lines(bees: Library) -> None:
    assert sum(len(hit.lines) for hit in (await bees.search("honey count:1")).hits) <= 1
    answer = await bees.search("honey", Limits(seconds=60.0, lines=1))
    assert answer.partial
    assert answer.next_page
    answer = await bees.search("honey count:all", Limits(seconds=60.0, lines=1))
    assert not answer.partial
    assert (answer.counted.files, answer.counted.lines, answer.counted.exact) == (3, 3, True)


async def test_pages_while_the_index_changes(library: Library) -> None:
    """Files that stay come once; what changes between pages may be anywhere."""
    stays = {f"stays{n}.txt": f"needle {n}\n" * (n % 4 + 1) for n in range(30)}
    await library.add("big/one", {**stays, "goes.txt": "needle\n"})
    await library.add("big/two", {"other.txt": "needle\n" * 3})
    seen: list[tuple[str, int]] = []
    token, limits = "", Limits(seconds=60.0, lines=5)
    for round in range(100):
        answer = await library.search("needle", limits, page=token)
        assert answer.lines <= 5
        seen += [(hit.path, line.number) for hit in answer.hits for line in hit.lines]
        token = answer.next_page
        if not token:
            break
        if round % 3 == 0:
            await library.change("big/one", {f"new{round}.txt": "needle\n" * 2}, ("goes.txt",))
        if round % 4 == 1:
            while await library.rooms.searcher.merge_once():
                pass
    assert not token
    wanted = [(path, n) for path, text in stays.items() for n in range(1, text.count("\n") + 1)]
    assert sorted(one for one in seen if one[0].startswith("stays")) == sorted(wanted)
    assert [one for one in seen if one[0] == "other.txt"] == [("other.txt", n) for n in (1, 2, 3)]


async def test_a_file_with_more_lines_than_a_page_goes_on_in_the_next(library: Library) -> None:
    await library.add("a/b", {"long.txt": "needle\n" * 25, "short.txt": "needle\n"})
    lines: list[tuple[str, int]] = []
    token = ""
    for size in (10, 10, 6):
        answer = await library.search("needle", Limits(seconds=60.0, lines=10), page=token)
        assert answer.lines == size
        lines += [(hit.path, line.number) for hit in answer.hits for line in hit.lines]
        token = answer.next_page
    assert token == ""
    assert sorted(lines) == [*(("long.txt", n) for n in range(1, 26)), ("short.txt", 1)]


async def test_lines_are_divided_among_files(library: Library) -> None:
    """A file full of the word does not hide the others, and what is left of it comes when they were shown."""
    texts = {f"{n:02}.txt": "a needle\n" for n in range(20)} | {
        "full.txt": "needle\n" * 70,
        "half.txt": "needle\n" * 30,
    }
    await library.add("a/b", {**texts, "needle.txt": "x\n"})
    first = await library.search("needle", Limits(seconds=60.0, lines=40))
    shown = {hit.path: (len(hit.lines), hit.more) for hit in first.hits}
    assert {
        "full.txt": (9, True),
        "half.txt": (9, True),
        "00.txt": (1, False),
        "needle.txt": (0, False),
    }.items() <= shown.items()
    assert len(shown) == 23
    seen, token, order = list[tuple[str, int]](), "", list[str]()
    while True:
        answer = await library.search("needle", Limits(seconds=60.0, lines=40), page=token)
        assert sum(max(1, len(hit.lines)) for hit in answer.hits) <= 40
        seen += [(hit.path, line.number) for hit in answer.hits for line in hit.lines]
        order += [hit.path for hit in answer.hits]
        token = answer.next_page
        if not token:
            break
    assert sorted(seen) == sorted((path, n + 1) for path, text in texts.items() for n in range(text.count("\n")))
    assert not answer.hits[-1].more
    assert len(set(order[:23])) == 23
    whole = await library.search("needle", Limits(seconds=60.0, lines=1000))
    assert [len(hit.lines) for hit in whole.hits if hit.path == "full.txt"] == [70]


@pytest.mark.parametrize("seed", [0, 3, 8])
async def test_pages_have_every_line_once(library: Library, seed: int) -> None:
    """Although few lines are looked at for the first page, and the order changes when more are for the next."""
    chance = Random(seed)
    folders = ("src", "tests", "vendor", "src/needle", "docs")
    texts = {
        f"{chance.choice(folders)}/{n}.txt": "".join(
            chance.choice(("needle\n", "needles\n", "haystack\n")) for _ in range(int(chance.paretovariate(0.6)) % 90)
        )
        + "haystack\n" * 2_000  # so that not all of them are read at once
        for n in range(80)
    }
    await library.add("a/b", texts)
    lines = [(path, n) for path, text in texts.items() for n, line in enumerate(text.split(), 1) if line[0] == "n"]
    for size in (3, 7, 25):
        seen, token = list[tuple[str, int]](), ""
        while True:
            limits = Limits(seconds=60.0, lines=size, look=10)
            answer = await library.core.search.search(READER, "content:needle", limits, page=token)
            assert answer.lines <= size
            seen += [(hit.path, line.number) for hit in answer.hits for line in hit.lines]
            token = answer.next_page
            if not token:
                break
        assert sorted(seen) == sorted(lines)


async def test_pages_of_files_that_branches_have_different(library: Library, tmp_path: Path) -> None:
    """One path, two files: each is shown once, with all its lines."""
    await library.add("a/b", {"x.py": "start\n"})
    id, number = library.ids["a/b"]
    texts = {2: "needle two\nneedle three\n" * 3, 1: "needle one\n" * 6}
    files = [
        msgspec.structs.replace(document(f"{name}.py", f"# {name}\n{text}"), branches=bits)
        for bits, text in texts.items()
        for name in "xyz"
    ]
    shards = TrigramBuilder().build(number, files, tmp_path / "branches", lambda _: None)
    tips = (Tip("main", "1" * 40), Tip("old", "2" * 40))
    assert await library.adoption.adopt(Fence(id, 1, 5000.0), Delta(id, number, tips, None, shards), 0.0)
    for size in (1, 2, 5, 8, 20):
        seen, token = list[tuple[str, str, int]](), ""
        while True:
            answer = await library.search("content:needle", Limits(seconds=60.0, lines=size), page=token)
            assert token or answer.hits[0].branch == "main", "which comes first of those as good as each other"
            seen += [(hit.path, hit.branch, line.number) for hit in answer.hits for line in hit.lines]
            token = answer.next_page
            if not token:
                break
        assert len(seen) == len(set(seen)) == 3 * (6 + 6)


async def test_a_hit_is_shown_at_the_branch_that_was_asked_for(library: Library, tmp_path: Path) -> None:
    await library.add("a/b", {"x.py": "start\n"})
    id, number = library.ids["a/b"]
    files = [
        msgspec.structs.replace(document(f"{bits}.py", f"zebra {bits}\n"), branches=bits) for bits in (0b111, 0b011)
    ]
    shards = TrigramBuilder().build(number, files, tmp_path / "branches", lambda _: None)
    tips = tuple(Tip(name, nth * 40) for name, nth in (("main", "1"), ("release/2", "2"), ("old", "3")))
    assert await library.adoption.adopt(Fence(id, 1, 5000.0), Delta(id, number, tips, None, shards), 0.0)

    async def shown(text: str) -> dict[str, tuple[str, str]]:
        return {hit.path: (hit.branch, hit.commit[:1]) for hit in (await library.search(text)).hits}

    main, release, old = ("main", "1"), ("release/2", "2"), ("old", "3")
    assert await shown("zebra") == {"3.py": main, "7.py": main}
    assert await shown("branch:release zebra") == {"3.py": release, "7.py": release}
    assert await shown('zebra (branch:"old" or branch:release)') == {"3.py": release, "7.py": release}
    assert await shown("zebra branch:^(old|main)$ branch:old") == {"7.py": main}
    assert await shown("zebra branch:old or content:zebra") == {"3.py": main, "7.py": old}
    assert await shown("zebra -branch:old") == {"3.py": main}
    (hit,) = (await library.search("branch:old")).hits
    assert (hit.branch, hit.branches) == ("old", ("main", "release/2", "old"))


async def test_files_that_are_all_shown_are_all(library: Library) -> None:
    """However many lines each of them has that nobody asked for."""
    await library.add("a/b", {f"needle{n}.py": "needle\n" * 9 for n in range(4)})
    for text in ("type:file needle", "type:path needle", "type:path needle content:needle"):
        for lines in (3, 4):
            limits, more = Limits(seconds=60.0, lines=lines), lines < 4
            answer = await library.search(text, limits)
            assert (len(answer.hits), answer.partial, bool(answer.next_page)) == (lines, more, more)
            assert not any(hit.lines or hit.more for hit in answer.hits)
            *_, summary = [item async for item in await library.core.search.stream(READER, text, limits)]
            assert isinstance(summary, SearchSummary)
            assert (summary.files, summary.partial) == (lines, more)
    found = (await library.search("type:file needle")).facets
    assert found is not None and found.exact


async def test_pages_of_sources(library: Library) -> None:
    for n in range(5):
        await library.add(f"s/{n}", {"a": "x\n"})
    first = await library.search("type:repo", Limits(seconds=60.0, lines=3))
    second = await library.search("type:repo", Limits(seconds=60.0, lines=3), page=first.next_page)
    assert [one.name[-1] for one in first.sources] == ["0", "1", "2"]
    assert [one.name[-1] for one in second.sources] == ["3", "4"]
    assert (first.partial, second.partial, second.next_page) == (True, False, "")
    assert (first.counted, second.counted) == (Counted(4, 0, False), Counted(5, 0))
    assert (await library.search("type:repo", Limits(seconds=60.0, lines=1, count=100))).counted == Counted(5, 0)


async def test_a_stream_ends_with_a_summary(bees: Library) -> None:
    items = [item async for item in await bees.core.search.stream(READER, "honey", Limits())]
    assert isinstance(items[-1], SearchSummary)
    assert items[-1].files == 3
    assert all(isinstance(item, Hit) for item in items[:-1])
    sources = [item async for item in await bees.core.search.stream(READER, "type:repo", Limits(seconds=60.0, lines=1))]
    assert [type(item) for item in sources] == [SourceHit, SearchSummary]
    with pytest.raises(BadQuery):
        await bees.core.search.stream(READER, "/(/", Limits())


async def test_reports_and_records_are_asked_of_others(bees: Library) -> None:
    async def reports(caller: Caller, words: str, limit: int, page: str) -> RecordPage:
        return RecordPage([RecordHit(words, caller.subject, {"limit": limit, "page": page})], 7, "more")

    del bees.core.search.records["record"]
    with pytest.raises(BadQuery, match="no records") as caught:
        await bees.search("type:record x")
    assert caught.value.column == 1
    with pytest.raises(BadQuery, match="pages") as caught:
        await bees.core.search.stream(READER, "x type:report", Limits())
    assert caught.value.column == 3
    bees.core.search.records["report"] = reports
    answer = await bees.search("big licence:MIT type:report", Limits(seconds=60.0, lines=3), page="next")
    assert answer.records == [RecordHit("big licence:MIT", "reader", {"limit": 3, "page": "next"})]
    assert (answer.counted.files, answer.next_page, answer.partial) == (7, "more", True)


async def test_completion_of_languages_and_branches(bees: Library) -> None:
    complete = bees.core.search.complete
    assert [one.text for one in await complete(READER, "lang:pyth", 9)] == ["lang:Python "]
    assert [one.text for one in await complete(READER, "branch:ma", 9)] == ["branch:^main$ "]


async def test_what_is_being_indexed_is_not_asked_for_again_after_a_restart(library: Library) -> None:
    core, wanted = library.core, ("request", Typed("str"), Typed("str"))
    await library.adoption.request("src_waits")
    await library.adoption.request("src_taken")
    await core.spaces.put(SYSTEM, "index", ("of somebody else",))
    assert await core.spaces.get(SYSTEM, "index", ("request", "src_taken", Typed("str")), lease=600.0)
    assert await core.search._db.write(requested) == {"src_waits", "src_taken"}
    assert [one.fields[1] for one in await core.spaces.query_all(SYSTEM, "index", wanted)] == ["src_waits"]


async def test_what_was_built_whole_and_comes_after_something_newer_is_followed_by_what_changed(
    library: Library,
) -> None:
    """It was begun before that, and would stay at its older commit."""
    id = await library.add("a/b", {"x.py": "first\n"})
    wanted = ("request", id, Typed("str"))
    slow = library.delta("a/b", {"x.py": "second\n"}, whole=True)
    assert await library.change("a/b", {"x.py": "third\n"})
    assert not await library.core.spaces.query_all(SYSTEM, "index", wanted)
    assert await library.adoption.adopt(Fence(id, 1, 1000.0), slow, 0.0)
    (request,) = await library.core.spaces.query_all(SYSTEM, "index", wanted)
    assert request.fields[2] == "changed"
