"""Rules as a user has them: a commit upstream becomes a finished context, whoever is killed in between."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from skep.client import Client
from tests.house.running import RunningSkep
from tests.house.waiting import until
from tests.support.forge import Forge

RULE = """
name = "check"
source = "**/watched*"
context = {name = "check", tasks = [{kind = "noop"}, {name = "after", kind = "noop", needs = [{task = "task-1"}]}]}
"""
FILE = """
[[rule]]
name = "docs"
source = "**"
paths = ["doc/**"]
latest = true
context = {name = "docs", tasks = [{kind = "noop"}]}
"""


@pytest.fixture
def configured(tmp_path: Path) -> Iterator[RunningSkep]:
    (tmp_path / "skep.toml").write_text(FILE)
    running = RunningSkep(tmp_path / "data", before=["env", f"SKEP_CONFIG={tmp_path}/skep.toml"])
    yield running
    running.stop()


def test_commit_to_finished_context(configured: RunningSkep, forge: Forge, tmp_path: Path) -> None:
    skep = configured
    (tmp_path / "check.toml").write_text(RULE)
    skep.cli("rule", "add", str(tmp_path / "check.toml"))
    repo = forge.create("team/watched", {"a.txt": b"1"})
    url = forge.url("team/watched")
    skep.cli("source", "add", url, "--wait")
    commit = repo.commit({"a.txt": b"2"})
    skep.cli("source", "fetch", url, "--wait")
    context = until(lambda: fired(skep, "check"), skep)
    assert ended(skep, context)["state"] == "FINISHED"
    assert ended(skep, context)["new"] == commit
    # no path of the other rule was touched, and the first clone was no change; now one is
    assert fired(skep, "docs") is None
    repo.commit({"doc/a.md": b"3"})
    skep.cli("source", "fetch", url, "--wait")
    assert ended(skep, until(lambda: fired(skep, "docs"), skep))["state"] == "FINISHED"

    by_hand = skep.rows("rule", "fire", "docs", "--source", url)[0]
    assert by_hand["cause"].startswith("person:") and ended(skep, by_hand["id"])["state"] == "FINISHED"
    listed = skep.cli("rule", "list").stdout
    assert "check" in listed and "docs" in listed and "(skep.toml)" in listed
    assert skep.cli("rule", "remove", "docs", check=False).returncode == 4
    skep.cli("rule", "disable", "check")
    before = fired(skep, "check")
    repo.commit({"doc/a.md": b"4"})
    skep.cli("source", "fetch", url, "--wait")
    until(lambda: (last := fired(skep, "docs")) != by_hand["id"] and last, skep)
    assert fired(skep, "check") == before
    skep.cli("rule", "remove", "check")


def fired(skep: RunningSkep, rule: str) -> str | None:
    with Client(skep.url, skep.token) as client:
        last = client.rules.show(rule).last
    return last.context if last else None


def ended(skep: RunningSkep, context: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        with closing(sqlite3.connect(skep.data / "skep.db")) as db:
            row = db.execute(
                "SELECT state, json_extract(properties, '$.new') FROM context WHERE id = ?", [context]
            ).fetchone()
        return {"state": row[0], "new": row[1]} if row[0] != "RUNNING" else None

    return until(look, skep)


def test_killed_again_and_again_each_batch_fires_once(skep: RunningSkep, forge: Forge, tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(
        "".join(
            f"[[rule]]\nname = 'r{n}'\nsource = '**'\npaths = ['f*']\n"
            "context = {name = 'c', tasks = [{kind = 'noop'}, {name = 'b', kind = 'noop'}]}\n"
            for n in range(20)
        )
    )
    skep.cli("rule", "add", str(tmp_path / "rules.toml"))
    repo = forge.create("team/killed", {"f0": b"1"})
    skep.cli("source", "add", forge.url("team/killed"), "--wait")
    for n in range(1, 7):
        repo.commit({f"f{n}": b"1"})
        skep.cli("source", "fetch", forge.url("team/killed"))
        time.sleep(0.05 * n)  # at another moment each time: before, within and after the step
        skep.kill()
        skep.start()
    repo.commit({"f": b"last"})
    skep.cli("source", "fetch", forge.url("team/killed"), "--wait")
    newest = repo.refs()["refs/heads/main"]
    for n in range(20):
        until(lambda n=n: _new_of(skep, f"r{n}") == newest, skep)  # type: ignore[misc]
    until(lambda: not _owed(skep), skep)  # of an older change, whose paths could not be read at the time
    with closing(sqlite3.connect(skep.data / "skep.db")) as db:
        batches = {
            row[0] for row in db.execute("SELECT batch FROM change WHERE first = 0 AND entry = 'refs/heads/main'")
        }
        made = db.execute(
            "SELECT json_extract(properties, '$.rule'), cause FROM context WHERE cause LIKE 'change:%'"
        ).fetchall()
    assert len(made) == len(set(made))
    assert set(made) == {(f"r{n}", f"change:{batch}") for n in range(20) for batch in batches}


def _owed(skep: RunningSkep) -> list[Any]:
    with closing(sqlite3.connect(skep.data / "skep.db")) as db:
        return db.execute("SELECT batch FROM owed").fetchall()


def _new_of(skep: RunningSkep, rule: str) -> Any:
    context = fired(skep, rule)
    return ended(skep, context)["new"] if context else None
