"""Index requests, managers and a real worker: killed managers lose nothing and do nothing twice."""

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.base.caller import SYSTEM
from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.processes.worker import Worker
from skep.sources.git.source_type import GitKind
from skep.storage.code_index.model import Delta, Fence, Limits, Tip
from skep.tasks.model import TaskSpec
from tests.support.forge import Forge
from tests.tasks.house import TOKEN, Engine, coordinator

SETTINGS = Settings(
    allow_networks=("127.0.0.0/8",), poll_min=0.2, poll_max=0.5, beat_every=0.5, roles=("worker",), index_batch=20_000
)


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    with Forge(tmp_path_factory.mktemp("forge")) as running:
        yield running


@asynccontextmanager
async def working(engine: Engine, data: Path, **settings: Any) -> AsyncIterator[None]:
    chosen = msgspec.structs.replace(SETTINGS, data=str(data), **settings)
    clock = SystemClock()
    worker = Worker(chosen, data, engine.link, TOKEN, clock, {"git": GitKind(chosen, data, clock)})
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


class Manager:
    def __init__(self, engine: Engine) -> None:
        code = (
            "import asyncio, sys; from skep.base.clock import SystemClock; from skep.indexing.manager import manage; "
        )
        code += "asyncio.run(manage(*sys.argv[1:], SystemClock()))"
        self.process = subprocess.Popen([sys.executable, "-c", code, engine.link, TOKEN])

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait(120)


async def searchable(engine: Engine, urls: list[str], commits: list[str]) -> None:
    for url, commit in zip(urls, commits, strict=True):
        until = time.monotonic() + 180
        while (source := await engine.core.sources.show(SYSTEM, url)).indexed_commit != commit:
            assert time.monotonic() < until, (commit, source, await _begun(engine))
            await engine.core.sources.wait(SYSTEM, url, timeout=0.2)


async def _begun(engine: Engine) -> list[object]:
    """What was asked for and what became of it."""
    contexts = (await engine.core.contexts.list(SYSTEM, cause="request:", limit=1000)).items
    requests = await engine.sql("SELECT seq, taker, lease_until FROM tuple WHERE space = 'index'")
    members = await engine.sql("SELECT id, state, last_alive FROM member")
    return [time.time(), requests, members, *[await engine.tasks(context) for context in contexts]]


async def test_killed_managers_lose_no_request_and_make_no_context_twice(tmp_path: Path, forge: Forge) -> None:
    chance = random.Random(5)
    repos = [forge.create(f"managed/{n}", {f"{f}.txt": b"%d\n" % f * 3000 for f in range(12)}) for n in range(3)]
    urls = [forge.url(f"managed/{n}") for n in range(3)]
    async with (
        coordinator(tmp_path, "sqlite:", allow_networks=("127.0.0.0/8",)) as engine,
        working(engine, tmp_path / "worker"),
    ):
        for url in urls:
            await engine.core.sources.add(SYSTEM, url)
        managers = [Manager(engine), Manager(engine)]
        try:
            for turn in range(4):
                commits = [repo.commit({f"{turn}.txt": b"turn %d\n" % turn}) for repo in repos]
                await asyncio.sleep(chance.random() * 1.5)  # the moment of the kill is the test's input
                await asyncio.to_thread(managers.pop(0).end, signal.SIGKILL)
                managers.append(Manager(engine))
            await searchable(engine, urls, commits)
            await _no_request_is_left(engine)
        finally:
            for manager in managers:
                await asyncio.to_thread(manager.end, signal.SIGTERM)
        contexts = (await engine.core.contexts.list(SYSTEM, cause="request:", limit=1000)).items
        # what was asked for: three first indexes, at most one for each commit, and one more for each of these that was
        # built whole, as nothing stood there when it began, and is adopted after a newer one
        assert 3 <= len(contexts) <= 3 + 2 * 4 * 3
        for context in contexts:
            assert (await engine.ended(context)).state == "FINISHED", await engine.tasks(context)


async def _no_request_is_left(engine: Engine) -> None:
    """Neither waiting nor taken: the initial marking."""
    async with asyncio.timeout(180):
        while any(one.size for one in (await engine.core.spaces.list(SYSTEM)).items if one.name == "index"):
            await asyncio.sleep(0.1)


async def test_a_large_source_is_one_context_of_batches_and_a_small_change_one_task(
    tmp_path: Path, forge: Forge
) -> None:
    repo = forge.create("sized", {f"{n}.txt": b"%d\n" % n * 5000 for n in range(10)})
    url = forge.url("sized")
    async with (
        coordinator(tmp_path, "sqlite:", allow_networks=("127.0.0.0/8",)) as engine,
        working(engine, tmp_path / "worker", roles=("worker", "manager")),
    ):
        await engine.core.sources.add(SYSTEM, url)
        await searchable(engine, [url], [repo.refs()["refs/heads/main"]])
        await searchable(engine, [url], [repo.commit({"new.txt": b"new\n"})])
        id = (await engine.core.sources.show(SYSTEM, url)).id
        small, large = (await engine.core.contexts.list(SYSTEM, cause=f"request:{id}")).items
        for context in (small, large):
            await engine.ended(context)
        assert list(await engine.tasks(small)) == ["plan"]
        names = list(await engine.tasks(large))
        assert names[0] == "plan"
        assert "publish" in names and names[-1] == "report"
        assert len(names) > 5


async def test_reindex_builds_everything_anew_and_fsck_reads_the_mirror(tmp_path: Path, forge: Forge) -> None:
    repo = forge.create("checked", {"a.txt": b"alpha\n"})
    url = forge.url("checked")
    async with (
        coordinator(tmp_path, "sqlite:", allow_networks=("127.0.0.0/8",)) as engine,
        working(engine, tmp_path / "worker", roles=("worker", "manager")),
    ):
        source = (await engine.core.sources.add(SYSTEM, url)).source
        await searchable(engine, [url], [repo.refs()["refs/heads/main"]])
        await engine.core.search.reindex(SYSTEM, source.id)
        while len(contexts := (await engine.core.contexts.list(SYSTEM, cause="request:")).items) < 2:
            await asyncio.sleep(0.05)
        assert contexts[0].name == f"reindex {source.id}"
        await engine.ended(contexts[0])
        checked = await engine.ended(await engine.submit(_fsck(source.id)))
        assert checked.state == "FINISHED"
        (pack,) = (tmp_path / "worker" / "mirrors").glob("*/*/*.git/objects/pack/*.pack")
        pack.chmod(0o600)
        pack.write_bytes(pack.read_bytes()[:-30] + b"x" * 30)
        checked = await engine.ended(await engine.submit(_fsck(source.id)))
        assert checked.state == "FAILED"
        (task,) = (await engine.tasks(checked)).values()
        assert "the mirror is damaged" in task.reason


async def test_an_index_that_lost_a_file_is_noticed_and_made_anew(tmp_path: Path, forge: Forge) -> None:
    """And one that did not is left as it is: only when it was looked at last changes."""
    repo = forge.create("verified", {"a.txt": b"alpha\n", "b.txt": b"beta\n"})
    url = forge.url("verified")
    repo.git("branch", "old")
    repo.commit({"a.txt": b"gamma\n"})
    async with (
        coordinator(tmp_path, "sqlite:", allow_networks=("127.0.0.0/8",)) as engine,
        working(engine, tmp_path / "worker", roles=("worker", "manager"), index_branches=("old",)),
    ):
        source = (await engine.core.sources.add(SYSTEM, url)).source
        commit = repo.refs()["refs/heads/main"]
        await searchable(engine, [url], [commit])
        assert await _found(engine, "alpha branch:old") == ["a.txt"]
        assert await _found(engine, "alpha branch:main") == []
        searcher = engine.rooms.searcher
        shards = searcher.size().shards
        await _verified(engine, source.id)
        assert searcher.size().shards == shards

        standing = searcher.standing(source.number)
        assert standing is not None
        wrong = (Tip("main", "0" * 40), standing.tips[1])
        fence, rules = Fence(source.id, 1, 1.0), standing.rules
        assert await searcher.adopt(Delta(source.id, 1, wrong, standing.tips, (), (b"a.txt",), rules), fence)
        assert await searcher.adopt(Delta(source.id, 1, standing.tips, wrong, (), (), rules), fence)
        assert await _found(engine, "alpha or beta") == ["b.txt"]
        await _verified(engine, source.id)
        assert await _found(engine, "alpha or beta") == ["a.txt", "b.txt"]


async def _verified(engine: Engine, source: str) -> None:
    before = (await engine.core.sources.show(SYSTEM, source)).indexed_at
    await engine.rooms.adoption.request(source, "verify")
    async with asyncio.timeout(180):
        while (await engine.core.sources.show(SYSTEM, source)).indexed_at == before:
            await asyncio.sleep(0.05)


async def _found(engine: Engine, query: str) -> list[str]:
    return sorted(hit.path for hit in (await engine.core.search.search(SYSTEM, query, Limits())).hits)


def _fsck(source: str) -> TaskSpec:
    return TaskSpec("check", "fsck", source=source)


async def test_what_only_the_holder_may_do_ends_when_its_source_is_removed(tmp_path: Path, forge: Forge) -> None:
    forge.create("gone", {"a.txt": b"alpha\n"})
    async with coordinator(tmp_path, "sqlite:", allow_networks=("127.0.0.0/8",)) as engine:
        source = (await engine.core.sources.add(SYSTEM, forge.url("gone"))).source
        context = await engine.submit(_fsck(source.id))
        await engine.core.sources.remove(SYSTEM, source.id)
        assert (await engine.ended(context)).state == "FAILED"
        (task,) = (await engine.tasks(context)).values()
        assert (task.state, "its source was removed" in task.reason) == ("ABORTED", True)


async def test_mirroring_and_running_tasks_switch_off_separately(tmp_path: Path, forge: Forge) -> None:
    repo = forge.create("split", {"a.txt": b"alpha\n"})
    url = forge.url("split")
    async with (
        coordinator(tmp_path, "sqlite:", allow_networks=("127.0.0.0/8",)) as engine,
        working(engine, tmp_path / "runs", mirror=False, roles=("worker", "manager"), task_commands=("true",)),
    ):
        await engine.core.sources.add(SYSTEM, url)
        ran = await engine.ended(await engine.submit(TaskSpec("run", argv=("true",))))
        assert ran.state == "FINISHED"
        (worker,) = await engine.core.workers.list(SYSTEM)
        assert "index" not in worker.offer.kinds
        async with working(engine, tmp_path / "mirrors", run_tasks=False, task_commands=("true", "false")):
            await searchable(engine, [url], [repo.refs()["refs/heads/main"]])
            waits = await engine.submit(TaskSpec("wait", argv=("false",)))
            async with asyncio.timeout(120):
                while not (reason := (await engine.tasks(waits))["wait"].reason):
                    await asyncio.sleep(0.05)
            assert reason == "no worker may run 'false': see the setting task_commands"
