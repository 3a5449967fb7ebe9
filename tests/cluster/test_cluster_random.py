"""A fleet to which everything happens, in an order that SEED decides, for LONG seconds, while commits arrive."""

import logging
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

from skep.testing.server import free_port
from tests.cluster.cluster import cluster
from tests.cluster.fate import Fate
from tests.cluster.fleet import until
from tests.house.running import RunningSkep
from tests.support.forge import Fault
from tests.support.postgres import fresh_database

log = logging.getLogger(__name__)
SEED = int(os.environ.get("SEED", "7"))
SECONDS = float(os.environ.get("LONG", "20"))
REPLICAS = int(os.environ.get("REPLICAS", "1"))
#: longer than any cut or restart here: what moves, moves because somebody joined
GRACE = 120.0
#: upstream takes so long for each answer, so that two who ask at once are seen
SLOW = Fault(delay=0.05)


async def test_whatever_happens_every_mirror_equals_its_upstream(tmp_path: Path, postgres_url: str) -> None:
    async with fresh_database(postgres_url) as url:
        apart: dict[str, Any] = {"role": "aggregator", "database": url, "link_listen": f"127.0.0.1:{free_port()}"}
        with (
            cluster(tmp_path, url, grace=GRACE, replicas=REPLICAS) as servers,
            RunningSkep(tmp_path / "apart", **apart) as aggregator,
        ):
            log.info("SEED=%d REPLICAS=%d", SEED, REPLICAS)
            servers.forge.fault("", SLOW)
            fate = Fate(servers, aggregator, SEED)
            fate.join()
            fate.join()
            servers.add(4)
            servers.settle()
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                fate.act()
            servers.settle()
            for server in (*servers.coordinators, aggregator):
                until(partial(servers.serves, server), server)
            servers.check()
