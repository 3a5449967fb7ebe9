"""Commands of packages on real workers: brought through the link, checked, kept while there is room."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skep.client import Client
from skep.tasks.model import Task, TaskSpec
from tests.cluster.fleet import Coordinator, Member, until
from tests.packages.making import folder, tar

REF = "org.example/bench/1.0"


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    with Coordinator(tmp_path_factory.mktemp("packages") / "coordinator") as running:
        yield running


@pytest.fixture(scope="module")
def worker(coordinator: Coordinator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    """On another machine, as it were; with room for one package."""
    line, allowed = coordinator.make_line("--name", "far"), ["org.example/bench", "org.example/big"]
    variables = ["org.example/bench:WHO", "X"]
    settings: dict[str, Any] = {"task_packages": allowed, "task_variables": variables, "package_cache": 41_200}
    with Member(tmp_path_factory.mktemp("far") / "far", line, **settings) as running:
        yield running.attached()


def ran(coordinator: Coordinator, spec: TaskSpec) -> tuple[Task, str]:
    with Client(coordinator.url, coordinator.token) as client:
        made = client.tasks.submit(spec)
        assert client.contexts.wait(made.context.id, 60).state != "RUNNING"
        body = b"".join(chunk.body for chunk in client.tasks.output(made.task))
        return client.tasks.show(made.task).task, body.decode()


def kept(worker: Member) -> list[Path]:
    return sorted((worker.data / "worker" / "packages").glob("??/*"))


def test_from_a_folder_to_a_result(coordinator: Coordinator, worker: Member, tmp_path: Path) -> None:
    made = folder(tmp_path / "bench")
    archive = tmp_path / "bench.tar.gz"
    assert REF in coordinator.cli("package", "build", str(made), "--output", str(archive)).stdout
    pushed = coordinator.rows("package", "push", str(archive))[0]
    assert coordinator.rows("package", "push", str(made)) == [pushed]
    assert REF in coordinator.cli("package", "list", "org.example").stdout
    assert 'commands    run: ["sh","run.sh"]' in coordinator.cli("package", "show", REF).stdout
    coordinator.cli("package", "download", REF, str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == archive.read_bytes()

    task, said = ran(coordinator, TaskSpec("t", package=REF, command="run", argv=("a", "b c"), environment={"X": "y"}))
    assert (task.state, said) == ("FINISHED", f"package {task.id} a b c\n"), task.reason
    with Client(coordinator.url, coordinator.token) as client:
        assert [one.value for one in client.results.list([f"task={task.id}"])] == [1.5]
    assert [path.name for path in kept(worker)] == [pushed["blob"]]
    assert not list((worker.data / "worker" / "tasks" / "runs").iterdir())
    assert ran(coordinator, TaskSpec("t", package=REF, command="own", argv=("second",)))[1] == "own first second\n"
    done = coordinator.cli("package", "run", REF, "twice", "--property", "level=3", "--wait")
    assert "FINISHED" in done.stdout
    followed = coordinator.cli("task", "run", "--package", REF, "--command", "own", "--follow")
    assert followed.stdout == "own first\n"


def test_what_is_damaged_on_the_disk_is_brought_again(coordinator: Coordinator, worker: Member) -> None:
    (path,) = kept(worker)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"?")
    assert ran(coordinator, TaskSpec("t", package=REF, command="own"))[0].state == "FINISHED"
    assert path.read_bytes() == whole


def test_the_oldest_makes_room_and_a_snapshot_is_the_newest(
    coordinator: Coordinator, worker: Member, tmp_path: Path
) -> None:
    (first,) = kept(worker)
    for n in range(2):
        manifest = 'group = "org.example"\nname = "big"\nversion = "1-SNAPSHOT"\n[commands]\nsay = ["sh", "say.sh"]\n'
        noise = bytes((n + i * i * 7919 + (i << 3)) % 251 for i in range(30_000))
        content = {"skep-package.toml": manifest.encode(), "say.sh": f"echo {n}\n".encode(), "noise": noise}
        (tmp_path / "big.tar").write_bytes(tar(content, mode="w"))
        coordinator.cli("package", "push", str(tmp_path / "big.tar"))
        # it has one command, which need not be named
        assert ran(coordinator, TaskSpec("t", package="org.example/big/1-SNAPSHOT"))[1] == f"{n}\n"
        assert len(kept(worker)) == 1 and first not in kept(worker)


def test_what_cannot_be_run(coordinator: Coordinator, worker: Member) -> None:
    task, _ = ran(coordinator, TaskSpec("t", package="org.example/bench/7.0", command="run"))
    assert (task.state, task.reason) == ("FAILED", "there is no package 'org.example/bench/7.0'")
    task, _ = ran(coordinator, TaskSpec("t", package=REF, command="jump"))
    assert task.reason == f"{REF} has no command 'jump'; it has run, own"
    waiting = coordinator.rows("task", "run", "--package", "other/group/1.0", "--command", "run")[0]["task"]

    def told() -> bool:
        reason = coordinator.rows("task", "show", waiting)[0]["task"]["reason"]
        return str(reason) == "no worker may run 'other/group': see the setting task_packages"

    until(told, coordinator)
