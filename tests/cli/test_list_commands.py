"""`skep list`: what is sent and what is printed."""

import json

import pytest

from skep.base.answers import Page
from skep.cli.main import main
from skep.sources.model import ListedSource, ListProblem, SourceList
from tests.cli.fake import FakeSkep

LIST = SourceList("lst_1", "git", "https://example.org/l", "waiting", version="c1", entries=7, waiting=3, read_at=1.0)


@pytest.fixture(autouse=True)
def lists(home: FakeSkep) -> None:
    home.on("GET", "/api/v1/lists", 200, Page([LIST], ""))


def test_add(home: FakeSkep, capsys: pytest.CaptureFixture[str]) -> None:
    home.on("POST", "/api/v1/lists", 201, LIST)
    assert main(["list", "add", "github:org", "--no-forks", "--private"]) == 0
    assert home.asked[0].body == {"url": "github:org", "visibility": "private", "forks": False, "archived": True}
    assert capsys.readouterr().out == "lst_1  https://example.org/l\n"


def test_list_and_show(home: FakeSkep, capsys: pytest.CaptureFixture[str]) -> None:
    home.on("GET", "/api/v1/lists/lst_1/problems", 200, Page([ListProblem("a.yaml", 4, "no \x1b[31mURL")], ""))
    assert main(["list", "list"]) == 0
    assert "https://example.org/l" in capsys.readouterr().out
    assert main(["list", "show", "https://example.org/l"]) == 0
    out = capsys.readouterr().out
    assert "3 sources would be removed" in out and "a.yaml:4: no " in out and "\x1b" not in out
    assert main(["list", "show", "nothing"]) != 0


def test_entries(home: FakeSkep, capsys: pytest.CaptureFixture[str]) -> None:
    entry = ListedSource("a.yaml", 2, "x", "https://example.org/x", "src_1")
    home.on("GET", "/api/v1/lists/lst_1/entries", 200, Page([entry], ""))
    assert main(["list", "entries", "lst_1", "--gone", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["url"] == "https://example.org/x"
    assert home.asked[-1].query["gone"] == "true"


def test_confirm_read_remove(home: FakeSkep) -> None:
    home.on("POST", "/api/v1/lists/lst_1/confirm", 202, LIST)
    home.on("POST", "/api/v1/lists/lst_1/read", 202, LIST)
    home.on("DELETE", "/api/v1/lists/lst_1", 204)
    assert main(["list", "confirm", "lst_1", "--yes"]) == 0
    assert home.asked[-1].body == {"version": "c1"}
    assert main(["list", "read", "lst_1"]) == 0
    assert main(["list", "remove", "lst_1", "--yes"]) == 0
