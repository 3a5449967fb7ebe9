"""A real server that speaks S3, for tests: moto's, in its own process on a free port on loopback, gone afterwards."""

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from skep.testing.server import free_port

_START_SECONDS = 60.0


@contextmanager
def running_s3() -> Iterator[str]:
    """Its endpoint. Buckets are made with `make_bucket`; any key is good."""
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    endpoint = f"http://127.0.0.1:{port}"
    try:
        _await(server, endpoint)
        yield endpoint
    finally:
        server.terminate()
        server.wait(30)


def make_bucket(endpoint: str, name: str) -> None:
    request = urllib.request.Request(f"{endpoint}/{name}", method="PUT")
    with urllib.request.urlopen(request, timeout=30):
        pass


def _await(server: "subprocess.Popen[bytes]", endpoint: str) -> None:
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(endpoint, timeout=_START_SECONDS):
                return
        except (urllib.error.URLError, ConnectionError):
            if server.poll() is not None or time.monotonic() > until:
                raise RuntimeError("the S3 server did not start") from None
            time.sleep(0.05)
