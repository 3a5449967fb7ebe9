"""Killed at any moment, a mirror is whole again after mend and fetch: fsck finds nothing, refs equal upstream's."""

import asyncio
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from skep.sources.git import mirror
from skep.sources.git import repository as locking
from skep.sources.git.repository import locked
from skep.sources.git.source_type import GitKind
from skep.sources.model import Failure
from skep.sources.source_type import Moved
from tests.support.forge import Forge, Repo
from tests.support.forge.follower import Follow

Upstream = Callable[[Repo], dict[str, str]]
log = logging.getLogger(__name__)


def move_everything(repo: Repo, rng: random.Random) -> None:
    """A new commit on main, and many branches that follow it."""
    commit = repo.commit({f"{n}.txt": rng.randbytes(2_000) for n in range(30)})
    lines = [f"update refs/heads/topic/{n} {commit}" for n in range(200)]
    repo.git("update-ref", "--stdin", input="\n".join(lines).encode() + b"\n")


#: seconds the random test takes; `make long` gives it more
SECONDS = min(float(os.environ.get("LONG", "12")), 3_600.0)
#: a size that makes the history come in steps
HUGE = 2_000_000_000
SEED = int(os.environ.get("SEED", "7"))


class Story:
    """Work on mirrors of one upstream, each time broken off at another moment."""

    def __init__(self, forge: Forge, follow: Follow, kind: GitKind) -> None:
        self.dice = random.Random(SEED)
        self.repo = forge.create("org/repo", {"a": b"1"})
        self.follow = follow
        self.kind = kind
        self.one = follow(f"file://{self.repo.folder}")
        #: how long each kind of work takes when nobody disturbs it
        self.lasts = {"clone": 0.2, "fetch": 0.2, "tidy": 0.2, "deepen": 0.2}
        self.killed = dict.fromkeys(self.lasts, 0)

    async def step(self) -> None:
        what = self.dice.choice(list(self.lasts))
        if what in ("clone", "deepen"):
            await self.kind.remove(self.one.held)
            self.one = self.follow(self.one.held.url)
        if what == "deepen":
            self.one.held = msgspec.structs.replace(self.one.held, size=HUGE)
            await self.one.succeed()
            assert (self.one.folder / "shallow").exists()
        work = asyncio.ensure_future(self._tidy() if what == "tidy" else self._fetch())
        start = time.monotonic()
        _, late = await asyncio.wait({work}, timeout=self.dice.random() * self.lasts[what])
        if late:
            self.killed[what] += 1
            if self.dice.random() < 0.5:
                kill_git()  # and whoever waits for it finds out
            else:
                work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        if not late:
            self.lasts[what] = 0.5 * self.lasts[what] + 0.75 * (time.monotonic() - start)
        assert await self.kind.mend(self.one.held) is None

    async def is_whole(self, upstream: Upstream) -> None:
        """After what is left to do was done."""
        versions = await self.one.succeed()
        while self.kind.heavy(self.one.held):
            versions = await self.one.succeed()
        assert versions == upstream(self.repo)
        self.one.fsck()

    async def _fetch(self) -> None:
        move_everything(self.repo, self.dice)
        look = await self.one.look()
        if isinstance(look, Moved):
            await self.kind.fetch(self.one.held, look, self.one.progress.append)

    async def _tidy(self) -> None:
        if self.one.folder.exists():
            async with locked(self.one.folder) as here:
                await here.git("repack", "-d", "-q", "--geometric=2", "--write-midx")
                await here.git("commit-graph", "write", "--reachable", "--split")


def kill_git() -> None:
    """kill -9 to the group of every git that this process has started."""
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            for pid in (task / "children").read_text().split():
                if Path(f"/proc/{pid}/comm").read_text().strip() == "git":
                    os.killpg(int(pid), signal.SIGKILL)


async def test_killed_at_random_moments(
    forge: Forge, follow: Follow, kind: GitKind, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "_SHORTEST_STEP", 2)
    story = Story(forge, follow, kind)
    end, steps = time.monotonic() + SECONDS, 0
    while time.monotonic() < end or not min(story.killed.values()):
        await story.step()
        steps += 1
        if steps % 10 == 0:
            await story.is_whole(upstream)
    await story.is_whole(upstream)
    assert not list(story.one.folder.rglob("*.lock")) and not list(story.one.folder.rglob("tmp_*"))
    log.info("seed %d: %d steps, killed %s", SEED, steps, story.killed)


WORKER = """
import asyncio, sys
from pathlib import Path
from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.sources.model import Held
from skep.sources.git.source_type import GitKind

async def main(source, url, data):
    kind = GitKind(Settings(allow_local=True), Path(data), SystemClock(0))
    held = Held(source, 1, "git", url, 1)
    look = await kind.look(held)
    print("looked", flush=True)
    await kind.fetch(held, look, lambda progress: None)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_killed_worker_leaves_orphans_that_are_waited_for(
    forge: Forge, follow: Follow, kind: GitKind, data: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locking, "_PATIENCE", 120.0)
    repo = forge.create("org/repo", {"a": b"1"})
    one = follow(f"file://{repo.folder}")
    await one.succeed()
    for delay in (0.01, 0.05):
        move_everything(repo, random.Random(delay))
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", WORKER, one.held.source, one.held.url, str(data)), stdout=subprocess.PIPE
        )
        assert worker.stdout and await worker.stdout.readline() == b"looked\n"
        await asyncio.sleep(delay)
        with suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
        await worker.wait()
        assert await kind.mend(one.held) is None
        assert await one.succeed() == upstream(repo)
        one.fsck()


async def test_stale_locks_and_leftovers_are_swept(forge: Forge, follow: Follow, upstream: Upstream) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    repo.branch("topic/x")
    one = follow(forge.url("org/repo"))
    await one.succeed()
    (one.folder / "refs/heads/topic").mkdir(parents=True)
    leftovers = ["HEAD.lock", "packed-refs.lock", "config.lock", "refs/heads/main.lock", "refs/heads/topic/x.lock"]
    leftovers += [
        "packed-refs.new",
        "objects/pack/tmp_pack_abc",
        "objects/pack/tmp_idx_abc",
        "objects/pack/pack-1.keep",
        "shallow.lock",
    ]
    for name in leftovers:
        (one.folder / name).write_bytes(b"")
    (one.folder / "refs/heads/powercut").write_bytes(b"")
    repo.commit({"a": b"2"})
    assert await one.succeed() == upstream(repo)
    assert not [name for name in leftovers if (one.folder / name).exists()]
    one.fsck()


async def test_half_a_mirror_is_made_again(forge: Forge, follow: Follow, kind: GitKind, upstream: Upstream) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    one = follow(forge.url("org/repo"))
    half = one.folder.with_suffix(".new")
    half.mkdir(parents=True)
    (half / "HEAD").write_text("ref: ref")
    assert await kind.mend(one.held) is None
    assert await kind.versions(one.held) == {}
    assert await one.succeed() == upstream(repo)


async def test_two_fetches_of_one_source_take_turns(
    forge: Forge, kind: GitKind, follow: Follow, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locking, "_PATIENCE", 120.0)
    repo = forge.create("org/repo", {"a": b"1"})
    one = follow(forge.url("org/repo"))
    await one.succeed()
    repo.commit({"a": b"2"})
    look = await one.look()
    assert isinstance(look, Moved)
    both = await asyncio.gather(*(kind.fetch(one.held, look, one.progress.append) for _ in range(3)))
    assert not [result for result in both if isinstance(result, Failure)]
    assert all(dict(result) == upstream(repo) for result in both if not isinstance(result, Failure))
