"""Two coordinators on a database with a standby, workers behind lines that can be cut: one fault after the other."""

import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.cluster.cluster import Cluster, cluster
from tests.cluster.fleet import Coordinator, Member, api, finds, off_by, until
from tests.support.postgres import Postgres, postgres_server

log = logging.getLogger(__name__)

SOURCES = 6
#: a worker that is cut off for as long as a test takes, on a machine that stalls, is back within it
GRACE = 30.0


class Fleet:
    def __init__(self, servers: Cluster, primary: Postgres, standby: Postgres) -> None:
        self.cluster, self.primary, self.standby = servers, primary, standby


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("faults")
    with postgres_server() as primary, primary.standby() as standby:
        url = primary.url.replace(primary.address, f"{primary.address},{standby.address}")
        with cluster(folder, url, grace=GRACE) as servers:
            servers.join(task_commands=["*"])
            servers.join()
            servers.add(SOURCES)
            servers.settle()
            yield Fleet(servers, primary, standby)
            servers.check()


def attached(servers: Cluster, count: int) -> bool:
    members = api(servers.server, "status")["members"]
    return [one["state"] for one in members if one["role"] == "worker"] == count * ["alive"]


def test_a_coordinator_killed_in_the_middle_of_its_orders(fleet: Fleet) -> None:
    servers = fleet.cluster
    first = servers.coordinators[0]
    servers.add(1)
    first.kill()
    for name in servers.repos:
        servers.commit(name, "while one coordinator is away")
    until(lambda: attached(servers, 2), servers.server)
    servers.settle()
    first.start()
    # the one that is back hears of what it missed, and searches its own index
    until(lambda: len(api(first, "search", q="while one coordinator")["hits"]) == SOURCES + 1, first)


def test_a_worker_that_is_cut_off_goes_on_and_nothing_is_lost(fleet: Fleet) -> None:
    servers = fleet.cluster
    lines = servers.lines[:2]  # of the first worker, to both coordinators
    for line in lines:
        line.cut()
    before = len(servers.forge.requests)
    for name in servers.repos:
        servers.commit(name, "while a worker is cut off")
    # it is polled all the same, by whoever holds it
    until(lambda: len(servers.forge.requests) > before + 2 * len(servers.repos), servers.server)
    for line in lines:
        line.mend()
    servers.settle()


def test_what_a_killed_worker_held_is_polled_by_others(fleet: Fleet) -> None:
    servers = fleet.cluster
    dead = servers.workers[1]
    until(servers.gathered, servers.server)  # or what it alone has must be cloned
    dead.stop(signal.SIGKILL)
    shutil.rmtree(dead.data / "mirrors")
    for name in servers.repos:
        servers.commit(name, "after a worker was killed")
    began = time.monotonic()
    until(lambda: servers.told() == servers.upstream(), servers.server)
    log.info("with a grace of %g s all was told again after %.1f s", GRACE, time.monotonic() - began)
    dead.start()
    until(lambda: attached(servers, 2), servers.server)
    servers.settle()


def test_the_database_restarts(fleet: Fleet) -> None:
    servers = fleet.cluster
    fleet.primary.stop()
    for name in servers.repos:
        servers.commit(name, "while the database is away")
    fleet.primary.start()
    servers.settle()
    assert not [line for one in servers.coordinators for line in one.log if "asyncpg" in line]


def test_clocks_that_are_hours_apart_and_are_set_right(fleet: Fleet) -> None:
    servers = fleet.cluster

    def found(server: Coordinator, text: str) -> bool:
        return finds(server, f'"{text}"') == len(servers.repos)

    changing: list[Coordinator | Member] = [servers.coordinators[1], *servers.workers[:2]]
    hour = 3600.0
    for said, skews in (("while clocks are wrong", (hour, 2 * hour, -hour)), ("when they are right again", (0, 0, 0))):
        for one, skew in zip(changing, skews, strict=True):
            one.kill()
            one.before = off_by(skew)
            one.start()
        until(lambda: attached(servers, 2), servers.server)
        for name in servers.repos:
            servers.commit(name, said)
        servers.settle()
        for server in servers.coordinators:
            until(partial(found, server, said), server)
        for source in servers.sources().values():
            assert abs(source["last_looked"] - time.time()) < 600, (said, source)
            assert abs(source["last_changed"] - time.time()) < 600, (said, source)
        assert "hello" in servers.coordinators[1].cli("task", "run", "--follow", "--", "echo", "hello").stdout


async def caught_up(primary: Postgres) -> bool:
    connection = await asyncpg.connect(primary.url)
    try:
        behind = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()"
        return bool(await connection.fetchval(behind))
    finally:
        await connection.close()


async def test_a_standby_is_promoted(fleet: Fleet) -> None:
    """What was acknowledged before it had arrived there would be lost; so nothing is told at that moment."""
    servers = fleet.cluster
    servers.settle()
    while not await caught_up(fleet.primary):
        pass
    fleet.primary.stop(signal.SIGKILL)
    fleet.standby.promote()
    for name in servers.repos:
        servers.commit(name, "after the promotion")
    servers.settle()
    for one in servers.coordinators:
        assert one.process.poll() is None, one.tail()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_worker_whose_disk_is_full_or_read_only_gives_away_what_it_holds(fleet: Fleet, tmp_path: Path) -> None:
    servers = fleet.cluster
    disk = tmp_path / "small"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk], check=True)
    try:
        small = servers.join(disk, disk_reserve=8_000_000, capacity=8.0)
        until(lambda: any((disk / "mirrors").glob("*/*/*.git")), servers.server)
        (disk / "filler").write_bytes(bytes(64_000_000 - 4_000_000 - used(disk)))
        until(lambda: not any((disk / "mirrors").glob("*/*/*.git")), servers.server)
        assert view(servers, small)["draining"] and "left on its disk" in view(servers, small)["member"]["status"]
        (disk / "filler").unlink()
        until(lambda: view(servers, small)["holds"] > 0, servers.server)
        with read_only(disk):
            until(lambda: view(servers, small)["holds"] == 0, servers.server)
            shown = view(servers, small)
            assert shown["draining"] and "cannot be written to" in shown["member"]["status"]
            # else it is given something as soon as it can be written to, and forgotten with it
            servers.server.cli("worker", "drain", shown["member"]["id"])
        small.stop()
        servers.workers.remove(small)
        until(lambda: view(servers, small)["member"]["state"] != "alive", servers.server)
        servers.server.cli("worker", "forget", shown["member"]["id"])
        servers.settle()
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def view(servers: Cluster, worker: Member) -> dict[str, Any]:
    (shown,) = (one for one in api(servers.server, "workers") if one["offer"]["name"] == worker.data.name)
    return dict(shown)


@contextmanager
def read_only(disk: Path) -> Iterator[None]:
    """Over itself, because what has open files cannot be made so: whatever asks by name is refused."""
    subprocess.run(["mount", "--bind", disk, disk], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", disk], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def used(disk: Path) -> int:
    found = os.statvfs(disk)
    return (found.f_blocks - found.f_bfree) * found.f_frsize
