"""The commands in this process, against a real socket: what they print, and how they end."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from skep.base.answers import Added, BulkAnswer, BulkItem, Fetching, NewToken, Page, Status, TokenInfo
from skep.base.errors import BadQuery, BadUrl, Busy, Conflict, NeedsToken, NoSpace, NotAllowed, NotFound, SkepError
from skep.cli.main import main
from skep.cli.parser import FullCommand, build
from skep.interfaces import terminal
from skep.search.api import Hit, SearchAnswer
from skep.sources.cli import addresses
from skep.sources.model import Failure, Progress
from skep.storage.code_index.model import Line
from tests.cli.fake import SOURCE, Asked, FakeSkep

#: where the modules stand that are named in tables
_MODULES = {
    "admin": "skep.status.cli",
    "autoscale": "skep.fleet.cli",
    "benchmark": "skep.benchmarks.cli",
    "ca": "skep.cli.local",
    "commands": "skep.cli.commands",
    "completion": "skep.cli.local",
    "context": "skep.tasks.cli",
    "credential": "skep.sources.cli",
    "dataone": "skep.dataone.cli",
    "exits": "skep.interfaces.terminal",
    "files": "skep.interfaces.input_files",
    "listing": "skep.interfaces.terminal",
    "lists": "skep.sources.cli",
    "log": "skep.spaces.processes",
    "main": "skep.cli.main",
    "member": "skep.fleet.cli",
    "package": "skep.packages.cli",
    "parser": "skep.cli.parser",
    "plot": "skep.interfaces.terminal",
    "query": "skep.search.cli",
    "reference": "skep.cli.local",
    "report": "skep.analysis.service",
    "result": "skep.results.cli",
    "rule": "skep.rules.cli",
    "search": "skep.search.cli",
    "server": "skep.cli.local",
    "settings": "skep.cli.local",
    "simulate": "skep.sources.polling.simulate",
    "source": "skep.sources.cli",
    "space": "skep.spaces.cli",
    "task": "skep.tasks.cli",
    "terminal": "skep.interfaces.terminal",
    "token": "skep.access.cli",
    "topic": "skep.topics.cli",
    "worker": "skep.fleet.cli",
}


#: functions that are called otherwise in their modules
_NAMES = {
    ("lists", "listing"): "lists_listing",
    ("lists", "remove"): "lists_remove",
    ("settings", "show"): "settings_show",
    ("source", "add"): "source_add",
    ("source", "listing"): "source_listing",
    ("source", "remove"): "source_remove",
    ("source", "show"): "source_show",
    ("task", "cancel"): "task_cancel",
    ("task", "listing"): "task_listing",
    ("task", "show"): "task_show",
}


Output = pytest.CaptureFixture[str]
LINES = (Line(3, 5, "a needle \x1b[31m", ((2, 8),)), Line(12, 1, "needle", ((0, 6),)))
HIT = Hit("src_01", "example.org/a/b", "src/x.py", "main", "c" * 40, 7.5, "b" * 40, LINES)


def search_answers(home: FakeSkep, *hits: Hit, partial: bool = False) -> None:
    lines = sum(len(hit.lines) for hit in hits)
    home.on("GET", "/api/v1/search", 200, SearchAnswer(list(hits), lines, partial, 0.01))


def test_search_for_programs(home: FakeSkep, capsys: Output) -> None:
    search_answers(home, HIT, partial=True)
    assert main(["search", "needle", "-path:test", "--json", "--lines", "7"]) == terminal.OK
    output = capsys.readouterr()
    objects = [json.loads(line) for line in output.out.splitlines()]
    assert [(one["line"], one["column"], one["text"]) for one in objects] == [
        (3, 5, "a needle \x1b[31m"),
        (12, 1, "needle"),
    ]
    assert {"source", "path", "line", "column", "text", "commit", "fetched_at", "name", "branch"} <= set(objects[0])
    assert "there may be more" in output.err
    assert home.asked[0].query == {"q": "needle -path:test", "lines": "7"}


def test_search_for_pipes_never_passes_control_characters_on(home: FakeSkep, capsys: Output) -> None:
    search_answers(home, HIT)
    assert main(["search", "needle"]) == terminal.OK
    assert capsys.readouterr().out.splitlines() == [
        "example.org/a/b:src/x.py:3:5:a needle ␛[31m",
        "example.org/a/b:src/x.py:12:1:needle",
    ]


def test_search_for_people(home: FakeSkep, capsys: Output) -> None:
    search_answers(home, HIT)
    assert main(["search", "needle", "--color", "always"]) == terminal.OK
    output = capsys.readouterr().out
    assert "\x1b[1;31mneedle\x1b[0m ␛[31m" in output
    assert "\x1b[32m 3\x1b[0m  a " in output


def test_a_file_found_by_name_has_no_line(home: FakeSkep, capsys: Output) -> None:
    search_answers(home, msgspec.structs.replace(HIT, lines=()))
    assert main(["search", "path:x"]) == terminal.OK
    assert capsys.readouterr().out == "example.org/a/b:src/x.py\n"
    assert main(["search", "path:x", "--json"]) == terminal.OK
    assert json.loads(capsys.readouterr().out)["line"] is None


def test_nothing_found(home: FakeSkep, capsys: Output) -> None:
    search_answers(home)
    assert main(["search", "x"]) == terminal.NOTHING_FOUND
    assert capsys.readouterr().out == ""


def test_a_bad_query_is_pointed_at(home: FakeSkep, capsys: Output) -> None:
    home.fail("GET", "/api/v1/search", BadQuery("missing )", hint="close it", column=5))
    assert main(["search", "/ab(/", "x"]) == terminal.BAD_INPUT
    assert capsys.readouterr().err.splitlines() == ["skep: missing )", "  /ab(/ x", "      ^", "hint: close it"]
    home.fail("GET", "/api/v1/search", BadQuery("missing )", column=5001))
    assert main(["search", f"{'a' * 5000}/ab(/{'c' * 4000}"]) == terminal.BAD_INPUT
    _, text, caret = capsys.readouterr().err.splitlines()
    assert len(text) < 250
    assert text[caret.index("^") :].startswith("/ab(/c")


def test_an_empty_query_and_no_lines_are_for_the_server_to_refuse(home: FakeSkep) -> None:
    home.fail("GET", "/api/v1/search", BadQuery("the query is empty"))
    assert main(["search", "", "--lines", "0"]) == terminal.BAD_INPUT
    assert home.asked[0].query == {"q": "", "lines": "0"}


@pytest.mark.parametrize("words", [["search"], ["source", "add"], ["source", "show"], ["searches", "save", "x"]])
@pytest.mark.usefixtures("home")
def test_what_is_not_utf8_cannot_be_sent(words: list[str], capsys: Output) -> None:
    assert main([*words, "caf\udce9"]) == terminal.BAD_INPUT
    assert capsys.readouterr().err.startswith("skep: this is not UTF-8: \\udce9")


CODES = [
    (BadUrl("x"), 2), (NotFound("x"), 3), (NeedsToken("x"), 4), (NotAllowed("x"), 4), (Busy("x"), 5),
    (Conflict("x"), 7), (NoSpace("x"), 7),
]  # fmt: skip


@pytest.mark.parametrize(("error", "code"), CODES, ids=[type(error).__name__ for error, _ in CODES])
def test_every_error_has_its_exit_code_and_no_traceback(
    home: FakeSkep, capsys: Output, error: SkepError, code: int
) -> None:
    home.fail("GET", "/api/v1/status", error)
    assert main(["status"]) == code
    assert capsys.readouterr().err.startswith("skep: x\n")


def test_no_server(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    monkeypatch.setenv("SKEP_URL", "http://127.0.0.1:1")
    assert main(["search", "x"]) == terminal.UNAVAILABLE
    assert "is `skep up` running?" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [[], ["serach"], ["search"], ["source", "add", "--upload-pack=x"]])
def test_usage(argv: list[str], capsys: Output) -> None:
    with pytest.raises(SystemExit) as end:
        main(argv)
    assert end.value.code == terminal.BAD_INPUT
    assert "usage:" in capsys.readouterr().err


def test_add_makes_paths_absolute_and_leaves_urls_alone(home: FakeSkep, tmp_path: Path) -> None:
    home.on("POST", "/api/v1/sources", 201, Added(SOURCE, created=True))
    (tmp_path / "here").mkdir()
    urls = ["./here", "here", "../x", "~/y", "https://example.org/a", "git@example.org:a/b", "ext::sh -c x"]
    assert main(["source", "add", *urls, "--private", "--label", "l"]) == terminal.OK
    assert [asked.body["url"] for asked in home.asked] == [
        str(tmp_path / "here"), str(tmp_path / "here"), str(tmp_path.parent / "x"), str(Path.home() / "y"), *urls[4:],
    ]  # fmt: skip
    assert (home.asked[0].body["visibility"], home.asked[0].body["labels"]) == ("private", ["l"])


def test_add_goes_on_after_a_bad_url(home: FakeSkep, capsys: Output) -> None:
    def answer(asked: Asked) -> tuple[int, object]:
        if asked.body["url"] == "bad":
            return 400, {"error": {"code": "bad_url", "message": "'bad' is no URL"}}
        return 201, Added(SOURCE, created=True)

    home.answer("POST", "/api/v1/sources", answer)
    assert main(["source", "add", "bad", "https://example.org/a/b"]) == terminal.BAD_INPUT
    output = capsys.readouterr()
    assert output.err == "skep: 'bad' is no URL\n"
    assert output.out == "src_01  example.org/a/b  added\n"


def test_add_and_wait_shows_the_stages_and_ends_searchable(home: FakeSkep, capsys: Output) -> None:
    stages = [Progress("clone", 1, 2), Progress("clone", 2, 2), Progress("index", 0, 9), None]

    def wait(_: Asked) -> tuple[int, object]:
        stage = stages.pop(0)
        source = msgspec.structs.replace(SOURCE, progress=stage, state="cloning" if stage else "current")
        return 200, {"source": source, "settled": stage is None}

    home.on("POST", "/api/v1/sources", 201, Added(SOURCE, created=True))
    home.answer("GET", "/api/v1/sources/src_01/wait", wait)
    assert main(["source", "add", SOURCE.url, "--wait"]) == terminal.OK
    output = capsys.readouterr()
    assert output.err.splitlines() == ["example.org/a/b: clone", "example.org/a/b: index"]
    assert output.out == "src_01  example.org/a/b  is searchable\n"


def test_a_failing_source_ends_the_wait_with_its_own_code(home: FakeSkep, capsys: Output) -> None:
    failing = msgspec.structs.replace(SOURCE, state="failing", failure=Failure("gone", "the server says 404"))
    home.on("POST", "/api/v1/sources/src_01/fetch", 202, Fetching(SOURCE, 7.5))
    home.on("GET", "/api/v1/sources/src_01/wait", 200, {"source": failing, "settled": True})
    assert main(["source", "fetch", "src_01", "--commit", "abc1234", "--json"]) == terminal.FAILED_SOURCE
    output = capsys.readouterr()
    assert json.loads(output.out)["state"] == "failing"
    assert "the server says 404" in output.err
    assert (home.asked[-1].query["looked_after"], home.asked[-1].query["commit"]) == ("7.5", "abc1234")


def test_a_url_is_fetched_whether_it_is_known_or_not(home: FakeSkep, capsys: Output) -> None:
    home.on("POST", "/api/v1/fetch", 202, Fetching(SOURCE, 7.5))
    assert main(["fetch", SOURCE.url, "--private"]) == terminal.OK
    assert home.asked[-1].body == {"url": SOURCE.url, "visibility": "private"}
    assert "will be looked at now" in capsys.readouterr().out


def test_a_file_of_urls_is_added_and_each_has_its_status(home: FakeSkep, capsys: Output, tmp_path: Path) -> None:
    items = [BulkItem("https://h.org/a", "added", "src_1"), BulkItem("ftp://h.org/b", "refused", reason="no such one")]
    home.on("POST", "/api/v1/sources/bulk", 200, BulkAnswer(items))
    (tmp_path / "urls.txt").write_text("# ours\n\nhttps://h.org/a  # the first\nftp://h.org/b\n")
    assert main(["source", "add", "--file", str(tmp_path / "urls.txt"), "--label", "x"]) == terminal.BAD_INPUT
    assert [one["url"] for one in home.asked[-1].body["sources"]] == ["https://h.org/a", "ftp://h.org/b"]
    assert home.asked[-1].body["sources"][0]["labels"] == ["x"]
    out = capsys.readouterr().out.splitlines()
    assert out == ["added  https://h.org/a", "refused  ftp://h.org/b  no such one"]
    assert main(["source", "add"]) == terminal.BAD_INPUT
    assert main(["source", "add", "--file", "nowhere", "--wait"]) == terminal.BAD_INPUT
    assert main(["source", "add", "--file", str(tmp_path / "nowhere")]) == terminal.BAD_INPUT


def test_remarks_in_a_file_of_urls() -> None:
    assert addresses(["https://h.org/a#b\n", " #x\n", "# y\n", "\n", "h:p # z\n"]) == ["https://h.org/a#b", "h:p"]


def test_list_for_programs_and_people(home: FakeSkep, capsys: Output) -> None:
    home.on("GET", "/api/v1/sources", 200, Page([SOURCE]))
    assert main(["source", "list", "--json"]) == terminal.OK
    one = json.loads(capsys.readouterr().out)
    assert {key: one[key] for key in ("id", "url", "state", "last_fetched", "next_poll")} == {
        "id": "src_01", "url": SOURCE.url, "state": "current", "last_fetched": 2.0, "next_poll": 3.0,
    }  # fmt: skip
    assert main(["source", "list"]) == terminal.OK
    assert "example.org/a/b  current" in capsys.readouterr().out


def test_show_update_and_remove(home: FakeSkep, capsys: Output) -> None:
    home.on("GET", "/api/v1/source", 200, SOURCE)
    home.on("PATCH", "/api/v1/sources/src_01", 200, SOURCE)
    home.on("DELETE", "/api/v1/sources/src_01", 204)
    assert main(["source", "show", SOURCE.name]) == terminal.OK
    assert "searchable cccc" in capsys.readouterr().out
    assert main(["source", "update", SOURCE.name, "--label", "", "--public"]) == terminal.OK
    assert home.asked[-1].body == {"visibility": "public", "labels": []}
    given = ("priority=100", "poll_max=0.5", "branches=main,v*", "force_push=ask", "refs=")
    assert main(["source", "update", SOURCE.name, *(word for one in given for word in ("--set", one))]) == terminal.OK
    said = {"priority": 100, "poll_max": 0.5, "branches": ["main", "v*"], "force_push": "ask", "refs": None}
    assert home.asked[-1].body == {"settings": said}
    assert main(["source", "update", SOURCE.name]) == terminal.BAD_INPUT
    assert main(["source", "remove", SOURCE.name]) == terminal.OK
    assert home.asked[-1].method == "DELETE"


def test_status_tokens_and_topics(home: FakeSkep, capsys: Output) -> None:
    info = TokenInfo("abc", "ci", ["read"], 1.0)
    home.on("GET", "/api/v1/status", 200, Status("1.0", 1.0, {"current": 2}, [], 1, 2, 3, 0))
    home.on("POST", "/api/v1/tokens", 201, NewToken("tok", info))
    home.on("GET", "/api/v1/tokens", 200, Page([info]))
    home.on("DELETE", "/api/v1/tokens/abc", 204)
    message = {"offset": 4, "at": 1.0, "id": "i", "key": "k", "headers": {}, "body": {"a": 1}}
    home.on("GET", "/api/v1/topics/skep.changes/messages", 200, {"messages": [message], "first": 0, "next": 5})
    assert main(["status"]) == terminal.OK
    assert "sources    2 (2 current)" in capsys.readouterr().out
    assert main(["token", "create", "ci", "--scope", "read", "--expires", "30d"]) == terminal.OK
    assert capsys.readouterr().out == "tok\n"
    assert home.asked[-1].body == {"subject": "ci", "scopes": ["read"], "expires_in": 2_592_000.0}
    assert main(["token", "create", "ci", "--scope", "read", "--expires", "soon"]) == terminal.BAD_INPUT
    assert main(["token", "list"]) == terminal.OK
    assert main(["token", "revoke", "abc"]) == terminal.OK
    capsys.readouterr()
    assert main(["topic", "read", "skep.changes", "--offset", "4", "--json"]) == terminal.OK
    assert json.loads(capsys.readouterr().out)["body"] == {"a": 1}


def test_config_prints_values_and_origins_but_no_password(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    monkeypatch.setenv("SKEP_DATABASE", "postgresql://me:secret@example.org/skep")
    assert main(["config", "--poll-min", "5"]) == terminal.OK
    output = " ".join(capsys.readouterr().out.split())
    assert "secret" not in output
    assert '"postgresql://me:***@example.org/skep" SKEP_DATABASE' in output
    assert main(["config", "--json", "--poll-min", "5"]) == terminal.OK
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"name": "poll_min", "value": 5.0, "origin": "--poll-min"} in rows
    assert main(["config", "--poll-min", "x"]) == terminal.BAD_INPUT


def test_every_command_leads_somewhere() -> None:
    def runs(parser: FullCommand) -> list[str]:
        below = [child for action in parser._actions if action.nargs == "A..." for child in action.choices.values()]  # type: ignore[union-attr]
        return [run for child in below for run in runs(child)] + [parser.get_default("run") or ""]

    named = [run.split(":") for run in runs(build(FullCommand)) if run]  # type: ignore[arg-type]
    assert len(named) > 10
    for module, function in named:
        assert callable(getattr(import_module(_MODULES[module]), _NAMES.get((module, function), function)))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_completion(shell: str, capsys: Output) -> None:
    assert main(["completion", shell]) == terminal.OK
    script = capsys.readouterr().out
    assert "search" in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
        offers = r"skep() { echo 'repo:^local/a\+b (c)$'; }; COMP_LINE='skep search repo:a' COMP_POINT=18"
        asks = f"{script}\n{offers}\neval echo repo:$(_skep_query)"
        typed = subprocess.run(["bash", "-c", asks], capture_output=True, text=True, check=True)
        assert typed.stdout == "repo:^local/a\\+b (c)$\n", "what the shell makes of what is typed"


def test_a_closed_pipe_is_quiet(home: FakeSkep) -> None:
    search_answers(home, *[HIT] * 5_000)
    command = f"'{sys.executable}' -m skep search x | head -n 1"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert (len(ended.stdout.splitlines()), ended.stderr) == (1, "")


def test_searching_imports_nothing_heavy(home: FakeSkep) -> None:
    search_answers(home, HIT)
    heavy = {"asyncio", "litestar", "uvicorn", "numpy", "grpc", "apsw", "jinja2", "shtab", "tomllib"}
    code = f"import sys; from skep.cli.main import main; main(['search', 'x']); print({heavy} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "set()"
