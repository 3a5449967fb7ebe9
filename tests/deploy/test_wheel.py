"""The wheel alone, in an empty environment outside of the checkout: it starts, and every page and file opens."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skep.dataone.testing import MemberNode
from skep.testing.documents import EML_21, eml
from tests.support.forge import Forge

ROOT = Path(__file__).parents[2]
_SECONDS = 300.0
_URL = re.compile(r"Skep is up at (http://\S+)")
#: what the installed package says of itself
_TABLE = """
import json
from skep.interfaces.web import site, render as static
import skep
routes = [(sorted(one.http_methods), route.path) for route in site.PAGES.routes for one in route.route_handlers]
print(json.dumps({"home": skep.__file__, "routes": routes, "files": sorted(static._assets())}))
"""
_EVALUATION = "import skep.task; skep.task.evaluation('a.txt', b'text', 'text/plain'); print('done')"
_BENCHMARK = 'name = "speed"\nsource = "{source}"\ncommand = ["true"]\nrepetitions = 2\n'


def _clean() -> dict[str, str]:
    """Nothing that leads back to the checkout or to the tester's settings."""
    left_out = ("SKEP_", "PYTHON", "GIT_", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(left_out)}


def _run(*command: str, cwd: Path, **more: str) -> str:
    done = subprocess.run(command, cwd=cwd, env=_clean() | more, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment: locked packages from the cache of uv, and the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    uv = str(ROOT / "scripts" / "uv")
    _run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder), cwd=ROOT)
    (wheel,) = folder.glob("skep-*.whl")
    venv = folder / "venv"
    _run(uv, "venv", "--quiet", "--python", sys.executable, str(venv), cwd=folder)
    into = "--quiet", "--offline", "--python", str(venv / "bin" / "python")
    _run(uv, "pip", "sync", *into, "--require-hashes", str(ROOT / "requirements" / "run.txt"), cwd=folder)
    _run(uv, "pip", "install", *into, "--no-deps", str(wheel), cwd=folder)
    return venv


class Server:
    """`skep up` of the wheel."""

    def __init__(self, venv: Path, folder: Path, add: str) -> None:
        self._venv, self._folder, self._data = venv, folder, folder / "data"
        self._lines: list[str] = []
        self._up = threading.Event()
        self.url = ""
        given = {"SKEP_ALLOW_NETWORKS": "127.0.0.0/8", "SKEP_TASK_COMMANDS": "*", "XDG_STATE_HOME": str(folder)}
        self.process = subprocess.Popen(
            [str(venv / "bin" / "skep"), "up", "--data", str(self._data), "--listen", "127.0.0.1:0", "--add", add],
            cwd=folder,
            env=_clean() | given,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._up.wait(_SECONDS) and self.url, self.log

    def _read(self) -> None:
        assert self.process.stderr is not None
        for text in self.process.stderr:
            self._lines.append(text)
            if found := _URL.search(text):
                self.url = found[1]
                self._up.set()
        self._up.set()

    @property
    def log(self) -> str:
        return "".join(self._lines[-40:])

    @property
    def token(self) -> str:
        return (self._data / "admin.token").read_text().strip()

    def cli(self, noun: str, verb: str, *args: str, stdin: str = "") -> Any:
        """The JSON that a command prints."""
        done = subprocess.run(
            [str(self._venv / "bin" / "skep"), noun, verb, "--json", *args],
            cwd=self._folder,
            env=_clean() | {"SKEP_URL": self.url, "SKEP_TOKEN": self.token},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"skep {noun} {verb} {args}\n{done.stdout}{done.stderr}{self.log}"
        return json.loads(done.stdout.splitlines()[0]) if done.stdout else None

    def get(self, path: str) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "text/html"}
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, headers=headers), timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def until(self, path: str) -> None:
        """Returns once this page is there."""
        end = time.monotonic() + _SECONDS
        while (found := self.get(path))[0] != 200:
            assert time.monotonic() < end, (path, found, self.log)
            time.sleep(0.2)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)
        self._reader.join(30)
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture(scope="module")
def server(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, dict[str, str]]]:
    """A server that has something for every page, and real values for the variables of routes."""
    folder = tmp_path_factory.mktemp("running")
    with Forge(folder / "forge") as forge, MemberNode("urn:node:Wheel") as node:
        repo = forge.create("a/b", {"src/one.py": b"def honey():\n    return 1\n", "README.md": b"# one\n"})
        forge.create("a/b-lists", {"all.yaml": f"- {forge.url('a/b')}\n".encode()})
        repo.commit({"README.md": b"# two\n"})
        node.put("wheel-1", eml("Glaciers"), EML_21)
        running = Server(installed, folder, forge.url("a/b"))
        try:
            yield (
                running,
                _filled(running, forge.url("a/b"), node.base, installed) | {"commit": repo.refs()["refs/heads/main"]},
            )
        finally:
            running.stop()


def _filled(server: Server, url: str, node: str, venv: Path) -> dict[str, str]:
    source = server.cli("source", "add", url, "--wait")["id"]
    server.cli("source", "add", node, "--kind", "dataone")
    found = {"source": source, "list": server.cli("list", "add", f"{url}-lists")["id"]}
    server.cli("topic", "create", "news")
    server.cli("benchmark", "add", "-", stdin=_BENCHMARK.format(source=source))
    python = str(venv / "bin" / "python")
    context = server.cli("task", "run", "--name", "evaluate", "--", python, "-c", _EVALUATION)["context"]["id"]
    server.cli("context", "wait", context)
    found |= {"context": context, "task": server.cli("context", "show", context)["tasks"][0]["id"]}
    evaluations = json.loads(server.get("/api/v1/evaluations")[1])
    found["evaluation"] = next(iter(evaluations.values()))[0]["id"]
    return found


def _addresses(names: dict[str, str]) -> dict[str, str]:
    """A real address for each route with variables."""
    source = f"/sources/{names['source']}"
    return {
        "/sources/{id}": source,
        "/sources/{id}/report": f"{source}/report",
        "/sources/{id}/tree": f"{source}/tree",
        "/sources/{id}/tree/{path}": f"{source}/tree/src",
        "/sources/{id}/commit/{commit}": f"{source}/commit/{names['commit']}",
        "/sources/{id}/file/{path}": f"{source}/file/src/one.py",
        "/record": "/record?id=wheel-1",
        "/lists/{id}": f"/lists/{names['list']}",
        "/topics/{name}": "/topics/news",
        "/contexts/{id}": f"/contexts/{names['context']}",
        "/tasks/{id}": f"/tasks/{names['task']}",
        "/tasks/{id}/output": f"/tasks/{names['task']}/output",
        "/benchmarks/{name}": "/benchmarks/speed",
        "/benchmarks/{name}/{file}": "/benchmarks/speed/series.svg",
        "/evaluations/{id}": f"/evaluations/{names['evaluation']}",
    }


def _table(installed: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_run(str(installed / "bin" / "python"), "-c", _TABLE, cwd=installed))
    assert Path(found["home"]).is_relative_to(installed), found["home"]
    return found


def test_every_page_of_the_installed_wheel_opens(installed: Path, server: tuple[Server, dict[str, str]]) -> None:
    running, names = server
    real = _addresses(names)
    paths = [path for methods, path in _table(installed)["routes"] if "GET" in methods]
    paths = [re.sub(r":\w+(?=\})", "", path) for path in paths]
    assert {path for path in paths if "{" in path} - real.keys() == {"/static/{name}"}
    for path in ("/benchmarks/speed/series.svg", "/record?id=wheel-1", f"/sources/{names['source']}/report"):
        running.until(path)
    wrong = {}
    for path in [*(one for one in paths if one != "/static/{name}"), "/topics"]:
        status, body = running.get(real.get(path, path))
        if status != 200 or not body:
            wrong[path] = status, body[-2000:]
    assert wrong == {}, running.log


def test_every_file_of_the_installed_wheel_is_served(installed: Path, server: tuple[Server, dict[str, str]]) -> None:
    running, _ = server
    names = _table(installed)["files"]
    static = next(ROOT.glob("src/skep/**/static"))
    assert names == sorted(one.name for one in static.iterdir() if one.is_file())
    for name in names:
        assert running.get(f"/static/{name}") == (200, (static / name).read_bytes()), name
