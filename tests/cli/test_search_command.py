"""`skep search` and `skep searches`: context, counts, files, sources, explanations, completion."""

import json

import msgspec
import pytest

from skep.cli.main import main
from skep.interfaces import terminal
from skep.search.api import Completion, Completions, Hit, SavedSearch, SearchAnswer, Searches, SourceHit
from skep.storage.code_index.model import Counted, Line, Reason
from tests.cli.fake import FakeSkep

Output = pytest.CaptureFixture[str]
LINES = (
    Line(3, 1, "needle", ((0, 6),), ("one", "two"), ("four", "five")),
    Line(5, 3, "a needle", ((2, 8),), ("needle", "four"), ("six",), "function"),
    Line(90, 1, "needle", ((0, 6),), ("e\x1b[0m",), ()),
)
WHY = (Reason("whole word", 200.0), Reason("test", -70.0))
HIT = Hit("src_01", "example.org/a/b", "src/x.py", "main", "c" * 40, 7.5, "b" * 40, LINES, score=130.0, why=WHY)


def answers(home: FakeSkep, answer: SearchAnswer) -> None:
    home.on("GET", "/api/v1/search", 200, answer)


def test_context_is_shown_once_and_cut_where_lines_are_missing(home: FakeSkep, capsys: Output) -> None:
    answers(home, SearchAnswer([HIT], 3, False, 0.01))
    assert main(["search", "needle", "-C", "2"]) == terminal.OK
    assert home.asked[0].query == {"q": "needle", "lines": "50", "context": "2"}
    place = "example.org/a/b:src/x.py"
    assert capsys.readouterr().out.splitlines() == [
        f"{place}-1-one",
        f"{place}-2-two",
        f"{place}:3:1:needle",
        f"{place}-4-four",
        f"{place}:5:3:a needle",
        f"{place}-6-six",
        "--",
        f"{place}-89-e␛[0m",
        f"{place}:90:1:needle",
    ]
    assert main(["search", "needle", "-C", "2", "--color", "always"]) == terminal.OK
    coloured = capsys.readouterr().out
    assert "\x1b[2m 4\x1b[0m  \x1b[2mfour\x1b[0m" in coloured
    assert "\n    …\n" in coloured


def test_what_is_not_wanted_is_no_option(home: FakeSkep) -> None:
    answers(home, SearchAnswer([HIT], 3, False, 0.01))
    assert main(["search", "needle", "-hay", "-Config", "-(a", "or", "-b:c)", "-C2"]) == terminal.OK
    assert home.asked[0].query == {"q": "needle -hay -Config -(a or -b:c)", "lines": "50", "context": "2"}


def test_programs_get_context_symbols_and_reasons(home: FakeSkep, capsys: Output) -> None:
    answers(home, SearchAnswer([HIT], 3, False, 0.01))
    assert main(["search", "needle", "--json", "--explain"]) == terminal.OK
    assert home.asked[0].query["explain"] == "true"
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[1]["symbol"] == "function"
    assert rows[0]["before"] == ["one", "two"]
    assert rows[0]["why"] == [{"name": "whole word", "points": 200.0}, {"name": "test", "points": -70.0}]


def test_explain(home: FakeSkep, capsys: Output) -> None:
    answers(home, SearchAnswer([msgspec.structs.replace(HIT, lines=())], 0, False, 0.01))
    assert main(["search", "needle", "--explain"]) == terminal.OK
    assert capsys.readouterr().out == "example.org/a/b:src/x.py: 130 = whole word 200 + test -70\n"


def test_files_and_sources(home: FakeSkep, capsys: Output) -> None:
    answers(home, SearchAnswer([], 0, False, 0.01, sources=[SourceHit("src_01", "example.org/a/b")]))
    assert main(["search", "x", "--files"]) == terminal.OK
    assert home.asked[0].query["q"] == "x type:file"
    assert capsys.readouterr().out == "example.org/a/b\n"
    assert main(["search", "type:repo", "--color", "always"]) == terminal.OK
    assert "not searchable yet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("counted", "text", "code"),
    [
        (Counted(56, 1234, True), "1,234 lines in 56 files\n", terminal.OK),
        (Counted(7, 100_000, False), "100,000+ lines in 7+ files\n", terminal.OK),
        (Counted(), "0 lines in 0 files\n", terminal.NOTHING_FOUND),
    ],
)
def test_count(home: FakeSkep, capsys: Output, counted: Counted, text: str, code: int) -> None:
    answers(home, SearchAnswer([HIT], 1, True, 0.01, counted))
    assert main(["search", "x", "--count"]) == code
    assert home.asked[0].query == {"q": "x", "lines": "1", "count": "100000"}
    assert capsys.readouterr() == (text, "")
    assert main(["search", "x", "--count", "--json"]) == code
    assert json.loads(capsys.readouterr().out) == msgspec.to_builtins(counted)


def test_count_of_sources(home: FakeSkep, capsys: Output) -> None:
    answers(home, SearchAnswer([], 0, True, 0.01, Counted(12, 0), sources=[SourceHit("src_01", "a/b")]))
    assert main(["search", "type:repo", "--count"]) == terminal.OK
    assert capsys.readouterr().out == "12 sources\n"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (SearchAnswer([HIT], 3, True, 0.01), "3 lines"),
        (SearchAnswer([msgspec.structs.replace(HIT, lines=())], 0, True, 0.01), "1 files"),
        (SearchAnswer([], 0, True, 0.01, sources=[SourceHit("src_01", "a/b")] * 2), "2 sources"),
    ],
)
def test_what_was_shown_of_more(home: FakeSkep, capsys: Output, answer: SearchAnswer, said: str) -> None:
    answers(home, answer)
    assert main(["search", "x"]) == terminal.OK
    assert f"skep: {said} shown; there may be more" in capsys.readouterr().err


def test_a_query_longer_than_a_request_may_be(home: FakeSkep, capsys: Output) -> None:
    assert main(["search", "x" * 1_000_000]) == terminal.BAD_INPUT
    assert "1,000,000 characters; at most 10,000" in capsys.readouterr().err
    assert home.asked == []


def test_completion_for_shells(home: FakeSkep, capsys: Output) -> None:
    offers = Completions([Completion("repo:a/b ", 1, 6), Completion("repo:\x1b ", 1, 6)])
    home.on("GET", "/api/v1/search/complete", 200, offers)
    assert main(["search", "--complete", "--", "-repo:"]) == terminal.OK
    assert capsys.readouterr().out == "-repo:a/b\n-repo:␛\n"


def test_saved_searches(home: FakeSkep, capsys: Output) -> None:
    saved = SavedSearch("todo", "TODO -file:test", "skep.searches", "me", False, 1.0)
    home.on("PUT", "/api/v1/searches/todo", 200, saved)
    assert main(["searches", "save", "todo", "TODO", "-file:test", "--topic", "news"]) == terminal.OK
    assert home.asked[0].body == {"query": "TODO -file:test", "topic": "news", "first": False}
    assert "skep.searches" in capsys.readouterr().out
    home.on("GET", "/api/v1/searches", 200, Searches([saved]))
    assert main(["searches", "list"]) == terminal.OK
    assert "TODO -file:test" in capsys.readouterr().out
    home.on("DELETE", "/api/v1/searches/todo", 204, None)
    assert main(["searches", "remove", "todo"]) == terminal.OK
