"""What a query means, what is shown of a line, and where a search ends."""

import asyncio
import itertools
import threading

import numpy as np
import pytest

from skep.base.errors import BadQuery
from skep.search.query import ask, parse
from skep.storage.code_index.model import And, Counted, FileHit, Limits, Line, Not, Or, Term, Within
from skep.storage.code_index.trigram.excerpts import Show, excerpt
from skep.storage.code_index.trigram.scan import Light
from skep.storage.code_index.trigram.searcher import TrigramSearcher
from skep.storage.code_index.trigram.shard import Shard
from tests.index.conftest import EVERYTHING, VISIBLE, Adopt, find, places

FILES = {
    b"src/main.c": b"int main(void)\n{\n\treturn helper(1);\n}\n",
    b"src/helper.c": b"int helper(int x)\n{\n\treturn x;\n}\n",
    b"doc/Guide.md": b"# Guide\n\nCall helper, then main.\n",
    b"doc/empty.md": b"",
    b"odd\nname": b"helper\n",
}


async def paths(searcher: TrigramSearcher, text: str) -> list[str]:
    return sorted(hit.path for hit in await find(searcher, parse(text)))


@pytest.mark.usefixtures("engine")
async def test_a_query_is_true_for_whole_files(searcher: TrigramSearcher, adopt: Adopt) -> None:
    await adopt(FILES)
    assert await paths(searcher, "main helper") == ["doc/Guide.md", "src/main.c"]
    assert await paths(searcher, "main -helper") == []
    assert await paths(searcher, "helper -main") == ["odd\nname", "src/helper.c"]
    assert await paths(searcher, "return (main or x)") == ["src/helper.c", "src/main.c"]
    assert await paths(searcher, "file:doc/") == ["doc/Guide.md", "doc/empty.md"]
    assert await paths(searcher, "file:^name$") == ["odd\nname"]
    assert await paths(searcher, 'file:"guide"') == ["doc/Guide.md"]
    assert await paths(searcher, "file:GUIDE case:yes") == []
    assert await paths(searcher, "-file:doc -helper") == []
    assert await paths(searcher, "helper -(file:doc or file:odd)") == ["src/helper.c", "src/main.c"]
    assert await paths(searcher, r"/^int \w+\(.*\)$/ -/main/") == ["src/helper.c"]
    assert await paths(searcher, "zz or file:empty") == ["doc/empty.md"]


async def test_files_of_a_name_are_found_behind_many_of_a_folder(searcher: TrigramSearcher, adopt: Adopt) -> None:
    """Not every path is looked at: those whose name may be what is asked for first."""
    named = dict.fromkeys((b"x/research.c", b"y/search.c", b"z/search"), b"x\n")
    await adopt({b"a/search/%03d.c" % n: b"x\n" for n in range(300)} | named)
    for text in ("search", "/sea(r)ch/"):
        hits = searcher.search(
            ask(f"type:path {text}").query, VISIBLE, Limits(lines=5, look=10, explain=True, seconds=60.0)
        )
        found = [hit async for hit in hits]
        names = [(hit.path, [reason.name for reason in hit.why]) for hit in found]
        assert names[:3] == [
            ("z/search", ["the file's whole name"]),
            ("y/search.c", ["the file's name"]),
            ("x/research.c", ["in the file's name"]),
        ]
        assert names[3] == ("a/search/000.c", ["in a folder's name"])


async def test_lines_are_those_of_every_word_that_was_wanted(searcher: TrigramSearcher, adopt: Adopt) -> None:
    await adopt(FILES)
    (hit,) = await find(searcher, parse("main return -(-void)"))
    assert hit.lines == (
        Line(1, 5, "int main(void)", ((4, 8), (9, 13))),
        Line(3, 2, "\treturn helper(1);", ((1, 7),)),
    )
    assert [hit.lines for hit in await find(searcher, parse("file:main"))] == [()]


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    "text",
    [
        r"(todo file:\.py$) or (fixme file:\.go$)",
        r"-((-todo or -file:\.py$) (-fixme or -file:\.go$))",
        r"(file:py or file:go) ((todo file:\.py$) or (content:fixme file:\.go$ -(file:py or -two)))",
    ],
)
async def test_lines_are_those_of_the_parts_that_are_true(searcher: TrigramSearcher, adopt: Adopt, text: str) -> None:
    same = b"todo one\nfixme two\nneither\ntodo fixme\n"
    await adopt({b"a.py": same, b"b.txt": same})
    await adopt({b"c.go": same, b"d.py": same}, number=2)
    wanted = {"a.py": [1, 4], "c.go": [2, 4], "d.py": [1, 4]}
    found = await find(searcher, parse(text))
    assert {hit.path: [line.number for line in hit.lines] for hit in found} == wanted
    counting = searcher.search(parse(text), VISIBLE, Limits(lines=1, count=100, rank=False, seconds=60.0))
    assert len([hit async for hit in counting]) == 1
    assert counting.counted == Counted(3, 6, True)


async def test_only_what_the_caller_may_see(searcher: TrigramSearcher, adopt: Adopt) -> None:
    for number in (1, 2, 5):
        await adopt({b"secret%d" % number: b"the word\n"}, number=number)
    visible = np.array([False, True, False])
    hits = [hit async for hit in searcher.search(parse("word"), visible, EVERYTHING)]
    assert [(hit.source, hit.path) for hit in hits] == [(1, "secret1")]
    query = And((parse("word"), Within(frozenset({2, 5, 77}))))
    assert [hit.source for hit in await find(searcher, query)] == [2, 5]
    query = And((parse("word"), Not(Within(frozenset({2})))))
    assert [hit.source for hit in await find(searcher, query)] == [1, 5]


async def test_limits(searcher: TrigramSearcher, adopt: Adopt) -> None:
    await adopt({b"f%02d" % n: b"word\n" * 10 for n in range(20)})
    hits = searcher.search(parse("word"), VISIBLE, Limits(lines=15, lines_per_file=4, seconds=60.0))
    found = [hit async for hit in hits]
    assert [len(hit.lines) for hit in found] == [4, 4, 4, 3]
    assert all(hit.more for hit in found)
    assert hits.partial
    hits = searcher.search(parse("file:f"), VISIBLE, Limits(lines=7, seconds=60.0))
    assert len([hit async for hit in hits]) == 7
    assert hits.partial
    hits = searcher.search(parse("file:f0"), VISIBLE, Limits(lines=10, seconds=60.0))
    assert len([hit async for hit in hits]) == 10
    assert not hits.partial
    for rank, files in itertools.product((True, False), (20, 19)):
        hits = searcher.search(
            parse("word"), VISIBLE, Limits(lines=files, lines_per_file=0, rank=rank, count=1000, seconds=60.0)
        )
        found = [hit async for hit in hits]
        assert {(hit.lines, hit.more) for hit in found} == {((), False)}
        assert (len(found), hits.partial, hits.counted) == (files, files < 20, Counted(20, 200))
    hits = searcher.search(parse("word"), VISIBLE, Limits(lines=1000, seconds=0.0))
    assert [hit async for hit in hits] == []
    assert hits.partial


async def test_a_consumer_may_leave(searcher: TrigramSearcher, adopt: Adopt) -> None:
    await adopt({b"f%04d" % n: b"word\n" * 100 for n in range(2000)})
    async for _ in searcher.search(parse("word"), VISIBLE, EVERYTHING):
        break
    hits = searcher.search(parse("/w.*d/"), VISIBLE, EVERYTHING)
    asked = asyncio.ensure_future(anext(hits))
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert len(await find(searcher, parse("word"), Limits(lines=1, seconds=60.0))) == 1


@pytest.mark.usefixtures("engine")
async def test_the_first_hit_comes_before_the_last_shard_is_read(
    searcher: TrigramSearcher, adopt: Adopt, monkeypatch: pytest.MonkeyPatch
) -> None:
    await adopt({b"a": b"apple\n"}, number=1)
    await adopt({b"b": b"apple\n"}, number=2)
    gate, look, opened = threading.Event(), Shard.look, iter((True, False))

    def gated(self: Shard) -> None:
        assert next(opened) or gate.wait(30)
        look(self)

    monkeypatch.setattr(Shard, "look", gated)
    hits = searcher.search(parse("apple"), VISIBLE, Limits(rank=False, seconds=60.0))
    async with asyncio.timeout(25):
        assert (await anext(aiter(hits))).path == "a"
    gate.set()
    assert [hit.path async for hit in hits] == ["b"]


async def test_a_hard_pattern_ends_in_time(searcher: TrigramSearcher, adopt: Adopt) -> None:
    await adopt({b"long": b"ab" * 500_000 + b"\n", b"many": (b"ab" * 40 + b"\n") * 12_000})
    for pattern in ["(a|b|ab)*c$", "((a?b?){30}){30}c", ".*.*.*.*=.*", "(?:[ab]{0,500}){2}c"]:
        hits = searcher.search(Term("content", pattern, True, True), VISIBLE, Limits(seconds=0.3))
        assert [hit async for hit in hits] == []


async def test_a_match_far_out_on_an_endless_line(searcher: TrigramSearcher, adopt: Adopt) -> None:
    word = "long" * 400
    await adopt({b"f": b"x" * 1_500_000 + word.encode() + b"\n"})
    (hit,) = await find(searcher, Term("content", word, False, False))
    assert len(hit.lines) == 1


async def test_a_bad_pattern_is_told_through_the_iterator(searcher: TrigramSearcher, adopt: Adopt) -> None:
    await adopt(FILES)
    with pytest.raises(BadQuery, match="missing"):
        await find(searcher, Or((Term("content", "x", False, True), Term("content", "(", True, True, 7))))
    with pytest.raises(BadQuery, match="source"):
        await find(searcher, Term("source", "x", False, True))


@pytest.mark.usefixtures("engine")
async def test_line_by_line(searcher: TrigramSearcher, adopt: Adopt) -> None:
    await adopt({b"f": b"one\ntwo\n\nthree\r\n"})
    asked = {r"one\s+two": [], r"o[^x]t": [], r"\Atwo\z": [("f", 2, 1)], r"^$": [("f", 3, 1)], "e.$": [("f", 4, 5)]}
    asked |= {
        "x*": [("f", n, 1) for n in (1, 2, 3, 4)],
        r"(?s)one.two": [],
        r"\C+o": [("f", 2, 1)],
        r"(?-m)^t": [("f", 2, 1), ("f", 4, 1)],
    }
    for pattern, expected in asked.items():
        assert await places(searcher, Term("content", pattern, True, True)) == expected, pattern
    assert await places(searcher, Term("content", "one\ntwo", False, True)) == []
    assert await places(searcher, Term("content", "one\nTWO", False, False)) == []


def test_a_long_line_is_cut_around_its_first_match() -> None:
    line = "é".encode() * 1000 + b"needle" + "ü".encode() * 1000 + b"needle"
    shown = excerpt(7, line, [(2000, 2006), (4006, 4012)])
    assert (shown.number, shown.column) == (7, 2001)
    assert len(shown.text) < 401
    ((start, end),) = shown.ranges
    assert shown.text[start:end] == "needle"
    assert "\ufffd" not in shown.text


def test_ranges_are_characters_of_the_text() -> None:
    line = "日本 x\r".encode()
    assert excerpt(1, line, [(0, 3), (2, 6), (7, 8)]) == Line(1, 1, "日本 x", ((0, 2), (3, 4)))
    assert excerpt(1, b"\xff\xffab", [(2, 4)]) == Line(1, 3, "\ufffd\ufffdab", ((2, 4),))
    assert excerpt(1, b"abc", [(1, 1)]) == Line(1, 2, "abc", ())


async def test_what_came_before_time_was_over_is_counted(
    searcher: TrigramSearcher, adopt: Adopt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread is deep inside something, and cannot say how much there is."""
    await adopt({b"f%03d" % n: b"honey\n" for n in range(70)})
    shown, go_on = Show.hit, threading.Event()
    left = iter(range(64))  # that many hits cross to the loop at once

    def stuck(self: Show, light: Light, most: int) -> FileHit:
        if next(left, None) is None:
            go_on.wait(60)
        return shown(self, light, most)

    monkeypatch.setattr(Show, "hit", stuck)
    monkeypatch.setattr("skep.storage.code_index.trigram.search._BATCH_SECONDS", 3600.0)
    hits = searcher.search(parse("honey"), VISIBLE, Limits(lines=100, seconds=600.0))
    try:
        await anext(hits)
        assert hits._work
        hits._work.deadline = 0.0
        assert len([hit async for hit in hits]) == 63
        assert (hits.partial, hits.counted) == (True, Counted(64, 64, exact=False))
    finally:
        go_on.set()
