"""Which hits come first, what counts as one, and what is shown around it."""

import hashlib
import itertools
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from skep.storage.code_index.analysis_files import KINDS, Definition, Entry, name_number, write_book
from skep.storage.code_index.model import (
    GENERATED,
    TEST,
    VENDORED,
    Counted,
    Delta,
    Document,
    FileHit,
    Language,
    Limits,
    Not,
    Reason,
    Term,
    Tip,
)
from skep.storage.code_index.ranking import (
    BASENAME,
    DEFINITION,
    MEMBER,
    STEM,
    SUBSTRING,
    WHOLE_NAME,
    WORD,
    Facts,
    parts,
    path_place,
    per_file,
    score,
)
from skep.storage.code_index.trigram.builder import TrigramBuilder
from skep.storage.code_index.trigram.searcher import TrigramSearcher
from tests.index.conftest import VISIBLE, fence

PROJECT: Mapping[str, bytes] = {
    "src/parser.py": b"import re\n\ndef parse_query(text):\n    return Parser(text).parse()\n",
    "src/tree.py": b"class Parser:\n    def parse(self):\n        return reparse(self)\n",
    "src/reparse.py": b"def reparse(tree):\n    return tree\n",
    "src/use.py": b"from tree import Parser\nparser = Parser()\nparser.parse()\nparser.parse()\n",
    "tests/test_tree.py": b"from tree import Parser\n\ndef test_parse():\n    assert Parser().parse()\n",
    "vendor/old/tree.py": b"class OldParser:\n    def parse(self): ...\n",
    "docs/guide.md": b"First line.\nTo parse a query, call it.\nThen parse again.\nLast line.\n",
    "gen/tables.py": b"# Code generated. DO NOT EDIT.\nPARSE = parse\n",
}
MARKS = {"tests/test_tree.py": TEST, "vendor/old/tree.py": VENDORED, "gen/tables.py": GENERATED}
DEFINED = {
    "src/parser.py": [("parse_query", "function")],
    "src/tree.py": [("Parser", "class"), ("parse", "method")],
    "src/reparse.py": [("reparse", "function")],
    "tests/test_tree.py": [("test_parse", "function")],
    "vendor/old/tree.py": [("OldParser", "class"), ("parse", "method")],
}
Ask = Callable[..., Awaitable[list[FileHit]]]


def blob_of(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


def definitions(path: str, content: bytes) -> list[Definition]:
    made = []
    for name, kind in DEFINED.get(path, ()):
        word = b"class " if kind == "class" else b"def "
        at = content.index(word + name.encode()) + len(word)
        line = content.count(b"\n", 0, at) + 1
        made.append(Definition(at, len(name), line, KINDS.index(kind), name_number(name.encode())))
    return made


@pytest.fixture
async def ask(searcher: TrigramSearcher, tmp_path: Path) -> Ask:
    documents = [
        Document(path.encode(), blob_of(content), content, "Python" if path.endswith(".py") else "", MARKS.get(path, 0))
        for path, content in PROJECT.items()
    ]
    shards = TrigramBuilder().build(1, documents, tmp_path / "built", lambda _: None)
    assert await searcher.adopt(Delta("src_1", 1, (Tip("main", "c1"),), None, shards), fence())
    entries = [Entry(blob_of(content), definitions(path, content), b"") for path, content in PROJECT.items()]
    assert await searcher.annotate(write_book(tmp_path, "bok_1", entries, 1))

    async def work(term: Term, **limits: object) -> list[FileHit]:
        return [hit async for hit in searcher.search(term, VISIBLE, Limits(**limits))]  # type: ignore[arg-type]

    return work


def word(text: str, field: str = "any") -> Term:
    return Term(field, text, False, False)  # type: ignore[arg-type]


async def order(ask: Ask, term: Term) -> list[str]:
    return [hit.path for hit in await ask(term)]


async def test_what_is_defined_comes_before_what_is_used(ask: Ask) -> None:
    found = await order(ask, word("parse"))
    assert found[0] == "src/tree.py"
    assert found.index("src/tree.py") < found.index("vendor/old/tree.py")
    assert set(found[-2:]) <= {"src/reparse.py", "gen/tables.py", "tests/test_tree.py"}
    assert (await order(ask, word("reparse")))[0] == "src/reparse.py"
    assert (await order(ask, word("Parser")))[:2] == ["src/tree.py", "src/parser.py"]


async def test_a_definition_is_found_behind_a_thousand_uses(searcher: TrigramSearcher, tmp_path: Path) -> None:
    """Only a few lines are looked at for the sake of the order: those of the file that defines it first."""
    files = [Document(b"a/%03d.py" % n, blob_of(b"%d" % n), b"x = needle(1)\n" * 200) for n in range(300)]
    defined = Document(b"z/deep.py", blob_of(b"z"), b"y = 1\ndef needle(n): ...\n")
    shards = TrigramBuilder().build(1, [*files, defined, *files], tmp_path / "built", lambda _: None)
    assert await searcher.adopt(Delta("src_1", 1, (Tip("main", "c1"),), None, shards), fence())
    entry = Entry(defined.blob, [Definition(10, 6, 2, 1, name_number(b"needle"))], b"")
    assert await searcher.annotate(write_book(tmp_path, "bok_1", [entry], 1))
    for text in ("needle", "NEEDLE", "needle(", "def needle"):
        hits = [hit async for hit in searcher.search(word(text), VISIBLE, Limits(lines=5, look=10, seconds=60.0))]
        assert hits[0].path == "z/deep.py"
    hits = [hit async for hit in searcher.search(word("x = needle"), VISIBLE, Limits(lines=5, look=10, seconds=60.0))]
    assert hits[0].path.startswith("a/")


async def test_sources_come_before_tests_and_words_before_parts(ask: Ask) -> None:
    found = await order(ask, word("parse", "content"))
    assert found.index("src/use.py") < found.index("tests/test_tree.py")
    assert found.index("docs/guide.md") < found.index("src/reparse.py")
    assert found.index("src/use.py") < found.index("gen/tables.py")


async def test_a_name_of_a_file_is_a_hit(ask: Ask) -> None:
    (hit,) = await ask(word("guide"))
    assert (hit.path, hit.lines, hit.path_ranges) == ("docs/guide.md", (), ((5, 10),))
    found = await order(ask, word("tree"))
    assert set(found) >= {"src/tree.py", "vendor/old/tree.py", "tests/test_tree.py"}
    assert found.index("src/tree.py") < found.index("tests/test_tree.py")
    assert await order(ask, word("guide", "content")) == []
    negated = {hit.path for hit in await ask(Not(word("tree")))}
    assert negated == {"src/parser.py", "docs/guide.md", "gen/tables.py"}


async def test_symbols(ask: Ask) -> None:
    hits = await ask(word("parse", "symbol"))
    assert {hit.path for hit in hits} == set(DEFINED)
    points = {hit.path: hit.score for hit in hits}
    assert points["src/tree.py"] > 2 * points["src/reparse.py"], "a name as it is asked for, and one that has it inside"
    exact = await ask(Term("symbol", "^parse$", True, True))
    assert {hit.path for hit in exact} == {"src/tree.py", "vendor/old/tree.py"}
    (line,) = exact[0].lines
    assert (line.number, line.text, line.ranges, line.symbol) == (2, "    def parse(self):", ((8, 13),), "method")
    shown = {line.number: line.symbol for line in (await ask(word("parse")))[0].lines}
    assert shown == {1: "class", 2: "method", 3: ""}
    assert await ask(word("query", "symbol"), lines=1) != []
    assert await ask(word("guide", "symbol")) == []


async def test_languages(ask: Ask) -> None:
    found = {hit.path for hit in await ask(Language("Python"))}
    assert found == set(PROJECT) - {"docs/guide.md"}


async def test_lines_around(ask: Ask) -> None:
    (hit,) = await ask(word("call it", "content"), context=2)
    (line,) = hit.lines
    assert (line.before, line.after) == (("First line.",), ("Then parse again.", "Last line."))
    (hit,) = await ask(word("Last line", "content"), context=1)
    assert (hit.lines[0].before, hit.lines[0].after) == (("Then parse again.",), ())


async def test_the_score_is_explained(ask: Ask) -> None:
    best = (await ask(word("parse"), explain=True))[0]
    assert Reason("definition", 400.0) in best.why
    assert best.score == pytest.approx(sum(reason.points for reason in best.why), abs=0.05)
    assert (await ask(word("parse")))[0].why == ()


async def test_counting_goes_on_where_showing_ends(searcher: TrigramSearcher, tmp_path: Path) -> None:
    files = [Document(b"f%03d" % n, f"{n:040x}", b"word\nword word\nother\n") for n in range(300)]
    shards = TrigramBuilder().build(1, files, tmp_path / "built", lambda _: None)
    assert await searcher.adopt(Delta("src_1", 1, (Tip("main", "c1"),), None, shards), fence())
    for rank, count in itertools.product((True, False), (0, 100, 10_000)):
        hits = searcher.search(word("word"), VISIBLE, Limits(lines=5, look=10, rank=rank, count=count, seconds=60.0))
        shown = [hit async for hit in hits]
        assert sum(len(hit.lines) for hit in shown) == 5
        assert hits.partial
        if count == 10_000:
            assert hits.counted == Counted(300, 600, True)
        assert hits.counted.lines >= min(count, 600)
    hits = searcher.search(word("word"), VISIBLE, Limits(lines=50, files=3, count=1000, seconds=60.0))
    assert len([hit async for hit in hits]) == 3
    hits = searcher.search(word("f0", "path"), VISIBLE, Limits(lines=1000, seconds=60.0))
    assert len([hit async for hit in hits]) == 100
    assert hits.counted == Counted(100, 0, True)


def test_points() -> None:
    assert score(Facts((DEFINITION,))) > score(Facts((WORD,), lines=1000)) > score(Facts((SUBSTRING,), lines=1000))
    assert score(Facts((WORD, WORD), together=2)) > score(Facts((WORD, WORD), together=1))
    assert score(Facts((WORD,), marks=TEST)) < score(Facts((WORD,)))
    assert score(Facts((WORD,), marks=TEST)) > score(Facts((SUBSTRING,)))
    assert score(Facts((MEMBER,))) > score(Facts((0,), path=STEM)) > score(Facts((WORD,), lines=20_000))
    assert score(Facts((DEFINITION,))) > score(Facts((WORD,), path=STEM, lines=20_000)) > score(Facts((0,), path=STEM))
    assert [name for name, _ in parts(Facts((WORD,), path=STEM, lines=2, marks=TEST))] == [
        "whole word",
        "the file's name",
        "often",
        "test",
    ]
    assert path_place(b"src/tree.py", 4, 8) == STEM
    assert path_place(b"src/tree.py", 4, 11) == path_place(b"a/src/tree.py", 2, 13) == WHOLE_NAME
    assert path_place(b"a/src/tree.py", 3, 13) == BASENAME
    assert path_place(b"src/tree.py", 4, 7) == BASENAME
    assert path_place(b"src/tree.py", 0, 3) < BASENAME


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ([30, 20], 10_000),
        ([80], 50),
        ([1000, 1, 1], 48),
        ([30, 15, 10], 25),
        ([8] * 10, 5),
        ([500] * 100, 5),
        ([], 10_000),
    ],
)
def test_lines_of_a_file_where_not_all_have_room(sizes: list[int], wanted: int) -> None:
    assert per_file(sizes, Limits(share=50)) == wanted
    assert per_file(sizes, Limits(share=50, lines_per_file=3)) == 3
    assert per_file(sizes, Limits()) == 10_000
