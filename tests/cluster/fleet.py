"""Roles apart: each a real process with a data folder of its own, over TCP on loopback."""

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from skep.testing.server import free_port
from tests.house.running import SKEP, RunningSkep, environment

SECONDS = 120.0


def off_by(seconds: float) -> list[str]:
    """In front of a command: its clock is off by so much, its sense of how time passes is not."""
    return ["env", f"PYTHONPATH={Path(__file__).parent / 'skew'}", f"SKEW={seconds}"] if seconds else []


class Coordinator(RunningSkep):
    """`link` is where others join."""

    def __init__(self, data: Path, *, tls: bool = True, role: str = "coordinator", **settings: Any) -> None:
        if tls and not (data / "tls").exists():
            skep("ca", "init", "--data", str(data))
        self.link = settings.pop("link_listen", f"127.0.0.1:{free_port()}")
        super().__init__(data, role=role, link_listen=self.link, **settings)

    def make_token(self, *args: str) -> str:
        return self.cli("worker", "token", *args).stdout.strip()

    def make_line(self, *args: str) -> str:
        return self.make_token("--join", *args)

    def workers(self) -> dict[str, dict[str, Any]]:
        """By name."""
        return {one["offer"].get("name", ""): one for one in self.rows("worker", "list")}


class Member:
    """A worker or manager by itself, on the settings given or on the line it joined with."""

    def __init__(
        self, data: Path, line: str = "", *, role: str = "worker", before: Sequence[str] = (), **settings: Any
    ) -> None:
        self.data, self.role, self.before = data, role, before
        self.settings = {"allow_networks": ["127.0.0.0/8"], "name": data.name, **settings}
        self.log: list[str] = []
        if line:
            skep("worker", "join", line, "--data", str(data))
        self.start()

    def start(self) -> None:
        self._said = threading.Condition()
        self._began = len(self.log)
        self.process = subprocess.Popen(
            [*self.before, *SKEP, self.role, "--data", str(self.data)],
            stderr=subprocess.PIPE,
            text=True,
            env=environment(self.settings),
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._said:
                self.log.append(line)
                self._said.notify_all()
        with self._said:
            self.log.append("(it has ended)\n")
            self._said.notify_all()

    def says(self, text: str, since: int | None = None) -> str:
        """The first such line of its log since it was started last, or since it had so many; waits for it."""
        found: list[str] = []
        first = self._began if since is None else since

        def look() -> bool:
            found[:] = [line for line in self.log[first:] if text in line]
            return bool(found) or "(it has ended)\n" in self.log[first:]

        with self._said:
            self._said.wait_for(look, SECONDS)
        assert found, f"{self.data.name} did not say {text!r}:\n" + "".join(self.log[-20:])
        return found[0]

    def attached(self) -> Self:
        self.says("attached to")
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def stop(self, how: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(120)
        self._reader.join(30)
        if self.process.stderr is not None:
            self.process.stderr.close()
        return code


class NotAnswered(AssertionError):
    """Something else than 200: it may be at the next try."""


def api(server: RunningSkep, path: str, **query: str) -> Any:
    """What the API answers; a process for each question would cost more than what is tested."""
    status, answer = server.get(f"/api/v1/{path}?{urlencode(query)}", Authorization=f"Bearer {server.token}")
    if status != 200:
        raise NotAnswered(f"{path}: {status} {answer}")
    return answer


def finds(server: RunningSkep, text: str) -> int:
    """In how many sources."""
    return len({hit["source"] for hit in api(server, "search", q=text)["hits"]})


def skep(*args: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run([*SKEP, *args], env=environment({}), capture_output=True, text=True, timeout=60, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


def until(ready: Callable[[], bool], server: RunningSkep) -> None:
    """Asks again and again, as an operator would, also when nobody can answer."""
    end, why = time.monotonic() + SECONDS, ""
    while True:
        try:
            if ready():
                return
        except NotAnswered as error:
            why = str(error)
        assert time.monotonic() < end, why + server.tail()
        time.sleep(0.2)
