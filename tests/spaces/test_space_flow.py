"""The repository indexer's models on the public space API: managers split repositories into tasks, workers do them.

Tasks are (manager, "TASK", task, repository, file, content), results (manager, "RESULT", task, repository, result).
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from skep.base.errors import NotFound
from skep.client import Client
from skep.spaces.api import SpaceInfo
from tests.house.running import RunningSkep

REPOSITORIES = {
    "repo/a": {"main.go": "func main() {}", "README.md": "# a"},
    "repo/b": {"one.py": "x = 1", "two.py": "y = 2", "three.py": "z = 3"},
    "repo/c": {"lib.rs": "fn f() {}"},
}
DO: dict[str, Callable[[str, str], str]] = {
    "clear": lambda file, content: "cleared",
    "index-file": lambda file, content: f"{file}: {len(content)}",
    "index-report": lambda file, content: f"report of {content.count(';') + 1} files",
}


def worker(client: Client, name: str, stop: threading.Event) -> None:
    """What anybody would write: take a task, do it, put its result. The task is gone when the result is there."""
    tasks, states = client.space("tasks"), client.space("states")
    states.put(name, "idle")
    while not stop.is_set():
        try:
            taken = tasks.get(str, "TASK", str, str, str, str, timeout=0.5)
        except NotFound:
            continue
        with taken as (manager, _, task, repository, file, content):
            states.replace((name, str), (name, f"Working on: {task}"))
            result = DO[str(task)](str(file), str(content))
            tasks.put(manager, "RESULT", task, repository, result)
            states.replace((name, str), (name, f"idle, last task: {task}"))
    with states.get(name, str):
        pass


class Manager:
    def __init__(self, client: Client, name: str, again: Callable[[str], bool]) -> None:
        self.name = name
        self.again = again
        self.index, self.tasks = client.space("repositories"), client.space("tasks")
        self.reports: Counter[tuple[str, str]] = Counter()

    def do(self, task: str, repository: str, file: str = "none", content: str = "none") -> None:
        self.tasks.put(self.name, "TASK", task, repository, file, content)

    def result(self, task: str, repository: str) -> str:
        with self.tasks.get(self.name, "RESULT", task, repository, str, timeout=60) as taken:
            return str(taken[4])

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                with self.index.get(str, timeout=0.5) as (repository,):
                    self.flow(str(repository))
                    if not self.again(str(repository)):
                        continue
                    self.index.put(repository)
            except NotFound:
                continue

    def flow(self, repository: str) -> None:
        self.do("clear", repository)
        assert self.result("clear", repository) == "cleared"
        files = REPOSITORIES[repository]
        for file, content in files.items():
            self.do("index-file", repository, file, content)
        results = sorted(self.result("index-file", repository) for _ in files)
        assert results == sorted(f"{file}: {len(content)}" for file, content in files.items())
        self.do("index-report", repository, content=";".join(results))
        self.reports[repository, self.result("index-report", repository)] += 1


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSkep]:
    running = RunningSkep(tmp_path_factory.mktemp("flow-skep") / "data")
    yield running
    running.stop()


@contextmanager
def threads(*targets: Callable[[], None]) -> Iterator[None]:
    failures: list[BaseException] = []

    def run(target: Callable[[], None]) -> None:
        try:
            target()
        except BaseException as error:
            failures.append(error)

    running = [threading.Thread(target=run, args=(target,)) for target in targets]
    for thread in running:
        thread.start()
    yield
    for thread in running:
        thread.join(120)
    assert not failures
    assert not any(thread.is_alive() for thread in running)


def marking(client: Client) -> dict[str, int]:
    return {one.name: one.size for one in client.spaces.list() if _ours(one)}


def _ours(space: SpaceInfo) -> bool:
    return space.name in ("repositories", "tasks", "states")


def test_two_managers_five_workers_three_repositories_without_end(server: RunningSkep) -> None:
    """Without end means: until somebody stops it, here after every repository was indexed three times."""
    with Client(server.url, server.token) as client:
        rounds: Counter[str] = Counter()
        enough, over = threading.Event(), threading.Event()
        for repository in REPOSITORIES:
            client.space("repositories").put(repository)

        def again(repository: str) -> bool:
            rounds[repository] += 1
            if min(rounds[name] for name in REPOSITORIES) >= 3:
                enough.set()
            return True

        managers = [Manager(client, f"Manager: {n}", again) for n in range(2)]
        with threads(*(lambda n=n: worker(client, f"Worker: {n}", over) for n in range(5))):
            with threads(*(lambda m=m: m.run(enough) for m in managers)):
                pass
            assert client.space("repositories").query_all(str) != []
            over.set()
        assert marking(client) == {"repositories": 3, "tasks": 0, "states": 0}
        reports = managers[0].reports + managers[1].reports
        assert sum(reports.values()) == sum(rounds.values())
        assert {report for _, report in reports} == {"report of 1 files", "report of 2 files", "report of 3 files"}
        assert len(client.space("repositories").get_all(str)) == 3


def test_one_manager_one_worker_twelve_tasks_which_ends(server: RunningSkep) -> None:
    """Three repositories: three to clear, six files, three reports."""
    with Client(server.url, server.token) as client:
        over, done = threading.Event(), Counter[str]()
        for repository in REPOSITORIES:
            client.space("repositories").put(repository)

        def never(repository: str) -> bool:
            done[repository] += 1
            if len(done) == 3:
                over.set()
            return False

        manager = Manager(client, "Manager: only", never)
        ended = threading.Event()

        def manage() -> None:
            manager.run(over)
            ended.set()

        with threads(manage, lambda: worker(client, "Worker: only", ended)):
            pass
        assert set(done.values()) == {1}
        assert sum(manager.reports.values()) == 3
        assert marking(client) == {"repositories": 0, "tasks": 0, "states": 0}
