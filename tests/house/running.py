"""A real `skep up` in its own process, and the real command line against it."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

_URL = re.compile(r"Skep is up at (http://\S+)")
_START_SECONDS = 120.0


class RunningSkep:
    """Started on a free port; `kill` is kill -9, `stop` is SIGTERM."""

    def __init__(
        self, data: Path, *, before: Sequence[str] = (), listen: str = "127.0.0.1:0", role: str = "up", **settings: Any
    ) -> None:
        self.data = data
        self._role = role
        self.log: list[str] = []
        self.settings = {"allow_networks": ["127.0.0.0/8"], "beat_every": 1.0, **settings}
        self.before = before
        self._listen = listen
        self.start()

    def start(self) -> None:
        self._up = threading.Event()
        self.process = subprocess.Popen(
            [*self.before, *SKEP, self._role, "--data", str(self.data), "--listen", self._listen],
            stderr=subprocess.PIPE,
            text=True,
            env=environment(self.settings) | {"XDG_STATE_HOME": str(self.data.parent / "state")},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._up.wait(_START_SECONDS) or not self.url:
            self.stop()
            raise AssertionError("skep did not start:\n" + "".join(self.log))

    def _read(self) -> None:
        self.url = ""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if found := _URL.search(line):
                self.url = found[1]
                self._up.set()
        self._up.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def token(self) -> str:
        return (self.data / "admin.token").read_text().strip()

    def cli(self, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        variables = environment({}) | {"SKEP_URL": self.url, "SKEP_TOKEN": self.token}
        try:
            done = subprocess.run(
                [*SKEP, *args], env=variables, capture_output=True, text=True, timeout=120, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"skep {args} did not end:\n{error.stderr!r}{self.tail()}") from error
        if check and done.returncode != 0:
            raise AssertionError(f"skep {args} ended with {done.returncode}:\n{done.stdout}{done.stderr}{self.tail()}")
        return done

    def rows(self, *args: str) -> list[dict[str, Any]]:
        """The JSON lines that a command prints."""
        done = self.cli(*args, "--json", check=False)
        assert done.returncode in (0, 1), done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def children(self) -> list[int]:
        """Process ids of the worker and whatever else the server started."""
        listing = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in listing.split()]

    def kill_children(self) -> None:
        for pid in self.children():
            with suppress(ProcessLookupError):  # some are there for a moment only
                os.kill(pid, signal.SIGKILL)

    def kill(self) -> None:
        self.process.kill()
        self._end()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self._end()

    def _end(self) -> int:
        code = self.process.wait(120)
        self._reader.join(30)
        if self.process.stderr is not None:
            self.process.stderr.close()
        return code

    def tail(self) -> str:
        return "\n--- its log\n" + "".join(self.log[-30:])


SKEP = [sys.executable, "-m", "skep"]


def environment(settings: dict[str, Any]) -> dict[str, str]:
    """Nothing of the tester's own configuration, only what the test sets."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SKEP_", "GIT_"))}
    return clean | {f"SKEP_{name.upper()}": _text(value) for name, value in settings.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
