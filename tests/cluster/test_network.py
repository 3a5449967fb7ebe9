"""A worker in a network of its own: what becomes of the fleet when its wire is cut without a word, or is slow."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from skep.sources.git.mirror import folder_of
from skep.testing.server import free_port
from tests.cluster.cluster import POLL, Line, head_of
from tests.cluster.fleet import Coordinator, Member, api, skep, until
from tests.cluster.network import Network
from tests.support.forge import Forge

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"), reason="only root can make a network"
)


class Fleet:
    """A coordinator on the machine, a worker inside, and a forge that the worker reaches without the wire."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.network = stack.enter_context(Network())
        self.forge = stack.enter_context(Forge(folder / "forge"))
        line = Line(f"127.0.0.1:{self.forge.port}", self.network.listener())
        stack.callback(line.close)
        self._upstream = line.address
        data = folder / "coordinator"
        skep("ca", "init", self.network.near, "--data", str(data))
        where = f"{self.network.near}:{free_port()}"
        served = Coordinator(data, link_listen=where, coordinators=[where], beat_every=4.0)
        self.coordinator = stack.enter_context(served)
        inside = self.network.before
        worker = Member(folder / "worker", self.coordinator.make_line(), before=inside, **POLL)
        self.worker = stack.enter_context(worker).attached()

    def add(self, name: str) -> str:
        self.coordinator.cli("source", "add", f"http://{self._upstream}/{name}")
        until(lambda: any(one["url"].endswith(name) for one in self._sources()), self.coordinator)
        return str(next(one["id"] for one in self._sources() if one["url"].endswith(name)))

    def _sources(self) -> list[dict[str, str]]:
        return list(api(self.coordinator, "sources")["items"])

    def told(self, source: str) -> list[str]:
        """Versions of its branch, the newest first."""
        items = api(self.coordinator, f"sources/{source}/changes", limit="100")["items"]
        return [one["new"] for one in items if one["entry"] == "refs/heads/main"]

    def state(self) -> str:
        (worker,) = api(self.coordinator, "workers")
        return str(worker["member"]["state"])

    def downs(self) -> int:
        path = f"file:{self.coordinator.data / 'skep.db'}?mode=ro"
        with closing(sqlite3.connect(path, uri=True)) as db:
            return int(db.execute("SELECT count(*) FROM member_event WHERE what = 'down'").fetchone()[0])


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with ExitStack() as stack:
        yield Fleet(tmp_path_factory.mktemp("network"), stack)


def test_bulk_bytes_on_a_slow_link_delay_no_heartbeat(fleet: Fleet) -> None:
    """At 2.5 MB/s the copy takes longer than the beats that may be missed."""
    repo = fleet.forge.create("large/one", {f"{n}.bin": os.urandom(10 << 20) for n in range(4)})
    head = repo.refs()["refs/heads/main"]
    fleet.network.shape("20mbit")
    source, downs = fleet.add("large/one"), fleet.downs()
    gathered = folder_of(fleet.coordinator.data / "gathered", source)
    until(lambda: fleet.told(source) == [head], fleet.coordinator)
    until(lambda: head_of(gathered) == head, fleet.coordinator)
    assert fleet.downs() == downs


def test_a_network_that_swallows_everything(fleet: Fleet) -> None:
    repo = fleet.forge.create("small/one", {"a.txt": b"before"})
    source = fleet.add("small/one")
    until(lambda: len(fleet.told(source)) == 1, fleet.coordinator)
    said = len(fleet.worker.log)
    fleet.network.cut()
    until(lambda: fleet.state() != "alive", fleet.coordinator)  # by its beats
    heads: list[str] = []
    mirror = folder_of(fleet.worker.data, source)
    for text in (b"first", b"second"):
        heads.insert(0, repo.commit({"a.txt": text}))
        until(lambda: head_of(mirror) == heads[0], fleet.coordinator)  # it goes on polling
    assert len(fleet.told(source)) == 1
    fleet.worker.says("not attached", since=said)  # by its pings
    fleet.network.mend()
    until(lambda: fleet.told(source)[:2] == heads, fleet.coordinator)
    until(lambda: fleet.state() == "alive", fleet.coordinator)
