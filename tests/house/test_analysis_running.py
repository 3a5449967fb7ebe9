"""From a commit to its report: analysed by the worker once it is searchable, known to searches, shown by every door."""

import json
import shutil
from pathlib import Path
from typing import Any

from skep.storage.code_index.analysis_files import Library
from tests.house.running import RunningSkep
from tests.house.waiting import until
from tests.support.forge import Forge

FILES: dict[str | bytes, bytes | str | None] = {
    "LICENSE": b"Apache License\nVersion 2.0, January 2004\n",
    "src/tea.py": b"def pour(cup):\n    cup = fill(cup) == 1\n    return cup\n",
    "src/pot.go": b"package pot\n\nfunc Boil() int { return 1 }\n",
    "vendor/x.go": b"package x\n\nfunc Theirs() { a() }\n",
}


def report(skep: RunningSkep, source: str, *options: str) -> dict[str, object]:
    answer: dict[str, object] = json.loads(skep.cli("report", source, "--json", *options).stdout)
    return answer


def ended(skep: RunningSkep, contexts: int) -> None:
    """So many contexts of an index have finished, their analysis included."""

    def found() -> list[dict[str, Any]] | None:
        rows = [one for one in skep.rows("context", "list") if "index " in one["name"]]
        return rows if len(rows) >= contexts else None

    for context in until(found, skep):
        if context["state"] == "RUNNING":
            skep.cli("context", "wait", context["id"], check=False)
    assert {one["state"] for one in skep.rows("context", "list")} == {"FINISHED"}


def test_a_report_follows_every_commit(tmp_path: Path, forge: Forge) -> None:
    repo = forge.create("analysis/tea", FILES)
    with RunningSkep(tmp_path / "data", poll_min=3600.0) as skep:
        (row,) = skep.rows("source", "add", forge.url("analysis/tea"), "--wait")
        ended(skep, 1)
        first = report(skep, row["id"])
        found = first["report"]
        assert isinstance(found, dict)
        assert (found["licence"], found["functions"], found["vendored"]["files"]) == ("Apache-2.0", 2, 1)
        assert [(one["name"], one["path"], one["line"]) for one in found["hot"]] == [
            ("pour", "src/tea.py", 1),
            ("Boil", "src/pot.go", 3),
        ]
        assert "pour" in skep.cli("report", row["name"]).stdout

        repo.commit({"src/more.rs": b"fn extra() { call(); }\n"})
        skep.cli("source", "fetch", row["id"], "--wait")
        ended(skep, 2)
        second = report(skep, row["id"])
        assert isinstance(second["report"], dict) and isinstance(second["history"], list)
        assert second["report"]["functions"] == 3
        assert [point["functions"] for point in second["history"]] == [2, 3]
        assert report(skep, row["id"], "--commit", found["commit"])["report"] == found
        assert skep.cli("report", row["id"], "--commit", "ffff", check=False).returncode == 3

        books = Library(skep.data / "index" / "books").open()
        definitions = books.of(_blobs(repo.git("ls-tree", "-r", "main")))
        assert len(definitions.at) == 4

        skep.kill()
        shutil.rmtree(skep.data / "index" / "books")
        skep.start()
        skep.rows("source", "reindex", row["id"])
        ended(skep, 3)
        again = Library(skep.data / "index" / "books").open().of(_blobs(repo.git("ls-tree", "-r", "main")))
        assert len(again.at) == 4, "what the aggregator lost is told again, from what the worker knows"


def test_a_large_source_is_analysed_in_batches_after_it_is_published(tmp_path: Path, forge: Forge) -> None:
    files: dict[str | bytes, bytes | str | None] = {
        f"m{n}.py": b"def f%d(a):\n    return a == %d\n" % (n, n) * 20 for n in range(40)
    }
    # a grammar that is given this does not come back: the process is ended, the file passed over
    forge.create("analysis/large", {**files, "hostile.c": b"(" * 200_000})
    with RunningSkep(tmp_path / "data", poll_min=3600.0, index_batch=80_000) as skep:
        (row,) = skep.rows("source", "add", forge.url("analysis/large"), "--wait")
        assert len(skep.rows("search", "case:yes f17")) == 20
        ended(skep, 1)
        (context,) = [one for one in skep.rows("context", "list") if one["name"].startswith("index")]
        _, shown = skep.get(f"/api/v1/contexts/{context['id']}")
        kinds = {task["kind"] for task in shown["tasks"]}
        assert kinds >= {"index", "index.batch", "index.publish", "analyse", "report"}
        found = report(skep, row["id"])["report"]
        assert isinstance(found, dict)
        assert (found["functions"], found["total"]["files"]) == (800, 41)
        (source,) = skep.rows("source", "show", row["id"])
        assert source["state"] == "current"


def _blobs(listing: bytes) -> list[str]:
    return [line.split()[2].decode() for line in listing.splitlines()]
