"""Aggregators by themselves, on the database that they share with a coordinator: what they serve they have gathered."""

import asyncio
import shutil
import sqlite3
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from skep.testing.server import free_port
from tests.cluster.fleet import SECONDS, Coordinator, Member, api, finds, skep, until
from tests.house.running import RunningSkep, environment
from tests.support.forge import Forge, Repo
from tests.support.postgres import fresh_database

QUIET = {"GIT_TERMINAL_PROMPT": "0"}


class Aggregator(RunningSkep):
    """`way`: workers dial it themselves, or a coordinator relays; or they are told an address where nobody is."""

    def __init__(self, data: Path, coordinator: Coordinator, way: str = "dial", **settings: Any) -> None:
        self.link = f"127.0.0.1:{free_port()}"
        folder = data / "tls"
        if way == "dial":
            skep("ca", "issue", "127.0.0.1", "--out", str(folder), "--data", str(coordinator.data))
        ways = {
            "dial": {"link_listen": self.link, "tls_cert": f"{folder}/link.crt", "tls_key": f"{folder}/link.key"},
            "relay": {},
        }
        ca = str(coordinator.data / "tls" / "ca.crt")
        super().__init__(data, role="aggregator", tls_ca=ca, **ways[way], **settings)

    def clones(self, source: str, into: Path) -> bool:
        return not self.clone(source, into)

    def clone(self, source: str, into: Path) -> str:
        """What git says when it cannot."""
        clone = ["git", "clone", "-q", f"{self.url}/git/{source}.git", str(into)]
        done = subprocess.run(clone, env=environment({}) | QUIET, capture_output=True, text=True, check=False)
        return done.stderr if done.returncode else ""

    def gathered(self) -> set[str]:
        return {mirror.stem for mirror in (self.data / "gathered" / "mirrors").glob("*/*/*.git")}

    def server(self) -> dict[str, Any]:
        (own,) = (one for one in api(self, "status")["servers"] if one["name"] == self.data.name)
        return dict(own)


async def test_aggregators_gather_by_themselves(tmp_path: Path, postgres_url: str) -> None:
    """Async only because the database's fixture is: every process here is a real one."""
    async with fresh_database(postgres_url) as url:
        with Forge(tmp_path / "forge") as forge:
            _gather(tmp_path, url, forge)


def _gather(tmp_path: Path, url: str, forge: Forge) -> None:
    repos = [forge.create(f"shared/{n}", {"a.py": b"def hello():\n    return %d\n" % n}) for n in range(3)]
    common: dict[str, Any] = {"database": url, "beat_every": 0.5}
    with Coordinator(tmp_path / "coordinator", roles=["coordinator", "manager"], **common) as coordinator:
        worker = Member(tmp_path / "worker", coordinator.make_line(), poll_min=0.3, poll_max=1.0, task_commands=["*"])
        first = Aggregator(tmp_path / "first", coordinator, name="first", **common)
        with worker, first:
            for n in range(3):
                coordinator.cli("source", "add", forge.url(f"shared/{n}"), "--label", f"l{n}")
            ids = {int(one["url"][-1]): one["id"] for one in api(coordinator, "sources")["items"]}
            # content and definitions are asked of the worker, and so are mirrors
            until(lambda: finds(first, "hello") == 3 and finds(first, "sym:hello") == 3, first)
            until(lambda: first.clones(ids[1], tmp_path / "clone"), first)
            # another that comes later fills itself with what it is there for, through the coordinator
            partly = {"name": "second", "gather_labels": ["l1"], **common}
            second = Aggregator(tmp_path / "second", coordinator, "relay", **partly)
            with second:
                until(lambda: finds(second, "hello") == 1, second)
                until(lambda: second.clones(ids[1], tmp_path / "other"), second)
                assert not second.clones(ids[0], tmp_path / "no")
                repos[1].commit({"a.py": b"def goodbye():\n    pass\n"})
                for one in (first, second):
                    until(lambda one=one: finds(one, "goodbye") == 1, one)  # type: ignore[misc]
                until(lambda: first.server()["due"] == 0 and first.server()["sources"] == 3, first)
                shown = first.server()
                assert (shown["state"], shown["roles"], shown["link"]) == ("alive", ["aggregator"], first.link)
                until(lambda: second.server()["sources"] == 1, second)
                assert second.server()["labels"] == ["l1"]
                # nobody but the coordinator places tasks
                assert "hi" in first.cli("task", "run", "--follow", "--", "echo", "hi").stdout
                # killed, it is itself again and brings what it missed
                first.kill()
                repos[2].commit({"b.py": b"def meanwhile():\n    pass\n"})
                until(lambda: finds(coordinator, "meanwhile") == 1, coordinator)
                first.start()
                until(lambda: finds(first, "meanwhile") == 1, first)
                assert first.stop() == 0
                # shards that are damaged are noticed at the start, and built again
                for shard in (first.data / "index").glob("*/index"):
                    shard.write_bytes(shard.read_bytes()[:-1])
                first.start()
                until(lambda: finds(first, "def") == 3, first)
                first.stop()
                shutil.rmtree(first.data / "index")
                for file in first.data.glob("index.db*"):
                    file.unlink()
                first.start()
                until(lambda: finds(first, "def") == 3, first)
    clones = [request.path for request in forge.requests if request.clone]
    assert len(clones) == len(set(clones)) == 3  # aggregators never asked an upstream


async def test_an_index_apart_is_compared_with_the_mirror_and_made_anew(tmp_path: Path, postgres_url: str) -> None:
    async with fresh_database(postgres_url) as url:
        common: dict[str, Any] = {"database": url, "beat_every": 0.5}
        with (
            Forge(tmp_path / "forge") as forge,
            Coordinator(tmp_path / "coordinator", roles=["coordinator", "manager"], **common) as coordinator,
            Member(tmp_path / "worker", coordinator.make_line(), index_analyse=False) as worker,
            Aggregator(tmp_path / "apart", coordinator, name="apart", reindex_every=1.0, **common) as apart,
        ):
            forge.create("whole", {"a.txt": b"alpha\n", "b.txt": b"beta\n"})
            coordinator.cli("source", "add", forge.url("whole"))
            _damage_and_wait(apart, worker)
            # what is as it should be is left alone
            for _ in range(2):  # the first may be the one that repairs
                began = await _next_comparison(url)
                async with asyncio.timeout(SECONDS):
                    while await _next_comparison(url) == began:
                        await asyncio.sleep(0.2)
            assert sum("index of an aggregator differs" in line for line in worker.log) == 1


async def test_what_workers_publish_is_compared_whatever_its_labels(tmp_path: Path, postgres_url: str) -> None:
    async with fresh_database(postgres_url) as url:
        settings: dict[str, Any] = {"database": url, "beat_every": 0.5, "reindex_every": 1.0}
        with (
            Forge(tmp_path / "forge") as forge,
            Coordinator(
                tmp_path / "all", roles=["coordinator", "manager"], gather_labels=["of others"], **settings
            ) as coordinator,
            Member(tmp_path / "worker", coordinator.make_line(), index_analyse=False) as worker,
        ):
            forge.create("whole", {"a.txt": b"alpha\n", "b.txt": b"beta\n"})
            coordinator.cli("source", "add", forge.url("whole"))
            _damage_and_wait(coordinator, worker)


async def test_what_a_holder_does_not_have_for_a_moment_is_asked_for_again(tmp_path: Path, postgres_url: str) -> None:
    async with _apart(tmp_path, postgres_url) as (forge, repo, coordinator, worker, apart):
        apart.kill()
        repo.commit({"a.txt": b"later\n"})
        until(lambda: finds(coordinator, "later") == 1, coordinator)
        # its mirror is lost, and nobody can make it anew
        forge.rename("whole", "other")
        (id,) = (one["id"] for one in api(coordinator, "sources")["items"])
        until(lambda: api(coordinator, f"sources/{id}")["failure"] is not None, coordinator)
        (mirror,) = (worker.data / "mirrors").glob("*/*/*.git")
        mirror.rename(mirror.with_suffix(".aside"))
        apart.start()
        for part in ("index", "mirror"):
            until(lambda part=part: _cannot(apart, part, "does not have"), apart)  # type: ignore[misc]
        until(lambda: apart.server()["due"] == 2, apart)
        mirror.with_suffix(".aside").rename(mirror)
        until(lambda: finds(apart, "later") == 1, apart)
        until(lambda: apart.clones(id, tmp_path / "clone"), apart)
        assert (tmp_path / "clone/a.txt").read_bytes() == b"later\n"


async def test_a_branch_that_is_not_the_default_one_moves(tmp_path: Path, postgres_url: str) -> None:
    async with _apart(tmp_path, postgres_url) as (forge, repo, coordinator, _, apart):
        repo.branch("other")
        coordinator.cli("source", "update", forge.url("whole"), "--set", "branches=other")
        for text in ("beside", "again"):
            repo.commit({"a.txt": text.encode()}, branch="other")
            until(lambda text=text: finds(coordinator, f"{text} branch:other") == 1, coordinator)  # type: ignore[misc]
            until(lambda text=text: finds(apart, f"{text} branch:other") == 1, apart)  # type: ignore[misc]


@pytest.mark.parametrize("way", ["comparison", "reindex"])
async def test_an_index_that_is_behind_catches_up(tmp_path: Path, postgres_url: str, way: str) -> None:
    """It was put back from a backup, and nothing is due."""
    often = {"reindex_every": 1.0} if way == "comparison" else {}
    async with _apart(tmp_path, postgres_url, **often) as (forge, repo, coordinator, _, apart):
        apart.stop()
        for path in apart.data.glob("index*"):
            (shutil.copytree if path.is_dir() else shutil.copy)(path, tmp_path / path.name)
        apart.start()
        repo.commit({"a.txt": b"later\n"})
        until(lambda: finds(apart, "later") == 1, apart)
        apart.stop()
        shutil.rmtree(apart.data / "index")
        for path in (*apart.data.glob("index.*"), apart.data / "index"):
            path.unlink(missing_ok=True)
        for path in tmp_path.glob("index*"):
            path.rename(apart.data / path.name)
        apart.start()
        if way == "reindex":
            assert finds(apart, "later") == 0
            coordinator.cli("source", "reindex", forge.url("whole"))
        until(lambda: finds(apart, "later") == 1, apart)


@asynccontextmanager
async def _apart(
    tmp_path: Path, postgres_url: str, **settings: Any
) -> AsyncIterator[tuple[Forge, Repo, Coordinator, Member, Aggregator]]:
    """One source, to be found at an aggregator apart."""
    async with fresh_database(postgres_url) as url:
        common: dict[str, Any] = {"database": url, "beat_every": 0.5}
        with (
            Forge(tmp_path / "forge") as forge,
            Coordinator(tmp_path / "coordinator", roles=["coordinator", "manager"], **common) as coordinator,
            Member(
                tmp_path / "worker", coordinator.make_line(), poll_min=0.3, poll_max=1.0, index_analyse=False
            ) as worker,
            Aggregator(tmp_path / "apart", coordinator, name="apart", **settings, **common) as apart,
        ):
            repo = forge.create("whole", {"a.txt": b"alpha\n"})
            coordinator.cli("source", "add", forge.url("whole"))
            until(lambda: finds(apart, "alpha") == 1 and apart.server()["due"] == 0, apart)
            yield forge, repo, coordinator, worker, apart


def _cannot(server: Aggregator, part: str, why: str) -> bool:
    return any(f"the {part} of " in line and why in line for line in server.tail().splitlines())


def _damage_and_wait(server: Coordinator | Aggregator, worker: Member) -> None:
    until(lambda: finds(server, "alpha") == 1, server)
    server.stop()
    _lose_a_file(server.data)
    worker.stop()  # or the comparison might be over before anybody has looked
    server.start()
    assert finds(server, "alpha or beta file:a.txt") == 0
    worker.start()
    until(lambda: finds(server, "alpha") == finds(server, "beta") == 1, server)


def _lose_a_file(data: Path) -> None:
    """It is in its shard, but dead to searches."""
    with closing(sqlite3.connect(data / "index.db")) as db, db:
        db.execute("UPDATE shard SET dead = ?", [b"\x01"])


async def _next_comparison(url: str) -> float:
    db = await asyncpg.connect(url)
    try:
        return float(await db.fetchval("SELECT min(due) FROM gather WHERE part = 'verify'"))
    finally:
        await db.close()


async def test_the_worker_beside_a_coordinator_gives_by_tls(tmp_path: Path, postgres_url: str) -> None:
    """The one that it has as a child, by a socket: others it must know by their CA, as any worker does."""
    async with fresh_database(postgres_url) as url:
        common: dict[str, Any] = {"database": url, "beat_every": 0.5}
        with (
            Forge(tmp_path / "forge") as forge,
            Coordinator(tmp_path / "all", role="up", poll_min=0.3, poll_max=1.0, **common) as coordinator,
            Aggregator(tmp_path / "dialled", coordinator, name="dialled", **common) as dialled,
            Aggregator(tmp_path / "relayed", coordinator, "relay", name="relayed", **common) as relayed,
        ):
            forge.create("own", {"a.txt": b"alpha\n"})
            coordinator.cli("source", "add", forge.url("own"))
            for one in (dialled, relayed):
                until(lambda one=one: finds(one, "alpha") == 1 and one.gathered(), one)  # type: ignore[misc]
            assert not [line for line in (*coordinator.log, *dialled.log) if "tunnel" in line]
            assert [one["id"][:3] for one in api(coordinator, "status")["processes"]].count("agg") == 2


async def test_a_partial_one_follows_labels_and_its_setting(tmp_path: Path, postgres_url: str) -> None:
    async with fresh_database(postgres_url) as url:
        common: dict[str, Any] = {"database": url, "beat_every": 0.5}
        with (
            Forge(tmp_path / "forge") as forge,
            Coordinator(tmp_path / "coordinator", roles=["coordinator", "manager"], **common) as coordinator,
            Member(tmp_path / "worker", coordinator.make_line(), index_analyse=False),
            Aggregator(tmp_path / "partly", coordinator, name="partly", gather_labels=["hot"], **common) as partly,
        ):
            for n in range(3):
                forge.create(f"few/{n}", {"a.txt": b"alpha\n"})
                coordinator.cli("source", "add", forge.url(f"few/{n}"), *(("--label", "hot") if n == 0 else ()))
            ids = {int(one["url"][-1]): one["id"] for one in api(coordinator, "sources")["items"]}

            def has(*wanted: int) -> bool:
                found = {hit["source"] for hit in api(partly, "search", q="alpha")["hits"]}
                return found == partly.gathered() == {ids[n] for n in wanted}

            until(lambda: finds(coordinator, "alpha") == 3 and has(0), partly)
            assert "is not on this server" in partly.clone(ids[1], tmp_path / "no")
            # without any commit
            coordinator.cli("source", "update", ids[1], "--label", "hot")
            until(lambda: has(0, 1), partly)
            coordinator.cli("source", "update", ids[0], "--label", "cold")
            until(lambda: has(1), partly)
            until(lambda: partly.server()["sources"] == 1, partly)
            # another setting: of the next start
            for labels, wanted in (["cold"], [0]), ([], [0, 1, 2]), (["hot"], [1]):
                assert partly.stop() == 0
                partly.settings["gather_labels"] = labels
                partly.start()
                until(lambda wanted=wanted: has(*wanted), partly)  # type: ignore[misc]


def test_it_needs_postgresql(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="needs PostgreSQL"):
        RunningSkep(tmp_path / "alone", role="aggregator")
