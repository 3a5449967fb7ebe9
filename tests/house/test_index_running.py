"""The index as a whole: made anew from the mirrors by one command, and by itself when its files are damaged."""

import shutil
from pathlib import Path

from tests.house.running import RunningSkep
from tests.house.waiting import until
from tests.support.forge import Forge


def test_the_whole_index_comes_again_from_the_mirrors(tmp_path: Path, forge: Forge) -> None:
    with RunningSkep(tmp_path / "data", poll_min=3600.0, index_branches=["old"]) as skep:
        ids = []
        for name in ("index/one", "index/two"):
            repo = forge.create(name, {"a.txt": b"needle before\n"})
            repo.git("branch", "old")
            repo.commit({"a.txt": b"needle now\n"})
            (row,) = skep.rows("source", "add", forge.url(name), "--wait")
            ids.append(row["id"])
        assert found(skep, "needle branch:old") == ["needle before"] * 2

        assert sorted(row["id"] for row in skep.rows("source", "reindex", "--all")) == sorted(ids)
        contexts = [row for row in skep.rows("context", "list") if row["name"].startswith("reindex")]
        for context in contexts:
            skep.cli("context", "wait", context["id"])
        assert found(skep, "needle branch:main") == ["needle now"] * 2
        assert skep.cli("source", "reindex", check=False).returncode == 2

        skep.kill()
        for shard in (skep.data / "index").iterdir():
            shutil.rmtree(shard)
        skep.start()
        for id in ids:
            skep.cli("source", "fetch", id, "--wait")
        assert found(skep, "needle") == ["needle before", "needle before", "needle now", "needle now"]


def test_letters_that_a_disk_has_changed_are_noticed_and_mended(tmp_path: Path, forge: Forge) -> None:
    """While it serves, too: by whoever reads the index whole, at start and every day."""
    with RunningSkep(tmp_path / "data", poll_min=3600.0, reindex_every=2.0) as skep:
        forge.create("index/rot", {"a.txt": b"needle\n"})
        skep.cli("source", "add", forge.url("index/rot"), "--wait")
        spoil(skep)
        until(lambda: found(skep, "case:yes needle") == ["needle"], skep)
        skep.kill()
        spoil(skep)
        skep.start()
        until(lambda: found(skep, "case:yes needle") == ["needle"], skep)


def spoil(skep: RunningSkep) -> None:
    for content in (skep.data / "index").glob("*/content"):
        with content.open("r+b") as file:
            file.write(b"N")


def found(skep: RunningSkep, query: str) -> list[str]:
    return sorted(row["text"] for row in skep.rows("search", query))
