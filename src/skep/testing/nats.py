"""A real NATS server with JetStream for tests: its own folder, its own free port on loopback, gone afterwards."""

import json
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nats

START_SECONDS = 30.0


class NatsServer:
    """One server that can be stopped and started again on the same port and folder."""

    def __init__(self, binary: str, folder: Path, config: str) -> None:
        self._binary = binary
        self._folder = folder
        self._log = folder / "nats.log"
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.configure(config)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        return f"nats://{self.address}"

    def configure(self, config: str) -> None:
        """Takes effect at the next start, or at once in a server that runs."""
        (self._folder / "nats.conf").write_text(config)
        if self._process is not None:
            self._process.send_signal(signal.SIGHUP)

    def start(self) -> None:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [self._binary, "-c", str(self._folder / "nats.conf"), "-a", "127.0.0.1", "-p", str(self._port)],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # an interrupt in the terminal is for the tests, which then stop the server
            )
        until = time.monotonic() + START_SECONDS
        # by its own word: it listens for clients once its streams are recovered
        while b"Server is ready" not in self._log.read_bytes():
            if self._process.poll() is not None or time.monotonic() > until:
                said = self._log.read_text()
                self.stop(signal.SIGKILL)
                raise RuntimeError(f"nats-server did not start: {said}")
            time.sleep(0.01)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    async def call(self, verb: str, **body: object) -> dict[str, Any]:
        """One call of JetStream's interface, as an operator would make it."""
        client = await nats.connect(self.url)
        try:
            answer = await client.request(f"$JS.API.{verb}", json.dumps(body).encode() if body else b"", timeout=10)
            told: dict[str, Any] = json.loads(answer.data)
            return told
        finally:
            await client.close()

    async def empty(self) -> None:
        for stream in (await self.call("STREAM.NAMES"))["streams"] or ():
            await self.call(f"STREAM.DELETE.{stream}")

    def restart(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.stop(how)
        self.start()


@contextmanager
def running_nats(folder: Path, *, js: bool = True, settings: str = "") -> Iterator[NatsServer]:
    """Start a server that keeps its streams in `folder`; `settings` are further lines of its configuration."""
    binary = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/sbin")
    if binary is None:
        raise RuntimeError("these tests need a NATS server: apt-get install nats-server")
    folder.mkdir(parents=True, exist_ok=True)
    server = NatsServer(binary, folder, (with_store(folder) if js else "") + settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def with_store(folder: Path, limits: str = "") -> str:
    """The lines of a configuration that turn JetStream on."""
    return f"jetstream {{\n  store_dir: '{folder / 'store'}'\n  {limits}\n}}\n"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
