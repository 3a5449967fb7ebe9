"""`skep space …` as a person and as a script meet it, against a running server."""

import json
from collections.abc import Iterator

import pytest

from skep.base.errors import BadInput
from skep.cli.main import main
from skep.interfaces import terminal
from skep.spaces.api import Typed
from skep.spaces.cli import field, part
from tests.house.running import RunningSkep

Output = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSkep]:
    running = RunningSkep(tmp_path_factory.mktemp("space-skep") / "data")
    yield running
    running.stop()


@pytest.fixture
def here(server: RunningSkep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_URL", server.url)
    monkeypatch.setenv("SKEP_TOKEN", server.token)


def run(capsys: Output, *args: str, code: int = terminal.OK) -> list[object]:
    capsys.readouterr()
    assert main(["space", *args]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_put_query_get_drop(here: None, capsys: Output) -> None:
    assert run(capsys, "put", "jobs", "job", "1", "1.5", "true", "str:1") == [1]
    assert run(capsys, "put", "jobs", "job", "-2", "--json") == [{"seq": 2}]
    assert run(capsys, "query", "jobs", ":str", ":int", "1.5", ":bool", "str:1") == [["job", 1, 1.5, True, "1"]]
    assert run(capsys, "query", "jobs", "job", ":any", "--all") == [["job", -2]]
    assert run(capsys, "get", "jobs", "job", "-2", "--wait", "1s") == [["job", -2]]
    assert run(capsys, "get", "jobs", "job", ":any", code=terminal.NOTHING_FOUND) == []
    assert run(capsys, "query", "jobs", "job", ":any", code=terminal.NOTHING_FOUND) == []
    assert {"name": "jobs", "size": 1, "taken": 0} in run(capsys, "list", "--json")
    assert run(capsys, "get", "jobs", ":any", ":any", ":any", ":any", ":any", "--all") == [["job", 1, 1.5, True, "1"]]
    assert main(["space", "list"]) == terminal.OK
    assert "TUPLES" in capsys.readouterr().out
    assert main(["space", "drop", "jobs"]) == terminal.OK
    assert main(["space", "drop", "jobs"]) == terminal.NOT_FOUND
    assert main(["space", "get", "jobs", ":list"]) == terminal.BAD_INPUT


def test_words() -> None:
    words = ["1", "-1", "1.", ".5", "1e3", "true", "false", "True", "str:1", "str:", "1x", "1-2", "nan", "inf"]
    values = [1, -1, 1.0, 0.5, 1000.0, True, False, "True", "1", "", "1x", "1-2", "nan", "inf"]
    assert [field(word) for word in words] == values
    assert [type(field(word)) for word in words] == [type(value) for value in values]
    assert part(":float") == Typed("float")
    assert part("str::int") == ":int"
    with pytest.raises(BadInput, match="no type"):
        part(":list")
