"""Git's words become classes; and a full disk, where one can be made, changes no ref."""

import asyncio
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.sources.git.process import Result, environment, failure_of, is_ref_conflict, run
from skep.sources.git.source_type import GitKind
from skep.sources.model import FailureClass
from tests.support.forge import Forge, Repo
from tests.support.forge.follower import Follower


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("fatal: write error: No space left on device\nfatal: fetch-pack: invalid index-pack output", "disk"),
        ("fatal: Authentication failed for 'https://h.org/x/'", "auth"),
        ("fatal: could not read Username for 'https://h.org': terminal prompts disabled", "auth"),
        ("git@h.org: Permission denied (publickey).\nfatal: Could not read from remote repository.", "auth"),
        ("Host key verification failed.\nfatal: Could not read from remote repository.", "blocked"),
        (
            "fatal: '/x' does not appear to be a git repository\nfatal: Could not read from remote repository.",
            "not_git",
        ),
        ("ERROR: Repository not found.\nfatal: Could not read from remote repository.", "gone"),
        ("fatal: unable to access 'https://h.org/x/': The requested URL returned error: 404", "gone"),
        ("fatal: unable to access 'https://h.org/x/': The requested URL returned error: 503", "network"),
        ("fatal: unable to access 'https://h.org/x/': Could not resolve host: h.org", "network"),
        ("error: RPC failed\nfatal: early EOF\nfatal: fetch-pack: invalid index-pack output", "network"),
        ("error: object 1234: hasDotgit: contains '.git'\nfatal: fsck error in packed object", "corrupt"),
        ("fatal: early EOF\nfatal: aborting due to possible repository corruption on the remote side.", "corrupt"),
        ("fatal: bad object refs/heads/main", "corrupt"),
        ("fatal: something nobody has seen before", "network"),
        ("", "network"),
    ],
)
def test_words_become_classes(said: str, kind: FailureClass) -> None:
    failure = failure_of(Result(128, b"", said), "https://h.org/x")
    assert failure.kind == kind and "https://h.org/x" in failure.message


def test_words_of_others_are_cleaned() -> None:
    failure = failure_of(Result(128, b"", "fatal: https://me:hunter2@h.org/x \x1b[31m\x07 no\n" + "x" * 9_000), "u")
    assert "hunter2" not in failure.message and "\x1b" not in failure.message and len(failure.message) < 500


def test_ref_conflicts_are_recognised() -> None:
    said = "error: cannot lock ref 'refs/heads/a/b': 'refs/heads/a' exists; cannot create 'refs/heads/a/b'"
    assert is_ref_conflict(Result(1, b"", said))
    assert not is_ref_conflict(Result(128, b"", "fatal: early EOF"))


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_who_stops_while_git_does_not_listen_is_told_of_nothing_else(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """More than the pipe takes, less than is waited for before it is closed."""
    wrong: list[object] = []

    async def stop() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
        env = environment([("alias.deaf", "!echo up >&2; exec sleep 60")])
        heard = asyncio.Event()
        input, hear = b"x" * 100_000, lambda _: heard.set()
        running = asyncio.create_task(run(["deaf"], env, seconds=60, input=input, hear=hear))
        await heard.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(stop())
    assert not wrong


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


async def test_a_full_disk_changes_no_ref(
    forge: Forge, small_disk: Path, upstream: Callable[[Repo], dict[str, str]]
) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    kind = GitKind(Settings(allow_networks=("127.0.0.0/8",)), small_disk, SystemClock(0))
    one = Follower(kind, forge.url("org/repo"))
    before = await one.succeed()
    repo.commit({"big": random.Random(1).randbytes(3_000_000)})
    failure = await one.fail()
    assert failure.kind == "disk" and "disk is full" in failure.message
    assert await kind.versions(one.held) == before
    one.fsck()
    repo.force_push({"a": b"small again"})
    assert await one.succeed() == upstream(repo)
    await kind.close()
