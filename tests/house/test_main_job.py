"""The main job, as a user does it: add, search, follow upstream, clone, remove. Once on each database."""

import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.house.running import RunningSkep, environment
from tests.support.forge import Forge
from tests.support.postgres import fresh_database


@pytest.fixture(params=["sqlite", "postgres"])
async def skep(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunningSkep]:
    async with AsyncExitStack() as stack:
        database = "sqlite:"
        if request.param == "postgres":
            database = await stack.enter_async_context(fresh_database(request.getfixturevalue("postgres_url")))
        running = RunningSkep(tmp_path / "data", database=database)
        yield running
        running.stop()


def lines(skep: RunningSkep, query: str) -> list[tuple[str, int, str]]:
    return [(row["path"], row["line"], row["text"]) for row in skep.rows("search", query)]


def test_from_url_to_hit_and_along_with_upstream(skep: RunningSkep, forge: Forge, tmp_path: Path) -> None:
    repo = forge.create(
        f"team/{skep.process.pid}", {"a.py": b"def needle():\n    pass\n", "doc/b.txt": b"needle two\n"}
    )
    url = forge.url(f"team/{skep.process.pid}")

    skep.cli("source", "add", url, "--wait")
    assert lines(skep, "needle") == [("a.py", 1, "def needle():"), ("doc/b.txt", 1, "needle two")]
    (row, *_) = skep.rows("search", "needle file:a.py")
    assert row["commit"] == repo.refs()["refs/heads/main"]
    assert row["fetched_at"] > 0 and row["column"] == 5

    again = skep.rows("source", "add", url + ".git/")
    assert [source["id"] for source in skep.rows("source", "list")] == [again[0]["id"]]

    # one changed, one deleted, one new
    repo.commit({"a.py": b"def haystack():\n    pass\n", "doc/b.txt": None, "c.py": b"x = 'needle three'\n"})
    skep.cli("source", "fetch", url, "--wait")
    assert lines(skep, "needle") == [("c.py", 1, "x = 'needle three'")]
    assert lines(skep, "haystack") == [("a.py", 1, "def haystack():")]

    # a rewritten history and a branch that comes and goes
    repo.branch("side")
    repo.force_push({"new.py": b"only needle\n"})
    skep.cli("source", "fetch", url, "--wait")
    repo.delete_branch("side")
    skep.cli("source", "fetch", url, "--wait")
    assert lines(skep, "needle") == [("new.py", 1, "only needle")]

    clone = tmp_path / "clone"
    name = skep.rows("source", "list")[0]["name"]
    done = subprocess.run(
        ["git", "clone", "-q", f"{skep.url}/git/{name}.git", str(clone)],
        capture_output=True,
        text=True,
        check=False,
        env=environment({}),
    )
    assert done.returncode == 0, done.stderr + skep.tail()
    assert (clone / "new.py").read_bytes() == b"only needle\n"

    told = [(row["body"]["entry"], row["body"]["seq"], row["body"]["new"]) for row in changes(skep)]
    mains = [row for row in told if row[0] == "refs/heads/main"]
    assert [seq for _, seq, _ in mains] == [1, 2, 3]
    assert mains[-1][2] == repo.refs()["refs/heads/main"]
    assert [(seq, new is None) for entry, seq, new in told if entry == "refs/heads/side"] == [(1, False), (2, True)]

    skep.cli("source", "remove", url, "--yes")
    assert skep.rows("source", "list") == []
    assert lines(skep, "needle") == []


def changes(skep: RunningSkep) -> list[dict[str, dict[str, object]]]:
    return skep.rows("topic", "read", "skep.changes", "--limit", "1000")


def test_what_was_there_is_there_after_a_restart(skep: RunningSkep, forge: Forge) -> None:
    name = f"restart/{skep.process.pid}"
    forge.create(name, {"a.txt": b"lasting words\n"})
    skep.cli("source", "add", forge.url(name), "--wait")
    before = skep.rows("source", "list")
    assert skep.stop() == 0, skep.tail()
    asked = len(forge.requests)
    skep.start()
    after = skep.rows("source", "list")
    assert [row["id"] for row in after] == [row["id"] for row in before]
    assert after[0]["next_poll"] == before[0]["next_poll"]
    assert lines(skep, "lasting") == [("a.txt", 1, "lasting words")]
    assert len(forge.requests) == asked, "a restart asked upstream although nothing was due"


def test_a_local_folder(skep: RunningSkep, tmp_path: Path) -> None:
    work = tmp_path / "work tree"
    work.mkdir()
    git = ["git", "-C", str(work), "-c", "user.name=a", "-c", "user.email=a@b"]
    for args in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run([*git, *args], check=True, env=environment({}))
    (work / "hello.txt").write_text("local treasure\n")
    subprocess.run([*git, "add", "."], check=True, env=environment({}))
    subprocess.run([*git, "commit", "-q", "-m", "y"], check=True, env=environment({}))
    skep.cli("source", "add", str(work), "--wait")
    assert lines(skep, "treasure") == [("hello.txt", 1, "local treasure")]

    (found,) = skep.rows("search", "type:commit /^y$/ author:^a")
    assert (found["subject"], found["author"]) == ("y", "a <a@b>")
    assert skep.cli("search", "type:commit", "y").stdout == f"{found['name']}:{found['commit']}:y\n"
    assert skep.cli("search", "--count", "type:commit").stdout == "2 commits\n"
    assert skep.cli("search", "type:commit before:2000", check=False).returncode == 1
