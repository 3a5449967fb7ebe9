"""One commit beside its parent, by the program that a worker runs for it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.benchmarks.api import Measure
from skep.results.api import Draft
from skep.sources.git.browse import history, patch
from tests.benchmarks.slow_repo import slow_repo
from tests.support.forge.repository import Repo


def job(commits: list[str], at: int, **more: Any) -> Measure:
    given: dict[str, Any] = {
        "commit": commits[at],
        "base": commits[at - 1] if at else "",
        "command": ("python3", "bench.py"),
        "build": (),
        "read": "out.jsonl",
        "metrics": (),
        "repetitions": 2,
        "warmup": 0,
        "pin": False,
        "variant": "",
        "author": "Ann\tOther",
        "subject": "s",
        **more,
    }
    return Measure(**given)


def measured(repo: Repo, folder: Path, job: Measure) -> tuple[int, list[Draft], str]:
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "skep.benchmarks.measure"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "SKEP_TASK": "tsk_1", "HOME": str(folder)}
        | {"SKEP_MEASURE": msgspec.json.encode(job).decode(), "SKEP_MIRROR": str(repo.folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = (folder / "results.jsonl").read_bytes().splitlines()
    return done.returncode, [msgspec.json.decode(line, type=Draft) for line in lines], done.stdout + done.stderr


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Repo, list[str]]:
    return slow_repo(tmp_path_factory.mktemp("m") / "repo", 4, 2, change=0.5, noise=0.001, broken=3)


def test_a_commit_beside_its_parent(repo: tuple[Repo, list[str]], tmp_path: Path) -> None:
    code, (draft,), said = measured(repo[0], tmp_path / "w", job(repo[1], 2, variant="N=1", pin=True))
    assert code == 0, said
    assert (draft.metric, draft.unit, draft.group, len(draft.values)) == ("time", "s", "parse [N=1]", 2)
    assert draft.tags["author"] == "Ann Other"
    assert draft.tags["base"] == repo[1][1]
    assert float(draft.tags["ratio"]) == pytest.approx(1.5, abs=0.02)
    assert len(draft.tags["base_values"].split()) == 2


def test_the_time_on_the_wall_of_a_first_commit(repo: tuple[Repo, list[str]], tmp_path: Path) -> None:
    wanted = job(repo[1], 0, read="", warmup=1, build=("sh", "-c", "echo built > built"), command=("cat", "built"))
    code, (draft,), said = measured(repo[0], tmp_path / "w", wanted)
    assert code == 0, said
    assert said.count("built") == 3
    assert (draft.metric, draft.unit, draft.group) == ("time", "s", "")
    assert "base" not in draft.tags


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"build": ("sh", "-c", "exit 7")}, "build: sh -c exit 7 ended with 7"),
        ({"command": ("false",)}, "run: false ended with 1"),
        ({"command": ("./missing",)}, "run: ./missing: No such file or directory"),
        ({"command": ("true",)}, "run: out.jsonl cannot be read: No such file or directory"),
        ({"commit": "0" * 40}, "checkout: "),
    ],
)
def test_what_cannot_be_measured_is_recorded_as_such(
    repo: tuple[Repo, list[str]], tmp_path: Path, more: dict[str, Any], reason: str
) -> None:
    code, (draft,), _ = measured(repo[0], tmp_path / "w", job(repo[1], 1, **more))
    assert code == 1
    assert (draft.kind, draft.metric) == ("failure", "")
    assert draft.tags["reason"].startswith(reason)


def test_a_parent_that_fails_leaves_the_commit_alone(repo: tuple[Repo, list[str]], tmp_path: Path) -> None:
    wanted = job([*repo[1][:3], repo[1][3]], 3, commit=repo[1][2], base=repo[1][3], warmup=1)
    code, (draft,), said = measured(repo[0], tmp_path / "w", wanted)
    assert code == 0, said
    assert "nothing to compare with" in said
    assert "base" not in draft.tags


def test_metrics_that_nobody_wants_are_left_out(repo: tuple[Repo, list[str]], tmp_path: Path) -> None:
    assert measured(repo[0], tmp_path / "w", job(repo[1], 1, metrics=("mem*",)))[:2] == (0, [])


async def test_history_runs_along_first_parents_in_order(repo: tuple[Repo, list[str]]) -> None:
    folder, commits = repo[0].folder, repo[1]
    found = await history(folder, "main")
    assert [one.id for one in found] == commits
    assert [one.parent for one in found] == ["", *commits[:-1]]
    assert sorted(one.made_at for one in found) == [one.made_at for one in found]
    assert [one.id for one in await history(folder, "main", commits[1])] == commits[1:]
    assert "+0.375" in (await patch(folder, found[2], 10_000) or "")
    assert "bench.py" in (await patch(folder, found[0], 10_000) or "")
    assert await patch(folder, found[0], 10) is None
