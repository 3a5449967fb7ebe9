"""kill -9 at bad moments, full disks: what was acknowledged is there, and everything catches up by itself."""

import random
import subprocess
import threading
from pathlib import Path
from typing import Any

from tests.house.disk import filled, on_small_disk
from tests.house.running import RunningSkep, environment
from tests.support.forge import Forge, Repo

ROUNDS = 6


def mirror_of(skep: RunningSkep, source: str) -> Path:
    (folder,) = (skep.data / "mirrors").glob(f"*/*/{source}.git")
    return folder


def refs(folder: Path) -> dict[str, str]:
    out = subprocess.run(
        ["git", "-C", str(folder), "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags"],
        capture_output=True,
        text=True,
        check=True,
        env=environment({}),
    ).stdout
    return dict(line.split(" ") for line in out.splitlines())


def replay(skep: RunningSkep, source: str) -> dict[str, str]:
    """Where the entries of a source stand, by what was told alone."""
    standing: dict[str, tuple[int, str | None]] = {}
    rows = skep.rows("topic", "read", "skep.changes", "--limit", "1000")
    for change in (row["body"] for row in rows if row["body"]["source"] == source):
        seq, version = standing.get(change["entry"], (0, None))
        assert change["seq"] == seq + 1, "a change is missing or was told twice"
        assert change["old"] == version
        standing[change["entry"]] = (change["seq"], change["new"])
    return {name: version for name, (_, version) in standing.items() if version and name != "HEAD"}


def commit_some(repo: Repo, turn: int, chance: random.Random) -> None:
    for n in range(chance.randint(1, 3)):
        repo.commit({f"file{chance.randint(0, 5)}.txt": f"round {turn} step {n} wordround{turn}\n".encode()})
    if chance.random() < 0.5:
        repo.tag(f"v{turn}")
    if chance.random() < 0.3:
        repo.force_push({"rewritten.txt": f"anew wordround{turn}\n".encode()})


def test_kills_again_and_again(tmp_path: Path, forge: Forge) -> None:
    chance = random.Random(7)
    repos = {f"kill/{n}": forge.create(f"kill/{n}", {"a.txt": b"start\n"}) for n in range(3)}
    with RunningSkep(tmp_path / "data", poll_min=1.0) as skep:
        for name in repos:
            skep.cli("source", "add", forge.url(name))
        for turn in range(ROUNDS):
            for repo in repos.values():
                commit_some(repo, turn, chance)
            kill_while_asking(skep, [forge.url(name) for name in repos], chance)
        for name, repo in repos.items():
            skep.cli("source", "fetch", forge.url(name), "--wait")
            check(skep, forge.url(name), repo)
        assert skep.stop() == 0, skep.tail()


def kill_while_asking(skep: RunningSkep, urls: list[str], chance: random.Random) -> None:
    asking = [threading.Thread(target=ask, args=(skep, url)) for url in urls]
    for thread in asking:
        thread.start()
    threading.Event().wait(chance.random() * 1.5)  # the moment of the kill is the test's input
    everything = chance.random() < 0.5
    if everything:
        skep.kill()
    else:
        skep.kill_children()
    for thread in asking:
        thread.join()
    if everything:
        skep.start()


def ask(skep: RunningSkep, url: str) -> None:
    skep.cli("source", "fetch", url, check=False)


def check(skep: RunningSkep, url: str, repo: Repo) -> None:
    source: dict[str, Any] = skep.rows("source", "show", url)[0]
    assert source["state"] == "current", f"{source['failure']}{skep.tail()}"
    mirror = mirror_of(skep, source["id"])
    assert refs(mirror) == repo.refs()
    fsck = subprocess.run(["git", "-C", str(mirror), "fsck", "--full"], capture_output=True, check=False)
    assert fsck.returncode == 0, fsck.stderr
    assert replay(skep, source["id"]) == repo.refs()
    expected = repo.git("grep", "-n", "-h", "wordround", "refs/heads/main").decode().splitlines()
    found = skep.rows("search", f"wordround repo:{source['name']}$", "--lines", "1000")
    assert sorted(f"{row['line']}:{row['text']}" for row in found) == sorted(expected)
    assert all(row["commit"] == repo.refs()["refs/heads/main"] for row in found)


def test_a_disk_that_fills_up_and_empties_again(tmp_path: Path, forge: Forge) -> None:
    forge.create("disk/one", {"a.txt": b"before the flood\n"})
    repo = forge.create("disk/two", {"a.txt": b"two\n"})
    with on_small_disk(tmp_path / "small", poll_min=1.0) as skep:
        skep.cli("source", "add", forge.url("disk/one"), "--wait")
        for context in skep.rows("context", "list"):  # it is analysed after it was found
            skep.cli("context", "wait", context["id"])
        with filled(skep.data):
            refused = skep.cli("source", "add", forge.url("disk/two"), check=False)
            assert refused.returncode != 0
            assert "full" in refused.stderr, refused.stderr
            assert skep.rows("search", "flood"), "reads go on"
        skep.cli("source", "add", forge.url("disk/two"), "--wait")
        assert skep.rows("search", "two repo:disk/two")
        repo.commit({"a.txt": b"three\n"})
        skep.cli("source", "fetch", forge.url("disk/two"), "--wait")
        assert skep.rows("search", "three repo:disk/two")
        assert skep.stop() == 0, skep.tail()
