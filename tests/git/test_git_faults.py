"""What goes wrong at an upstream becomes a failure of the right class with words for people, and the mirror stays."""

import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from skep.base.clock import SystemClock
from skep.config.settings import Settings
from skep.sources.git.source_type import GitKind
from skep.sources.model import Failure, FailureClass
from skep.sources.source_type import Moved, Same
from tests.support.forge import Fault, Forge, Repo
from tests.support.forge.follower import Follow, Follower

Upstream = Callable[[Repo], dict[str, str]]
HTML = Fault(body=b"<html>hello</html>", headers={"Content-Type": "text/html"})
DUMB = Fault(body=b"0" * 40 + b"\trefs/heads/main\n", headers={"Content-Type": "text/plain"})


@pytest.mark.parametrize(
    ("fault", "expected", "words"),
    [
        (Fault(status=404), "gone", "no such repository"),
        (Fault(status=410), "gone", "no such repository"),
        (Fault(auth="me:secret"), "auth", "private, or there is no such repository"),
        (Fault(status=403), "auth", "refuses"),
        (Fault(status=403, headers={"Retry-After": "90"}), "rate_limited", "90 s"),
        (
            Fault(status=403, headers={"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "61"}),
            "rate_limited",
            "61 s",
        ),
        (Fault(status=403, headers={"X-RateLimit-Remaining": "9", "X-RateLimit-Reset": "61"}), "auth", "403"),
        (Fault(status=429), "rate_limited", "too often"),
        (Fault(status=429, headers={"Retry-After": "77"}), "rate_limited", "77 s"),
        (Fault(status=503, headers={"Retry-After": "5"}), "rate_limited", "5 s"),
        (Fault(status=503), "network", "503"),
        (Fault(status=500), "network", "500"),
        (Fault(status=418), "not_git", "418"),
        (HTML, "not_git", "text/html"),
        (DUMB, "not_git", "text/plain"),
        (Fault(drop_after=20), "network", "broke off"),
        (Fault(lie=(b"003", b"00z")), "not_git", "packet format"),
        (Fault(lie=(b"refs/heads/main", b"refs/heads/ma")), "not_git", "packet"),
        (Fault(redirect="http://10.1.2.3/other/repo"), "gone", "has moved to http://10.1.2.3/other/repo"),
        (Fault(redirect="file:///etc/passwd"), "gone", "moved"),
    ],
)
async def test_faults_have_classes(
    forge: Forge, follow: Follow, upstream: Upstream, fault: Fault, expected: FailureClass, words: str
) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    one = follow(forge.url("org/repo"))
    before = await one.succeed()
    repo.commit({"a": b"2"})
    forge.fault("org/repo", fault)
    failure = await one.fail()
    assert (failure.kind, words in failure.message) == (expected, True), failure
    assert "secret" not in failure.message
    assert await one.kind.versions(one.held) == before
    forge.fault("org/repo", None)
    assert await one.succeed() == upstream(repo)


async def test_retry_after_is_kept_and_bounded(forge: Forge, follow: Follow) -> None:
    forge.create("org/repo", {"a": b"1"})
    one = follow(forge.url("org/repo"))
    for header, seconds in (("120", 120.0), ("99999999", 21_600.0)):
        forge.fault("", Fault(status=429, headers={"Retry-After": header}))
        assert (await one.fail()).retry_after == seconds


async def test_a_missing_repository_and_a_closed_port(forge: Forge, follow: Follow) -> None:
    assert (await follow(forge.url("no/such")).fail()).kind == "gone"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        failure = await follow(f"http://127.0.0.1:{taken.getsockname()[1]}/x/y").fail()
    assert failure.kind == "network" and "does not accept connections" in failure.message


async def test_an_unknown_host(follow: Follow) -> None:
    failure = await follow("https://no-such-host.invalid/x/y").fail()
    assert failure.kind == "network" and "no-such-host.invalid" in failure.message


async def test_a_slow_upstream_times_out(forge: Forge, data: Path) -> None:
    forge.create("org/repo", {"a": b"1"})
    forge.fault("", Fault(delay=60.0))
    kind = GitKind(Settings(allow_networks=("127.0.0.0/8",), look_timeout=0.2), data, SystemClock(0))
    failure = await Follower(kind, forge.url("org/repo")).fail()
    assert failure.kind == "network" and "in time" in failure.message
    await kind.close()


async def test_closing_ends_looks_that_wait(forge: Forge, kind: GitKind) -> None:
    import asyncio

    forge.create("org/repo", {"a": b"1"})
    forge.fault("", Fault(delay=60.0))
    looking = asyncio.ensure_future(Follower(kind, forge.url("org/repo")).look())
    cancelled = asyncio.ensure_future(Follower(kind, forge.url("org/repo")).look())
    while len(forge.requests) < 2:
        await asyncio.sleep(0.01)
    cancelled.cancel()
    await kind.close()
    failure = await looking
    assert isinstance(failure, Failure) and "shutting down" in failure.message
    with pytest.raises(asyncio.CancelledError):
        await cancelled


async def test_tls_needs_a_trusted_certificate(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(allow_networks=("127.0.0.0/8",))
    with Forge(tmp_path / "tls", tls=True) as forge:
        repo = forge.create("org/repo", {"a": b"1"})
        kind = GitKind(settings, data, SystemClock(0))
        failure = await Follower(kind, forge.url("org/repo")).fail()
        assert failure.kind == "network" and "certificate" in failure.message
        await kind.close()
        monkeypatch.setenv("SSL_CERT_FILE", str(forge.ca))
        kind = GitKind(settings, data, SystemClock(0))
        one = Follower(kind, forge.url("org/repo"))
        assert (await one.succeed())["refs/heads/main"] == repo.refs()["refs/heads/main"]
        assert isinstance(await one.look(), Same)
        await kind.close()


async def test_an_emptied_upstream_keeps_the_mirror(forge: Forge, follow: Follow, upstream: Upstream) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    one = follow(forge.url("org/repo"))
    before = await one.succeed()
    repo.delete_branch("main")
    failure = await one.fail()
    assert failure.kind == "emptied" and "lost 1 of 1" in failure.message
    assert await one.kind.versions(one.held) == before
    repo.commit({"a": b"again"})
    assert await one.succeed() == upstream(repo)


async def test_mass_deletion_waits_but_tidying_up_does_not(forge: Forge, follow: Follow, upstream: Upstream) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    for n in range(5):
        repo.branch(f"few{n}")
    one = follow(forge.url("org/repo"))
    await one.succeed()
    for n in range(5):
        repo.delete_branch(f"few{n}")
    assert await one.succeed() == upstream(repo)
    for n in range(30):
        repo.branch(f"many{n}")
    before = await one.succeed()
    for n in range(25):
        repo.delete_branch(f"many{n}")
    assert (await one.fail()).kind == "emptied"
    assert await one.kind.versions(one.held) == before


async def test_an_upstream_emptied_after_the_look_loses_nothing(forge: Forge, follow: Follow) -> None:
    repo = forge.create("org/repo", {"a": b"1"})
    one = follow(forge.url("org/repo"))
    await one.succeed()
    repo.branch("new")
    look = await one.look()
    assert isinstance(look, Moved)
    held = repo.refs()
    repo.delete_branch("main")
    repo.delete_branch("new")
    await one.kind.fetch(one.held, look, one.progress.append)
    assert (await one.kind.versions(one.held))["refs/heads/main"] == held["refs/heads/main"]


async def test_a_repository_beyond_its_quota_is_too_big(forge: Forge, data: Path) -> None:
    import random

    forge.create("org/repo", {"big": random.Random(1).randbytes(400_000)})
    kind = GitKind(Settings(allow_networks=("127.0.0.0/8",), max_repository=100_000), data, SystemClock(0))
    one = Follower(kind, forge.url("org/repo"))
    failure = await one.fail()
    assert failure.kind == "too_big" and "max_repository" in failure.message
    assert await kind.versions(one.held) == {}
    await kind.close()


async def test_a_fetch_that_takes_too_long_is_ended(forge: Forge, data: Path) -> None:
    forge.create("org/repo", {"a": b"1"})
    settings = Settings(allow_networks=("127.0.0.0/8",), fetch_timeout=0.3)
    kind = GitKind(settings, data, SystemClock(0))
    one = Follower(kind, forge.url("org/repo"))
    look = await one.look()
    assert isinstance(look, Moved)
    forge.fault("", Fault(delay=60.0))
    failure = await kind.fetch(one.held, look, one.progress.append)
    assert isinstance(failure, Failure) and failure.kind == "network" and "0.3 s" in failure.message
    assert await kind.mend(one.held) is None
    await kind.close()


@pytest.mark.parametrize("make", ["missing", "not git", "a file", "loop", "etc"])
async def test_folders_that_are_no_repository(follow: Follow, tmp_path: Path, make: str) -> None:
    place = tmp_path / "place"
    if make == "not git":
        place.mkdir()
    elif make == "a file":
        place.write_text("hello")
    elif make == "loop":
        place.symlink_to(place)
    failure = await follow("file:///etc" if make == "etc" else str(place)).fail()
    assert failure.kind in {"not_git", "gone"} and "not a git repository" in failure.message, failure


async def test_a_local_folder_of_another_user(follow: Follow, tmp_path: Path, upstream: Upstream) -> None:
    repo = Repo.init(tmp_path / "theirs.git")
    repo.commit({"a": b"1"})
    expected = upstream(repo)
    try:
        for path in [repo.folder, *repo.folder.rglob("*")]:
            shutil.chown(path, 12_345)
    except PermissionError:
        pytest.skip("only root gives files away")
    assert await follow(str(repo.folder)).succeed() == expected


async def test_a_data_folder_that_cannot_be_written(forge: Forge, follow: Follow, data: Path) -> None:
    forge.create("org/repo", {"a": b"1"})
    (data / "mirrors").write_text("in the way")
    failure = await follow(forge.url("org/repo")).fail()
    assert failure.kind == "disk" and "cannot be written" in failure.message
