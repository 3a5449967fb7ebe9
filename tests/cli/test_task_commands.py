"""`skep context|task|worker …` as a person and as a script meet them, against a running server."""

import asyncio
import io
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from skep.base.answers import Output, OutputChunk
from skep.cli.main import main
from skep.cli.parser import build
from skep.client import Client
from skep.config.settings import Settings
from skep.interfaces import terminal
from skep.runtime.isolation import find
from skep.tasks import cli
from skep.tasks.model import Task
from tests.cli.fake import Asked, FakeSkep
from tests.house.running import SKEP, RunningSkep, environment

Capture = pytest.CaptureFixture[str]
RELEASE = """
name = "release"
description = "what \\u001b[31mpeople\\u001b[0m wait for"
[properties]
colour = "gold"
[templates.quick]
kind = "noop"
[[tasks]]
name = "build"
template = "quick"
[[tasks]]
name = "ship"
template = "quick"
needs = [{ task = "build" }]
"""
WAITS = 'name = "waits"\n[[tasks]]\nname = "one"\nargv = ["sh"]\nselector = "cpu > 99999"\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSkep]:
    running = RunningSkep(tmp_path_factory.mktemp("task-skep") / "data", task_commands=["sh"], beat_every=10.0)
    yield running
    running.stop()


@pytest.fixture
def here(server: RunningSkep, monkeypatch: pytest.MonkeyPatch) -> RunningSkep:
    monkeypatch.setenv("SKEP_URL", server.url)
    monkeypatch.setenv("SKEP_TOKEN", server.token)
    return server


def rows(capsys: Capture, *args: str, code: int = terminal.OK) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main([*args[:2], "--json", *args[2:]]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def submitted(capsys: Capture, tmp_path: Path, text: str) -> str:
    (tmp_path / "context.toml").write_text(text)
    return str(rows(capsys, "context", "submit", str(tmp_path / "context.toml"))[0]["id"])


def test_a_context_from_a_file(here: RunningSkep, capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "release.toml").write_text(RELEASE)
    assert main(["context", "submit", str(tmp_path / "release.toml"), "--wait"]) == terminal.OK
    shown = capsys.readouterr()
    assert "FINISHED  release  2" in shown.out and "is submitted" in shown.err
    context = shown.out.split()[0]
    assert main(["context", "show", context]) == terminal.OK
    shown = capsys.readouterr()
    assert "colour=gold" in shown.out and "what ␛[31mpeople" in shown.out
    assert main(["context", "wait", context]) == terminal.OK
    assert main(["context", "list", "--state", "FINISHED", "--limit", "1"]) == terminal.OK
    assert context in capsys.readouterr().out
    view = rows(capsys, "context", "show", context)[0]
    assert view["needs"] == {"ship": ["build"]}
    assert main(["context", "remove", context]) == terminal.OK
    assert main(["context", "show", context]) == terminal.NOT_FOUND


def test_a_context_from_standard_input(here: RunningSkep, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(RELEASE))
    (context,) = rows(capsys, "context", "submit", "-", "--wait")
    assert context["state"] == "FINISHED"


def test_cancelling_retrying_and_waiting_in_vain(here: RunningSkep, capsys: Capture, tmp_path: Path) -> None:
    context = submitted(capsys, tmp_path, WAITS)
    assert main(["context", "wait", context, "--timeout", "1s"]) == terminal.UNAVAILABLE
    assert main(["context", "remove", context]) == terminal.REFUSED
    assert rows(capsys, "context", "cancel", context, "--reason", "enough")[0]["id"] == context
    assert main(["context", "wait", context]) == terminal.TASK_FAILED
    assert main(["context", "show", context]) == terminal.OK
    assert "enough" in capsys.readouterr().out
    assert rows(capsys, "context", "retry", context)[0]["state"] == "RUNNING"
    assert main(["context", "cancel", context]) == terminal.OK
    assert main(["context", "wait", context]) == terminal.TASK_FAILED


def test_one_task(here: RunningSkep, capsys: Capture) -> None:
    assert main(["task", "run", "--kind", "noop", "--name", "alone", "--follow"]) == terminal.OK
    assert "is submitted" in capsys.readouterr().err
    (made,) = rows(capsys, "task", "run", "--env", "A=b=c", "--priority", "2", "--", "ls", "-l", "--json", "--")
    made_task = str(made["task"])
    (view,) = rows(capsys, "task", "show", made_task)
    assert view["spec"] == {
        "name": "task-1", "argv": ["ls", "-l", "--json", "--"], "environment": {"A": "b=c"}, "priority": 2,
    }  # fmt: skip
    assert main(["task", "show", made_task]) == terminal.OK
    assert '["ls","-l","--json","--"]' in capsys.readouterr().out
    waits = str(rows(capsys, "task", "run", "--selector", "cpu > 99999", "--", "sh")[0]["task"])
    assert waits in [one["id"] for one in rows(capsys, "task", "list", "--state", "WAITING")]
    assert main(["task", "cancel", waits, "--reason", "too late"]) == terminal.OK
    assert "ABORTED" in capsys.readouterr().out
    assert main(["task", "output", waits, "--follow"]) == terminal.TASK_FAILED
    assert "too late" in capsys.readouterr().err
    assert main(["task", "list"]) == terminal.OK
    assert waits in capsys.readouterr().out


def test_what_a_command_writes_comes_out_where_it_was_written(here: RunningSkep) -> None:
    script = "printf 'honey \\303\\274\\n'; echo bees >&2; cat; exit $TASK_CODE"
    run = ["task", "run", "--follow", "--env"]
    done = here.cli(*run, "TASK_CODE=0", "--", "sh", "-c", script)
    assert (done.stdout, done.stderr.splitlines()[1:]) == ("honey ü\n", ["bees"])
    done = here.cli(*run, "TASK_CODE=3", "--", "sh", "-c", script, check=False)
    assert (done.returncode, done.stdout) == (terminal.TASK_FAILED, "honey ü\n")
    assert "exit code 3" in done.stderr


def test_workers(here: RunningSkep, capsys: Capture) -> None:
    (worker,) = rows(capsys, "worker", "list")
    name = worker["member"]["id"]  # type: ignore[index]  # an object
    assert main(["worker", "list"]) == terminal.OK
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["NAME", "STATE", "HEARD"] and "alive" in row and row.endswith(name)
    assert main(["worker", "show", name]) == terminal.OK
    shown = capsys.readouterr().out
    assert "noop" in shown and " GB, disk" in shown and "sampled_at" not in shown
    assert rows(capsys, "worker", "select", f'id == "{name}"')[0]["matches"] is True
    assert rows(capsys, "worker", "select", 'id == "x"', code=terminal.NOTHING_FOUND)[0]["matches"] is False
    assert main(["worker", "select", "cpu >= x"]) == terminal.BAD_INPUT
    assert "  cpu >= x\n         ^\n" in capsys.readouterr().err


BAD_FILES = {
    "name = ": "is not TOML",
    "name = 1": "name",
    'name = "c"\ncolour = "gold"': "colour",
    'name = "c"\n[[tasks]]\nargv = "ls"': "tasks[0].argv",
    'name = "c"': "without tasks",
    'name = "c"\n[[tasks]]\nneeds = [{task = "x"}]\nkind = "noop"': "needs 'x'",
    'name = "c"\n[[tasks]]\nkind = "noop"\nselector = "cpu >"': "column",
}


def test_files_that_are_no_context(here: RunningSkep, capsys: Capture, tmp_path: Path) -> None:
    for text, why in BAD_FILES.items():
        (tmp_path / "bad.toml").write_text(text)
        assert main(["context", "submit", str(tmp_path / "bad.toml")]) == terminal.BAD_INPUT, text
        assert why in capsys.readouterr().err, text
    (tmp_path / "bad.toml").write_bytes(b"\xff")
    for file in ("bad.toml", "nowhere.toml", "."):
        assert main(["context", "submit", str(tmp_path / file)]) == terminal.BAD_INPUT


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["task", "run"], terminal.BAD_INPUT),
        (["task", "run", "--retries", "-1", "--", "ls"], terminal.BAD_INPUT),
        (["task", "run", "--timeout", "soon", "--", "ls"], terminal.BAD_INPUT),
        (["task", "run", "--env", "A", "--", "ls"], terminal.BAD_INPUT),
        (["task", "run", "--source", "nowhere", "--", "ls"], terminal.NOT_FOUND),
        (["task", "run", "--selector", "bees", "--", "ls"], terminal.BAD_INPUT),
        (["task", "show", "tsk_1"], terminal.NOT_FOUND),
        (["task", "cancel", "tsk_1"], terminal.NOT_FOUND),
        (["task", "output", "tsk_1"], terminal.NOT_FOUND),
        (["task", "output", "tsk_1", "--follow"], terminal.NOT_FOUND),
        (["task", "output", "tsk_1", "--follow", "--attempt", "1"], terminal.BAD_INPUT),
        (["task", "list", "--state", "DONE"], terminal.BAD_INPUT),
        (["context", "wait", "ctx_1"], terminal.NOT_FOUND),
        (["context", "retry", "ctx_1"], terminal.NOT_FOUND),
        (["context", "cancel", "ctx_1"], terminal.NOT_FOUND),
        (["context", "remove", "ctx_1"], terminal.NOT_FOUND),
    ],
)
def test_mistakes_about_tasks_have_their_exit_codes(here: RunningSkep, args: list[str], code: int) -> None:
    assert main(args) == code


def test_output_goes_where_the_task_wrote_it(home: FakeSkep) -> None:
    chunks = [
        OutputChunk(1, 0, "stdout", 1.0, "honey ü\n"),
        OutputChunk(1, 1, "stderr", 1.0, "bees\n"),
        OutputChunk(1, 2, "stdout", 1.0, base64="/wA="),
    ]

    def answer(asked: Asked) -> tuple[int, Output]:
        after = int(asked.query["after"])
        left = [chunk for chunk in chunks if chunk.n > after][:2]
        return 200, Output(left, left[-1].n if left else after, "RUNNING")

    home.answer("GET", "/api/v1/tasks/tsk_1/output", answer)
    variables = environment({}) | {"SKEP_URL": home.url}
    done = subprocess.run([*SKEP, "task", "output", "tsk_1"], capture_output=True, env=variables, check=True)
    assert (done.stdout, done.stderr) == ("honey ü\n".encode() + b"\xff\x00", b"bees\n")
    assert [asked.query["after"] for asked in home.asked] == ["-1", "1", "2"]


def test_a_followed_task_ends_with_its_code(home: FakeSkep, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    failed = Task("tsk_1", "ctx_1", "one", "command", "FAILED", 1, 1, 0, "wrk_1", "it \x1b[2Jbroke", 1.0, 2.0, code=3)
    stream = b': following\n\nid: 1/0\ndata: {"attempt":1,"n":0,"stream":"stdout","at":1.0,"text":"honey\\n"}\n\n'
    home.on("GET", "/api/v1/tasks/tsk_1/output", 200, stream + b"event: ended\ndata: {}\n\n")
    home.on("GET", "/api/v1/tasks/tsk_1", 200, {"task": failed, "spec": {}, "moves": []})
    assert main(["task", "output", "tsk_1", "--follow"]) == terminal.TASK_FAILED
    shown = capsysbinary.readouterr()
    assert shown.out == b"honey\n"
    assert shown.err.decode() == "skep: tsk_1 is FAILED: it ␛[2Jbroke\n"


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_not_steered_by_a_task(home: FakeSkep, monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = [OutputChunk(1, 0, "stdout", 1.0, base64="YRtbMkrD"), OutputChunk(1, 1, "stdout", 1.0, base64="vApi")]
    home.answer(
        "GET",
        "/api/v1/tasks/tsk_1/output",
        lambda asked: (200, Output(chunks if asked.query["after"] == "-1" else [], 1, "FINISHED")),
    )
    screen = Screen()
    monkeypatch.setattr("sys.stdout", screen)
    args = build().parse_args(["task", "output", "tsk_1"])
    with Client() as client:
        assert cli.output(client, args) == terminal.OK
    assert screen.getvalue() == "a␛[2Jü\nb"


def test_who_changed_what(here: RunningSkep, capsys: Capture) -> None:
    assert main(["token", "create", "watcher", "--scope", "read"]) == terminal.OK
    capsys.readouterr()
    assert main(["audit", "token.create"]) == terminal.OK
    shown = capsys.readouterr().out
    assert "token.create" in shown and "watcher" in shown
    assert main(["audit", "nobody did this", "--json"]) == terminal.OK
    assert capsys.readouterr().out == ""


def test_status_with_a_worker_names_its_isolation(here: RunningSkep, capsys: Capture) -> None:
    wanted = asyncio.run(find(Settings())).name
    assert main(["status"]) == terminal.OK
    assert f" {wanted} " in capsys.readouterr().out
    with Client(here.url, here.token) as client:
        [worker] = client.workers.list()
        assert client.status().isolation == {worker.member.id: wanted}
        assert (worker.offer.facts["isolation"], worker.offer.facts["network"]) == (wanted, "no")
    assert main(["worker", "select", f'isolation == "{wanted}" and network == "no"']) == terminal.OK


def test_a_task_that_asks_for_the_network_in_vain_fails_with_the_setting(here: RunningSkep) -> None:
    done = here.cli("task", "run", "--follow", "--network", "--", "sh", "-c", "true", check=False)
    assert done.returncode == 1 and "asks for the network" in done.stderr
