"""Three workers that have every source twice: one is lost with its disk, and no upstream is cloned again."""

import shutil
import signal
from pathlib import Path
from typing import Any

from tests.cluster.cluster import Cluster, cluster
from tests.cluster.fleet import Member, api, until
from tests.support.postgres import fresh_database

SOURCES = 4


def shown(servers: Cluster) -> dict[str, dict[str, Any]]:
    return {one["id"]: api(servers.server, f"sources/{one['id']}") for one in servers.sources().values()}


def twice(servers: Cluster, living: list[Member]) -> bool:
    """Each of two workers has all that was committed, and they are those that the catalogue names."""
    ids = {one["offer"]["name"]: one["member"]["id"] for one in api(servers.server, "workers")}
    wanted = {id: {one["holder"], *one["replicas"]} for id, one in shown(servers).items()}
    found = {
        id: {ids[one.data.name] for one in living if any((one.data / "mirrors").glob(f"*/*/{id}.git"))} for id in wanted
    }
    refs = {name: [its, its] for name, its in servers.upstream().items()}
    return found == wanted and {len(one) for one in found.values()} == {2} and servers.mirrored() == refs


async def test_a_worker_lost_with_its_disk_costs_no_clone(tmp_path: Path, postgres_url: str) -> None:
    async with fresh_database(postgres_url) as url:
        # no coordinator has copies of its own: what there is, workers have
        with cluster(tmp_path, url, replicas=2, gather_labels=["nothing"]) as servers:
            servers.join()
            servers.add(SOURCES)
            until(lambda: servers.told() == servers.upstream(), servers.server)
            servers.join()
            servers.join()
            until(lambda: twice(servers, servers.workers), servers.server)
            before = shown(servers)
            ids = {one["member"]["id"]: one["offer"]["name"] for one in api(servers.server, "workers")}
            dead = next(one for one in servers.workers if one.data.name == ids[next(iter(before.values()))["holder"]])
            dead.stop(signal.SIGKILL)
            shutil.rmtree(dead.data / "mirrors")
            for name in servers.repos:
                servers.commit(name, "after a worker was lost")
            living = [one for one in servers.workers if one is not dead]
            until(lambda: servers.told() == servers.upstream(), servers.server)
            until(lambda: twice(servers, living), servers.server)
            servers.check()
