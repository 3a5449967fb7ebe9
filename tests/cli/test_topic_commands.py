"""`skep topic …` as a person and as a script meet it, against a running server."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import skep.client
from skep.cli.main import main
from skep.client import Client, Consumer
from skep.interfaces import terminal
from tests.house.running import SKEP, RunningSkep, environment

Output = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSkep]:
    running = RunningSkep(tmp_path_factory.mktemp("topic-skep") / "data")
    yield running
    running.stop()


@pytest.fixture
def here(server: RunningSkep, monkeypatch: pytest.MonkeyPatch) -> RunningSkep:
    monkeypatch.setenv("SKEP_URL", server.url)
    monkeypatch.setenv("SKEP_TOKEN", server.token)
    return server


def rows(capsys: Output, *args: str, code: int = terminal.OK) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main(["topic", *args, "--json"]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_making_publishing_reading_and_trimming(here: RunningSkep, capsys: Output, tmp_path: Path) -> None:
    assert main(["topic", "create", "news", "--partitions", "2", "--retain", "2d"]) == terminal.OK
    assert capsys.readouterr().out == "made news with 2 partitions\n"
    assert main(["topic", "create", "news"]) == terminal.REFUSED
    assert main(["topic", "publish", "news", '{"a": 1}', "--partition", "1", "--key", "k"]) == terminal.OK
    assert capsys.readouterr().out == "1/0\n"
    (tmp_path / "message.txt").write_text("two\nlines")
    assert rows(capsys, "publish", "news", "--file", str(tmp_path / "message.txt"), "--partition", "1") == [
        {"partition": 1, "offset": 1}
    ]
    bodies = [(one["body"], one["key"]) for one in rows(capsys, "read", "news", "--partition", "1")]
    assert bodies == [({"a": 1}, "k"), ("two\nlines", "")]
    assert rows(capsys, "read", "news", "--wait", "1s") == []
    assert main(["topic", "trim", "news", "--before", "1", "--partition", "1"]) == terminal.OK
    assert capsys.readouterr().out.startswith("partition 1 begins at 1;")
    assert main(["topic", "read", "news", "--partition", "1"]) == terminal.OK
    shown = capsys.readouterr()
    assert shown.out.startswith("1  ")
    assert '"two\\nlines"' in shown.out
    assert "before 1 were trimmed" in shown.err


def test_lists_and_views(here: RunningSkep, capsys: Output) -> None:
    (made,) = rows(capsys, "create", "views", "--retain-bytes", "5000")
    assert made["retain_bytes"] == 5000
    assert {"views", "skep.changes"} <= {str(one["name"]) for one in rows(capsys, "list")}
    assert main(["topic", "list"]) == terminal.OK
    assert "5000 bytes" in capsys.readouterr().out
    assert main(["topic", "publish", "views", "hello"]) == terminal.OK
    with Client() as client, Consumer("views", client, group="readers") as consumer:
        assert next(consumer).body == "hello"
    assert main(["topic", "show", "views"]) == terminal.OK
    assert "groups  readers" in capsys.readouterr().out
    assert rows(capsys, "show", "views")[0]["groups"] == ["readers"]
    assert [(one["group"], one["lag"]) for one in rows(capsys, "lag", "views")] == [("readers", 0)]
    assert main(["topic", "lag", "views", "readers"]) == terminal.OK
    assert "readers  0" in capsys.readouterr().out
    assert main(["topic", "lag", "views", "nobody"]) == terminal.NOT_FOUND


def test_lines_of_standard_input(here: RunningSkep, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["topic", "create", "lines"]) == terminal.OK
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"line {n}\n" for n in range(700))))
    assert len(rows(capsys, "publish", "lines", "-")) == 700
    assert [one["body"] for one in rows(capsys, "read", "lines", "--offset", "698")] == ["line 698", "line 699"]


def test_following(here: RunningSkep) -> None:
    assert main(["topic", "create", "live"]) == terminal.OK
    assert main(["topic", "publish", "live", "old"]) == terminal.OK
    variables = environment({}) | {"SKEP_URL": here.url, "SKEP_TOKEN": here.token}
    command = [*SKEP, "topic", "follow", "live", "--offset", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["body"] == "old"
        assert main(["topic", "publish", "live", "new"]) == terminal.OK
        assert json.loads(process.stdout.readline())["body"] == "new"
        process.terminate()


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["publish", "news"], terminal.BAD_INPUT),
        (["publish", "news", "x", "--file", "y"], terminal.BAD_INPUT),
        (["publish", "news", "--file", "/nowhere"], terminal.BAD_INPUT),
        (["publish", "nowhere", "x"], terminal.NOT_FOUND),
        (["publish", "skep.changes", "x"], terminal.NOT_ALLOWED),
        (["create", "a/b"], terminal.BAD_INPUT),
        (["create", "ok", "--partitions", "0"], terminal.BAD_INPUT),
        (["create", "ok", "--retain", "soon"], terminal.BAD_INPUT),
        (["read", "nowhere"], terminal.NOT_FOUND),
        (["read", "skep.changes", "--offset", "-1"], terminal.BAD_INPUT),
        (["read", "skep.changes", "--partition", "9"], terminal.BAD_INPUT),
        (["follow", "nowhere"], terminal.NOT_FOUND),
        (["show", "nowhere"], terminal.NOT_FOUND),
    ],
)
def test_mistakes_have_their_exit_codes(here: RunningSkep, args: list[str], code: int) -> None:
    assert main(["topic", *args]) == code


def test_without_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_URL", "http://127.0.0.1:1")
    assert main(["topic", "follow", "news", "--offset", "0"]) == terminal.UNAVAILABLE
    assert main(["topic", "publish", "news", "x"]) == terminal.UNAVAILABLE


def test_commands_do_not_pay_for_producers_and_consumers() -> None:
    code = "import sys, skep.client, skep.topics.cli; print([m for m in sys.modules if m.startswith('skep.client.')])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "skep.client.topics" in loaded
    assert not {"producer", "consumer", "queue", "asynchronous"} & set(loaded.replace("'", ".").split("."))


def test_names_of_the_library() -> None:
    for name in skep.client.__all__:
        assert getattr(skep.client, name).__name__ == name
    with pytest.raises(AttributeError):
        skep.client.Nobody  # noqa: B018
