"""A real NATS server with JetStream for tests: its own folder, its own free port on loopback, gone afterwards."""

import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import nats

from skep.testing.server import Server, free_port

START_SECONDS = 30.0


class NatsServer:
    """One server that can be stopped and started again on the same port and folder."""

    def __init__(self, binary: str, folder: Path, config: str) -> None:
        self._binary = binary
        self._folder = folder
        self._port = free_port()
        self._server = Server("nats-server", folder / "nats.log", START_SECONDS)
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
        if self._server.process is not None:
            self._server.process.send_signal(signal.SIGHUP)

    def start(self) -> None:
        command = [self._binary, "-c", str(self._folder / "nats.conf"), "-a", "127.0.0.1", "-p", str(self._port)]
        # by its own word: it listens for clients once its streams are recovered
        self._server.start(command, lambda said: "Server is ready" in said, cwd=self._folder)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        self._server.stop(how)

    async def call(self, verb: str, **body: object) -> dict[str, Any]:
        """One call of JetStream's interface, as an operator would make it."""
        client = await nats.connect(self.url)
        try:
            answer = await client.request(f"$JS.API.{verb}", json.dumps(body).encode() if body else b"", timeout=60)
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
    folder.mkdir(parents=True, exist_ok=True)
    server = NatsServer(_binary(), folder, (with_store(folder) if js else "") + settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def nats_cluster(folder: Path, size: int = 3) -> Iterator[dict[str, NatsServer]]:
    """Servers that keep each other's streams, by name."""
    ports = [free_port() for _ in range(size)]
    routes = ", ".join(f"'nats://127.0.0.1:{port}'" for port in ports)
    with ExitStack() as stack:
        servers: dict[str, NatsServer] = {}
        for n, port in enumerate(ports):
            cluster = f"server_name: n{n}\ncluster {{ name: hive, listen: '127.0.0.1:{port}', routes: [{routes}] }}\n"
            servers[f"n{n}"] = stack.enter_context(running_nats(folder / f"n{n}", settings=cluster))
        yield servers


def _binary() -> str:
    found = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise RuntimeError("these tests need a NATS server: apt-get install nats-server")
    return found


def with_store(folder: Path, limits: str = "") -> str:
    """The lines of a configuration that turn JetStream on."""
    return f"jetstream {{\n  store_dir: '{folder / 'store'}'\n  {limits}\n}}\n"
