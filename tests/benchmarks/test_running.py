"""Benchmarks of a running Skep by its command line: own code, evaluators, a webhook, a bisect by wish."""

import re
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.base.errors import BadInput
from skep.benchmarks.api import Step
from skep.client import Client
from skep.tasks.model import ContextSpec, TaskSpec
from tests.benchmarks.slow_repo import slow_repo
from tests.house.running import RunningSkep
from tests.support.forge.repository import Repo

EXAMPLES = Path(__file__).parents[2] / "examples" / "benchmark"


@pytest.fixture
def hook() -> Iterator[tuple[str, list[Step]]]:
    """Refuses the first time, as hooks do."""
    heard: list[Step] = []
    asked: list[str] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            asked.append(self.path)
            if len(asked) > 1:
                heard.append(msgspec.json.decode(body, type=Step))
            self.send_response(204 if len(asked) > 1 else 503)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/steps", heard
        finally:
            server.shutdown()
            thread.join()


def wait(skep: RunningSkep, holds: Any, within: float = 180.0) -> Any:
    until = time.monotonic() + within
    while time.monotonic() < until:
        with Client(skep.url, skep.token) as client:
            if found := holds(client):
                return found
        time.sleep(0.2)
    raise AssertionError(f"it did not come to that{skep.tail()}")


def test_a_benchmark_by_its_own_code_and_evaluators_of_it(skep: RunningSkep, tmp_path: Path) -> None:
    repo = Repo.init(tmp_path / "repo")
    for n in range(6):
        repo.commit({"a": f"{n}".encode()}, message=f"takes {1.0 + n / 100 if n < 4 else 2.5}")
    skep.cli("source", "add", str(repo.folder))
    toml = tmp_path / "halves.toml"
    toml.write_text((EXAMPLES / "halves.toml").read_text().replace("github.com/you/project", str(repo.folder)))
    with Client(skep.url, skep.token) as client:
        client.sources.wait(str(repo.folder), timeout=60)
    skep.cli("benchmark", "add", str(toml), "--code", str(EXAMPLES / "halves.py"))
    one = wait(skep, lambda client: (one := client.benchmarks.show("halves")).state != "running" and one)
    assert (one.state, one.contexts, one.failed) == ("finished", 5, 0), (one, skep.tail())
    page = "<script>alert(1)</script>"
    code = f"from skep import task; task.evaluation('page', {page!r}.encode(), 'text/html')"
    tasks = [
        *(TaskSpec(plot, "evaluate", arguments={"benchmark": "halves", "plot": plot}) for plot in ("series", "table")),
        TaskSpec("own", argv=(sys.executable, "-c", code), properties={"skep.benchmark": "halves"}),
    ]
    wrong = TaskSpec("wrong", "evaluate", arguments={"benchmark": "halves", "plot": "nothing"})
    with Client(skep.url, skep.token) as client:
        with pytest.raises(BadInput, match="Invalid enum value 'nothing'"):
            client.tasks.submit(wrong)
        context = client.contexts.submit(ContextSpec("draw", tuple(tasks)))
        client.contexts.wait(context.id, 60)
        states = {task.name: (task.state, task.reason) for task in client.contexts.show(context.id).tasks}
        files = {file.name: file for file in client.benchmarks.evaluations("halves")}
    assert {name: file.mime for name, file in files.items()} == {
        "series.svg": "image/svg+xml",
        "table.csv": "text/csv",
        "page": "text/html",
    }, (states, skep.tail())
    for name, part in (("series.svg", b"2.5 s"), ("table.csv", b",2.5,s"), ("page", b"<script>")):
        headers, body = _fetch(skep, f"/evaluations/{files[name].id}")
        assert part in body
        assert headers["content-type"].startswith(files[name].mime)
        assert headers.get_all("content-security-policy") == [
            "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
        ]
        assert headers["x-content-type-options"] == "nosniff"
    headers, body = _fetch(skep, "/benchmarks/halves")
    assert b"Evaluations" in body
    assert b"/evaluations/" + files["page"].id.encode() in body


def _fetch(skep: RunningSkep, path: str) -> tuple[Any, bytes]:
    request = urllib.request.Request(skep.url + path, headers={"Authorization": f"Bearer {skep.token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.headers, answer.read()


def test_a_push_is_measured_and_a_bisect_tells_a_webhook_once(
    skep: RunningSkep, tmp_path: Path, hook: tuple[str, list[Step]]
) -> None:
    url, heard = hook
    repo, commits = slow_repo(tmp_path / "repo", 20, 13, change=0.3)
    skep.cli("source", "add", str(repo.folder))
    with Client(skep.url, skep.token) as client:
        client.sources.wait(str(repo.folder), timeout=60)
    package = tmp_path / "package"
    package.mkdir()
    (package / "run.sh").write_text('exec python3 "$@"\n')
    (package / "skep-package.toml").write_text(
        'group = "org.example"\nname = "runner"\nversion = "1"\n[commands]\nrun = ["sh", "run.sh"]\n'
    )
    skep.cli("package", "push", str(package))
    file = tmp_path / "speed.toml"
    file.write_text(
        f'[[benchmark]]\nname = "speed"\nsource = "{repo.folder}"\ncommand = ["bench.py"]\n'
        f'package = "org.example/runner/1"\nread = "out.jsonl"\nrepetitions = 3\nwarmup = 0\nwebhook = "{url}"\n'
    )
    skep.cli("benchmark", "add", str(file))
    wait(skep, lambda client: client.benchmarks.show("speed").contexts == 1)
    skep.cli("benchmark", "bisect", "speed", f"{commits[0]}..main")
    (step,) = wait(skep, lambda client: [one for one in client.benchmarks.steps("speed") if one.state == "told"])
    assert (step.commit, step.previous) == (commits[13], commits[12]), skep.tail()
    assert step.change == pytest.approx(0.3, abs=0.05)
    newer = repo.commit({"count": b"newer"})
    skep.cli("source", "fetch", str(repo.folder))
    shown = wait(skep, lambda client: list(client.results.list([f"commit={newer}", "kind=measure"])))
    assert shown[0].tags["base"] == commits[-1]
    assert "base_values" in shown[0].tags
    wait(skep, lambda _: heard)
    assert [one.commit for one in heard] == [commits[13]]
    assert "speed" in skep.cli("benchmark", "list").stdout
    told = skep.cli("benchmark", "show", "speed").stdout
    assert commits[13][:12] in told
    # 30 %, and the noise of few measurements, which is another one for each task
    (change,) = re.findall(r"\+(\d+)\.\d%", told)
    assert 20 <= int(change) <= 40, told
    before = skep.rows("benchmark", "show", "speed")[0]["contexts"]
    skep.cli("benchmark", "run", "speed", commits[13], "--again")
    skep.cli("benchmark", "bisect", "speed", f"{commits[13]}..{commits[13]}")
    one = wait(skep, lambda client: (one := client.benchmarks.show("speed")).reason and one)
    assert one.reason == f"no difference between {commits[13][:12]} and {commits[13][:12]}"
    assert one.contexts == before + 1, "wishes are answered in turn, and `again` is once"
    assert one.reason in skep.cli("benchmark", "show", "speed").stdout
    skep.cli("benchmark", "bisect", "speed", "nothing..main")
    wait(skep, lambda client: client.benchmarks.show("speed").reason == "nothing or main was not measured")
    skep.cli("benchmark", "pause", "speed")
    assert skep.rows("benchmark", "show", "speed")[0]["state"] == "paused"
    skep.cli("benchmark", "remove", "speed")
    assert skep.cli("benchmark", "show", "speed", check=False).returncode != 0
