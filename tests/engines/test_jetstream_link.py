"""The connection to JetStream: how long an answer is waited for, and by whose fault it was late."""

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from skep.base.errors import BadInput
from skep.processes.engines import find
from skep.storage.jetstream_connection import address
from skep.topics.api import Part
from tests.support.nats import NatsServer


class Between:
    """Passes on what one client and the server say; after the client said `held`, answers wait for `go_on`."""

    def __init__(self, behind: str, held: bytes, asked: Callable[[], object]) -> None:
        host, _, port = behind.partition(":")
        self._server = socket.create_connection((host, int(port)))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"nats://127.0.0.1:{self._listener.getsockname()[1]}"
        self._held, self._asked = held, asked
        self._holds = False
        self.go_on, self.passed = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=self._relay, args=(run,), daemon=True) for run in (self._there, self._back)
        ]
        self._client: socket.socket | None = None
        self._met = threading.Event()
        for thread in self._threads:
            thread.start()

    def _relay(self, run: Callable[[], None]) -> None:
        """The client closes its connection when it likes; that ends both directions."""
        with suppress(OSError):
            run()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)

    def _there(self) -> None:
        self._client, _ = self._listener.accept()
        self._met.set()
        while said := self._client.recv(65536):
            if self._held in said:
                self._holds = True
                self._asked()
            self._server.sendall(said)

    def _back(self) -> None:
        self._met.wait()
        assert self._client is not None
        while said := self._server.recv(65536):
            if self._holds:
                self.go_on.wait()
            self._client.sendall(said)
            if self._holds:
                self.passed.set()

    def close(self) -> None:
        for thread in self._threads:
            thread.join()
        for one in (self._listener, self._server, self._client):
            if one is not None:
                one.close()


async def test_an_answer_that_lay_there_while_we_stood_still_is_read(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()

    def stand_still() -> None:
        """Until the answer has come, and all patience is over."""
        between.go_on.set()
        between.passed.wait()
        time = loop.time
        monkeypatch.setattr(loop, "time", lambda: time() + 60)

    between = Between(nats.address, b"STREAM.INFO", lambda: loop.call_soon_threadsafe(stand_still))
    log = await find("log", between.url)(between.url + "?patience=30", db=None)
    assert await log.bounds(Part("news")) == (0, 0)
    await log.close()
    await asyncio.to_thread(between.close)


def test_patience_is_an_option_of_the_url() -> None:
    assert address("nats://one").patience == 5
    assert address("nats://one?patience=0.5&replicas=3").patience == 0.5


@pytest.mark.parametrize("said", ["0", "-1", "nan", "inf", "soon", ""])
def test_patience_that_is_none_is_refused(said: str) -> None:
    with pytest.raises(BadInput, match="the NATS URL for log cannot be understood"):
        address(f"nats://one?patience={said}")
