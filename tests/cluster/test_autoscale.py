"""`skep autoscale` over a real fleet: the test is the machine room, and starts and stops workers as it is told."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.fleet import Coordinator, Member, until
from tests.house.running import SKEP, environment


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    with Coordinator(tmp_path_factory.mktemp("fleet") / "coordinator") as running:
        yield running


def test_workers_come_for_work_and_go_when_it_is_done(coordinator: Coordinator, tmp_path: Path) -> None:
    orders = tmp_path / "orders"
    orders.touch()
    aim = ("--least", "0", "--most", "2", "--within", "1", "--every", "0.5", "--label", "burst")
    command = [*SKEP, "autoscale", *aim, "--", "sh", "-c", f"echo {{n}} >> {orders}"]
    variables = environment({}) | {"SKEP_URL": coordinator.url, "SKEP_TOKEN": coordinator.token}
    line = coordinator.make_line("--shared")

    def ordered(number: str) -> None:
        until(lambda: orders.read_text().split()[-1:] == [number], coordinator)

    def worker(name: str) -> Member:
        one = Member(tmp_path / name, line, task_commands=["*"], mirror=False, labels=["burst"], task_slots=1)
        return stack.enter_context(one)

    with ExitStack() as stack:
        scaling = stack.enter_context(subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL))
        stack.callback(scaling.terminate)
        for n in range(6):
            coordinator.cli("task", "run", "--name", f"work-{n}", "--", "sleep", "2")
        ordered("1")
        first = worker("first")
        ordered("2")
        second = worker("second")
        until(lambda: {one["state"] for one in coordinator.rows("context", "list")} == {"FINISHED"}, coordinator)
        # nobody is kept, or started, for what no such worker may do
        coordinator.cli("task", "run", "--selector", 'labels has "nobody"', "--", "true")
        ordered("1")
        assert second.stop() == 0
        ordered("0")
        assert first.stop() == 0
        (waiting,) = (one["id"] for one in coordinator.rows("context", "list") if one["state"] == "RUNNING")
        coordinator.cli("context", "cancel", waiting)


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("--", "true"), 2, "nowhere how many"),
        (("--least", "3", "--most", "2", "--", "true", "{n}"), 2, "--least is from 0"),
        (("--every", "0", "--", "true", "{n}"), 2, "--least is from 0"),
        (("--once", "--least", "3", "--", "/no/such/program", "{n}"), 2, "cannot be run"),
        (("--once", "--least", "3", "--", "false", "{n}"), 1, "false ended with 1"),
        (("--once", "--least", "0", "--", "false", "{n}"), 0, ""),
    ],
)
def test_what_is_wrong_is_said(coordinator: Coordinator, args: tuple[str, ...], code: int, said: str) -> None:
    done = coordinator.cli("autoscale", "--label", "nobody", *args, check=False)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr


def test_a_server_that_is_away_is_asked_again(tmp_path: Path) -> None:
    command = [*SKEP, "autoscale", "--every", "0.1", "--", "true", "{n}"]
    variables = environment({}) | {"SKEP_URL": "http://127.0.0.1:9", "SKEP_TOKEN": "x"}
    with subprocess.Popen(command, env=variables, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as scaling:
        assert scaling.stderr is not None
        said = [scaling.stderr.readline() for _ in range(2)]
        os.kill(scaling.pid, 15)
    assert all("tried again in 0.1 s" in line for line in said), said
