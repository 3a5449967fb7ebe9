"""Killed at any moment, a mirror is whole again after mend and fetch: fsck finds nothing, refs equal upstream's."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from skep.model.source import Failure
from skep.sources.base import Moved
from skep.sources.git.kind import GitKind
from skep.testing.forge import Forge, Repo
from skep.testing.forge.follower import Follow

Upstream = Callable[[Repo], dict[str, str]]


def move_everything(repo: Repo, rng: random.Random) -> None:
    """A new commit on main, and many branches that follow it."""
    commit = repo.commit({f"{n}.txt": rng.randbytes(2_000) for n in range(30)})
    lines = [f"update refs/heads/topic/{n} {commit}" for n in range(200)]
    repo.git("update-ref", "--stdin", input="\n".join(lines).encode() + b"\n")


async def test_killed_at_random_moments(forge: Forge, follow: Follow, kind: GitKind, upstream: Upstream) -> None:
    rng = random.Random(7)
    repo = forge.create("org/repo", {"a": b"1"})
    one = follow(f"file://{repo.folder}")
    killed = 0
    for _ in range(10):
        move_everything(repo, rng)
        look = await one.look()
        assert isinstance(look, Moved)
        fetching = asyncio.ensure_future(kind.fetch(one.held, look, one.progress.append))
        _, unfinished = await asyncio.wait({fetching}, timeout=rng.random() * 0.12)
        killed += len(unfinished)
        fetching.cancel()
        await asyncio.gather(fetching, return_exceptions=True)
        assert await kind.mend(one.held) is None
        if rng.random() < 0.5:
            assert await one.succeed() == upstream(repo)
    assert await one.succeed() == upstream(repo)
    assert killed
    assert not list(one.folder.rglob("*.lock")) and not list(one.folder.rglob("tmp_*"))
    one.fsck()


WORKER = """
import asyncio, sys
from pathlib import Path
from skep.clock import SystemClock
from skep.config import Settings
from skep.model.source import Held
from skep.sources.git.kind import GitKind

async def main(source, url, data):
    kind = GitKind(Settings(allow_local=True), Path(data), SystemClock(0))
    held = Held(source, 1, "git", url, 1)
    look = await kind.look(held)
    print("looked", flush=True)
    await kind.fetch(held, look, lambda progress: None)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_killed_worker_leaves_orphans_that_are_waited_for(
    forge: Forge, follow: Follow, kind: GitKind, data: Path, upstream: Upstream
) -> None:
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
    forge: Forge, kind: GitKind, follow: Follow, upstream: Upstream
) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    one = follow(forge.url("org/repo"))
    await one.succeed()
    repo.commit({"a": b"2"})
    look = await one.look()
    assert isinstance(look, Moved)
    both = await asyncio.gather(*(kind.fetch(one.held, look, one.progress.append) for _ in range(3)))
    assert not [result for result in both if isinstance(result, Failure)]
    assert all(dict(result) == upstream(repo) for result in both if not isinstance(result, Failure))
