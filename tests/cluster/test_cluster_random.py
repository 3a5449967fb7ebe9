"""A fleet to which everything happens, in an order that SEED decides, for LONG seconds, while commits arrive."""

import logging
import os
import random
import signal
import time
from pathlib import Path

from skep.testing.postgres import fresh_database
from tests.cluster.cluster import Cluster, cluster

log = logging.getLogger(__name__)
SEED = int(os.environ.get("SEED", "7"))
SECONDS = float(os.environ.get("LONG", "20"))
#: longer than any cut or restart here: what moves, moves because somebody joined
GRACE = 120.0


class Fate:
    """One thing after the other; whatever is down comes back a little later."""

    def __init__(self, servers: Cluster, seed: int) -> None:
        self._servers = servers
        self._random = random.Random(seed)
        self._deeds = [
            self.commit,
            self.commit,
            self.commit,
            self.kill_worker,
            self.cut,
            self.kill_coordinator,
            self.join,
        ]

    def act(self) -> None:
        deed = self._random.choice(self._deeds)
        log.info("%s", deed.__name__)
        deed()

    def commit(self) -> None:
        name = self._random.choice(sorted(self._servers.repos))
        self._servers.commit(name, f"{self._random.random()}")

    def kill_worker(self) -> None:
        worker = self._random.choice(self._servers.workers)
        worker.stop(signal.SIGKILL)
        self.commit()
        worker.start()

    def kill_coordinator(self) -> None:
        """The other one goes on."""
        victim = self._random.choice(self._servers.coordinators)
        victim.kill()
        self.commit()
        self._pause(2.0)
        victim.start()

    def cut(self) -> None:
        lines = self._random.sample(self._servers.lines, 2)
        for line in lines:
            line.cut()
        self._pause(3.0)
        for line in lines:
            line.mend()

    def join(self) -> None:
        if len(self._servers.workers) < 4:
            self._servers.join()

    def _pause(self, most: float) -> None:
        """Things take time; nothing is expected to have happened after it."""
        time.sleep(self._random.random() * most)


async def test_whatever_happens_every_mirror_equals_its_upstream(tmp_path: Path, postgres_url: str) -> None:
    async with fresh_database(postgres_url) as url:
        with cluster(tmp_path, url, grace=GRACE) as servers:
            log.info("SEED=%d", SEED)
            servers.join()
            servers.join()
            servers.add(4)
            servers.settle()
            fate, end = Fate(servers, SEED), time.monotonic() + SECONDS
            while time.monotonic() < end:
                fate.act()
            servers.settle()
            servers.check()
