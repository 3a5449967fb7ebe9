"""A `skep up` of any version in its own process, and a plain HTTP client for it.

The replay compares two versions, so nothing here imports Skep: a server is a command, settings and a port.
"""

import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

T = TypeVar("T")
_READY = re.compile(r"Skep is up at (http://\S+)")
_START_SECONDS = 180.0
#: only so that a broken run ends; a wait that succeeds returns at once
_WAIT_SECONDS = 180.0


@dataclass(frozen=True)
class Reply:
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str:
        return ", ".join(value for key, value in self.headers if key == name)

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Call:
    """One HTTP request; `blocks` ends an endless event stream after so many events or comments."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    blocks: int = 0


class HttpClient:
    """One connection that is kept open; a connection that the server closed is opened again."""

    def __init__(self, url: str) -> None:
        self._host = url.removeprefix("http://")
        self._connection = self._connect()

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._host, timeout=_WAIT_SECONDS)

    def send(self, call: Call) -> Reply:
        for last in (False, True):
            try:
                self._connection.request(call.method, call.path, call.body, dict(call.headers))
                return self._read(self._connection.getresponse(), call.blocks)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                self._connection.close()
                if last:
                    raise
        raise AssertionError("unreachable")

    def _read(self, answer: http.client.HTTPResponse, blocks: int) -> Reply:
        headers = tuple((name.lower(), value) for name, value in answer.getheaders())
        if not blocks or "text/event-stream" not in str(answer.getheader("content-type")):
            return Reply(answer.status, headers, answer.read())
        body = b""
        while body.count(b"\n\n") < blocks and (line := answer.readline()):
            body += line
        self._connection.close()
        return Reply(answer.status, headers, body)

    def close(self) -> None:
        self._connection.close()


class SkepProcess:
    """Started on a given port; stopped by SIGTERM."""

    def __init__(
        self, command: Sequence[str], data: Path, port: int, settings: Mapping[str, Any], **environment: str
    ) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.data = data
        self.log: list[str] = []
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("SKEP_", "GIT_"))}
        named = {f"SKEP_{name.upper()}": _text(value) for name, value in settings.items()}
        self._ready = threading.Event()
        data.mkdir(parents=True)
        self.process = subprocess.Popen(
            [*command, "up", "--data", str(data), "--listen", f"127.0.0.1:{port}"],
            stderr=subprocess.PIPE,
            text=True,
            cwd=data,
            env=clean | {"XDG_STATE_HOME": str(data / "state")} | named | environment,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ready(self) -> Self:
        if not self._ready.wait(_START_SECONDS) or not any(_READY.search(line) for line in self.log):
            self.stop()
            raise AssertionError("skep did not start:" + self.tail())
        return self

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if _READY.search(line):
                self._ready.set()
        self._ready.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def token(self) -> str:
        return (self.data / "admin.token").read_text().strip()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)
        self._reader.join(30)
        if self.process.stderr is not None:
            self.process.stderr.close()

    def tail(self) -> str:
        return "\n--- its log\n" + "".join(self.log[-30:])


def until(found: Callable[[], T | None], what: str) -> T:
    """Polls until something is found; the time limit only ends a broken run."""
    last, pause = time.monotonic() + _WAIT_SECONDS, 0.02
    while not (answer := found()):
        if time.monotonic() > last:
            raise AssertionError(f"this did not happen within {_WAIT_SECONDS:.0f} s: {what}")
        time.sleep(pause)
        pause = min(0.2, pause * 1.5)
    return answer


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
