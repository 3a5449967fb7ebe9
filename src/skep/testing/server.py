"""Servers for tests: somebody else's as processes of ours, stopped by pid, and our own in threads."""

import asyncio
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

#: below what systems give to connections that go out: one of those could take a port before its server does, or while
#: that is restarted, and one that is made to a port nobody listens at could even meet itself
_PORTS = range(20_000, 32_000)
#: of those that test side by side each has its own, in turn: nobody is given one whose server is just not there
_turn = itertools.cycle(random.sample(_PORTS[int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 4 :: 4], 3_000))


def free_port() -> int:
    """For a server that is yet to be started."""
    while True:
        port = next(_turn)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


async def listening(port: int, seconds: float = 20.0) -> None:
    """Returns once somebody accepts connections there."""
    async with asyncio.timeout(seconds):
        while True:
            with suppress(ConnectionRefusedError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return await writer.wait_closed()
            await asyncio.sleep(0.02)


class Server:
    """One that can be stopped and started again."""

    def __init__(self, name: str, log: Path, seconds: float) -> None:
        self._name = name
        self._log = log
        self._seconds = seconds
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str], ready: Callable[[str], object], **options: Any) -> None:
        """Returns once it is `ready`, which is told what the server has said so far."""
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # an interrupt in the terminal is for the tests, which then stop the server
                **options,
            )
        until = time.monotonic() + self._seconds
        while not ready(said := self._log.read_text(errors="replace")):
            if self.process.poll() is not None or time.monotonic() > until:
                self.stop(signal.SIGKILL)
                raise RuntimeError(f"{self._name} did not start: {said}")
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class ThreadedServer(ThreadingHTTPServer):
    """One of our own, whose clients keep connections open: they are ended with it."""

    request_queue_size = 512
    daemon_threads = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._open: set[Any] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        for request in list(self._open):
            with suppress(OSError):
                request.shutdown(2)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is nobody's business; anything else is a fault of the server, and a riddle to whoever
        tests with it."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)
