"""A coordinator, two workers and a manager as four processes over TLS; and what goes wrong between them."""

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.fleet import Coordinator, Member, until
from tests.support.forge import Forge


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    with Forge(tmp_path_factory.mktemp("forge")) as running:
        yield running


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    # a worker that stalls for some seconds is still alive, and not to be forgotten
    with Coordinator(tmp_path_factory.mktemp("fleet") / "coordinator", poll_min=0.5, beat_every=10.0) as running:
        yield running


def test_four_processes_mirror_and_index_and_run_tasks(coordinator: Coordinator, forge: Forge, tmp_path: Path) -> None:
    for n in range(4):
        forge.create(f"apart/{n}", {"a.txt": b"hello %d\n" % n, "b.py": b"def shared():\n    pass\n"})
    urls = [forge.url(f"apart/{n}") for n in range(4)]
    first = Member(tmp_path / "first", coordinator.make_line("--name", "first"), task_commands=["*"])
    second = Member(tmp_path / "second", coordinator.make_line("--name", "second"), labels=["big"], capacity=2.0)
    manager = Member(tmp_path / "third", coordinator.make_line("--role", "manager"), role="manager")
    with first, second, manager:
        for member in (first, second, manager):
            member.attached()
        for url in urls:
            coordinator.cli("source", "add", url)
        until(lambda: {one["state"] for one in coordinator.rows("source", "list")} == {"current"}, coordinator)
        # of files that a worker knows from another source, too
        for url in urls:
            until(partial(_reported, coordinator, url), coordinator)
        workers = coordinator.workers()
        assert set(workers) == {"first", "second"}
        assert workers["second"]["offer"]["labels"] == ["big"]
        assert workers["second"]["offer"]["capacity"] == 2.0
        shown = coordinator.cli("worker", "show", "first").stdout
        assert workers["first"]["member"]["id"] in shown
        assert "hi" in coordinator.cli("task", "run", "--follow", "--", "echo", "hi").stdout
        # what a worker or manager logs is read at the coordinator
        until(lambda: len({one["process"][:4] for one in coordinator.rows("log", "--lines", "1000")}) == 3, coordinator)
        assert not list((coordinator.data / "mirrors").glob("*/*/*.git"))
        until(lambda: sum(_mirrors(one) for one in (first, second)) == len(urls), coordinator)
        member = workers["first"]["member"]["id"]
        assert first.stop() == 0
        until(lambda: coordinator.workers()["first"]["member"]["state"] != "alive", coordinator)
        first.start()
        until(lambda: coordinator.workers()["first"]["member"]["state"] == "alive", coordinator)
        assert coordinator.workers()["first"]["member"]["id"] == member
        # a worker that is to go: emptied or not, and forgotten only when it is no longer there
        coordinator.cli("worker", "drain", "second")
        assert "draining" in coordinator.cli("worker", "show", "second").stdout
        coordinator.cli("worker", "resume", "second")
        assert coordinator.cli("worker", "forget", "second", check=False).returncode == 7
        assert second.stop(signal.SIGINT) == 0
        until(lambda: coordinator.workers()["second"]["member"]["state"] != "alive", coordinator)
        coordinator.cli("worker", "forget", "second")
        assert set(coordinator.workers()) == {"first"}
    assert coordinator.cli("worker", "show", "nobody", check=False).returncode == 3


def _mirrors(member: Member) -> int:
    return len(list((member.data / "mirrors").glob("*/*/*.git")))


def _reported(coordinator: Coordinator, url: str) -> bool:
    return "Python" in coordinator.cli("report", url, check=False).stdout


def test_a_revoked_token_ends_the_stream_at_once(coordinator: Coordinator, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(coordinator.make_token("--name", "spare"))
    ca = str(coordinator.data / "tls" / "ca.crt")
    settings: dict[str, Any] = {"coordinators": [coordinator.link], "token_file": str(token), "tls_ca": ca}
    with Member(tmp_path / "one", **settings) as one:
        one.attached()
        with Member(tmp_path / "two", **settings) as two:
            two.says("belongs to another member")
        (id,) = (row["id"] for row in coordinator.rows("worker", "tokens") if row["name"] == "spare")
        coordinator.cli("worker", "revoke", id)
        one.says(f"{id} (spare) was revoked")
        until(lambda: any("was revoked" in line for line in coordinator.log), coordinator)
        (row,) = (row for row in coordinator.rows("worker", "tokens") if row["id"] == id)
        assert row["revoked_at"] is not None and len(row["members"]) == 1
        # another token takes its place without a restart of anything else
        one.stop()
        token.write_text(coordinator.make_token())
        one.start()
        one.attached()
    assert coordinator.cli("worker", "revoke", id, check=False).returncode == 3


def test_a_copied_folder_is_told_from_its_original(coordinator: Coordinator, tmp_path: Path) -> None:
    with Member(tmp_path / "original", coordinator.make_line()) as original:
        original.attached()
        with Member(tmp_path / "copy", coordinator.make_line()) as copy:
            copy.attached()
        database = tmp_path / "copy" / "worker" / "worker.db"
        for file in database.parent.glob("worker.db*"):
            file.unlink()
        original.stop()
        for file in (tmp_path / "original" / "worker").glob("worker.db*"):
            (database.parent / file.name).write_bytes(file.read_bytes())
        original.start()
        original.attached()
        with Member(tmp_path / "copy") as copy:
            copy.says("has joined with another token")
        # the folder with its line as well: the newer process ends the older, which says so and ends
        (tmp_path / "copy" / "join").write_bytes((tmp_path / "original" / "join").read_bytes())
        with Member(tmp_path / "copy") as copy:
            original.says("a newer process of")
            copy.attached()
            assert original.process.wait(30) == 7


def test_plain_text_to_a_tls_port_is_told(coordinator: Coordinator, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(coordinator.make_token())
    with Member(tmp_path / "plain", coordinators=[coordinator.link], token_file=str(token)) as member:
        member.says("it speaks TLS")


def test_the_port_for_people_is_told_from_that_of_the_link(coordinator: Coordinator, tmp_path: Path) -> None:
    """In our own words alone: nothing of what the library below says reaches a person."""
    token = tmp_path / "token"
    token.write_text(coordinator.make_token())
    web, ca = coordinator.url.removeprefix("http://"), str(coordinator.data / "tls" / "ca.crt")
    with Member(tmp_path / "web", coordinators=[web], token_file=str(token), tls_ca=ca) as member:
        member.says("is that its link_listen")
    assert not [line for line in member.log if "skep.rpc" not in line and "it has ended" not in line]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with Member(tmp_path / "none", coordinators=["127.0.0.1:9"], token_file=str(tmp_path / "no")) as member:
        assert member.says("token_file").endswith("/no cannot be read: No such file or directory\n")
